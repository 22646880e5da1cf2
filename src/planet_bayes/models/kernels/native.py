"""Native code (`cpp/`), where the package was built with a compiler.

There is one library for each instruction set. The best that the processor has is used; the
environment variable ``PLANET_BAYES_KERNEL`` chooses another: ``avx512``, ``avx2``, ``portable``, or
``torch`` for PyTorch's operators.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

from planet_bayes.errors import ConfigError

VARIABLE = "PLANET_BAYES_KERNEL"
ACTIVATIONS = ("relu", "elu", "silu")
"""In the order of their numbers in the library."""
INSTRUCTION_SETS = {"AVX512": ("avx512", "avx2", "portable"), "AVX2": ("avx2", "portable")}
"""Libraries by what PyTorch says of the processor, best first; elsewhere only the portable one."""

FUNCTIONS = (
    *("pack", "free", "roll_out", "filter", "filter_gradient"),
    *("layer", "input_gradient", "weight_gradient"),
)
"""What a library offers."""


def available() -> list[str]:
    """Return the names of the libraries that this processor can run, best first."""
    capability = torch.backends.cpu.get_cpu_capability()
    return list(_loadable(INSTRUCTION_SETS.get(capability, ("portable",))))


def chosen() -> str:
    """Return the name of the library in use, or ``torch`` if there is none."""
    name = os.environ.get(VARIABLE)
    if name == "torch":
        return name
    names = [*available(), "torch"]
    if name and name not in names:
        raise ConfigError(f"{VARIABLE} must be {', '.join(names)} on this machine, got {name!r}.")
    return name or names[0]


@functools.cache  # asked at every planning call
def _loadable(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the libraries that are there and can be loaded."""
    found: list[str] = []
    problems: list[str] = []
    for name in names:
        if _path(name) is None:
            continue
        try:
            library(name)
        except (OSError, AttributeError) as error:  # no library of this machine or this version
            problems.append(str(error))
        else:
            found.append(name)
    if problems:
        warnings.warn(
            f"native kernels cannot be loaded: {'; '.join(problems)}. "
            f"{found[0] if found else 'torch'} is used instead, which is slower. Delete these "
            "files and install planet-bayes again (in a checkout: pip install -e .), or set "
            f"{VARIABLE}=torch.",
            RuntimeWarning,
            stacklevel=2,
        )
    return tuple(found)


def _path(name: str) -> Path | None:
    folder = Path(__file__).parent
    names = [f"_native_{name}{suffix}" for suffix in EXTENSION_SUFFIXES]
    found = [folder / one for one in names if (folder / one).exists()]
    return found[0] if found else None


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Load a library. Its calls release the interpreter's lock."""
    loaded = ctypes.CDLL(str(_path(name)))
    for function in FUNCTIONS:
        getattr(loaded, f"planet_bayes_{function}")  # AttributeError: a library of another version
    return loaded


def fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether the library can read a tensor: its shape, type and device."""
    return tensor.shape == shape and tensor.dtype == torch.float32 and tensor.device.type == "cpu"
