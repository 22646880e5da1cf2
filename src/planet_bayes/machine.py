"""The facts besides settings and seed that results depend on to the bit."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from pathlib import Path

import torch

from planet_bayes.models.kernels import native

_PACKAGES = ("planet-bayes", "torch", "numpy", "mujoco", "dm_control", "gymnasium")


def machine(device: torch.device | str = "cpu") -> dict[str, str]:
    """Return the facts by name. Two runs of one command agree bit for bit where these agree."""
    facts = {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernel": native.chosen(),
        "threads": str(torch.get_num_threads()),
        "device": _device(torch.device(device)),
        "python": platform.python_version(),
    }
    return facts | _versions()


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return in words how two machines differ."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} {before.get(name, 'unknown')} → {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


@functools.cache
def processor() -> str:
    """Return the processor's name, as far as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
