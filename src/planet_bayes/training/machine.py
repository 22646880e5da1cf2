"""What results depend on to the bit besides settings and seed, so that a change can be told."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

import torch

_PACKAGES = ("planet-bayes", "torch", "numpy", "mujoco", "dm_control", "gymnasium")


def machine(device: torch.device | str = "cpu") -> dict[str, str]:
    """Return the facts by name. Two runs of one command agree bit for bit where these agree."""
    facts = {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "device": _device(torch.device(device)),
        "python": platform.python_version(),
    }
    for name in _PACKAGES:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = "none"
    return facts


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return in words what differs between two machines."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} {before.get(name, 'unknown')} → {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
