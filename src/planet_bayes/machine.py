"""The facts besides settings and seed that results depend on to the bit, and the memory."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import platform
from pathlib import Path

import torch

from planet_bayes.models.kernels import native

_PACKAGES = ("planet-bayes", "torch", "numpy", "mujoco", "dm_control", "gymnasium")

_KEPT = {-3: 32 * 2**20, -1: 512 * 2**20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
"""Bytes of a block above which it is returned when it is freed, and of free memory likewise."""


def keep_freed_memory() -> None:
    """Let the C library keep up to 512 MB that are freed, instead of returning them at once.

    An update allocates the same arrays as the one before. Without this, glibc returns them to the
    system and gets them again page by page, which takes a twentieth of an update of ``quick``.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        for parameter, value in _KEPT.items():
            mallopt(parameter, value)


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
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return f"{name} × {torch.distributed.get_world_size()}" if together else name
