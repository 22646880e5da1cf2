"""Packages whose public names are imported when they are first used.

An exported agent must load where Gymnasium is not installed, and the planner where nothing but
PyTorch is, so importing a package must not import all of its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def exports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    ``modules`` maps modules of the package to the public names that they define.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    def list_names() -> list[str]:
        return sorted(module_of)

    return get, list_names
