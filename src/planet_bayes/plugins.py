"""Modules from outside the package, imported by name.

The person who types a command or writes a script names them. A loaded folder never does.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from planet_bayes.errors import ConfigError

_registering: list[str] = []


def load(name: str) -> ModuleType:
    """Import a module from the current folder or from an installed package."""
    folder = os.getcwd()
    if folder not in sys.path:
        # `python -m` searches the current folder, an installed command does not.
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ConfigError(
            f"could not import the module {name!r} ({type(error).__name__}: {error}). Modules are "
            f"searched in the current folder ({folder}) and among the installed packages. The file "
            "folder/file.py is the module folder.file."
        ) from error


def register(name: str) -> None:
    """Import a module that registers parts of its own, also in processes that are started later."""
    load(name)
    if name not in _registering:
        _registering.append(name)


def registering() -> tuple[str, ...]:
    """Return the names of the modules that `register` has imported."""
    return tuple(_registering)
