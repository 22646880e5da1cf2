"""The extras of the installation: which of them brings a module, and how to install it."""

from __future__ import annotations

EXTRAS = {
    "train": ("cv2", "gymnasium", "rich", "safetensors", "scipy", "tensorboard", "tyro"),
    "suite": ("dm_control", "mujoco", "shimmy"),
    "video": ("imageio", "imageio_ffmpeg", "PIL"),
    "results": ("matplotlib",),
    "pages": ("plotly", "PIL"),
    "cluster": ("ray",),
}
"""Modules by extra, as pyproject.toml declares them."""


def advice(error: ImportError) -> str | None:
    """Return which extra to install, if the module that could not be imported is of one."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return (
                f"{module} is not installed; it belongs to the extra [{extra}]. From a checkout: "
                f'pip install ".[{extra}]".'
            )
    return None
