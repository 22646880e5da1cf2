"""Configurations as JSON: written whole, read strictly."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, Literal

from planet_bayes.config.migrations import FORMAT, migrated
from planet_bayes.config.schema import Config
from planet_bayes.data import files
from planet_bayes.errors import ConfigError, PlanetBayesError, RunError, nearest


def differences(left: Any, right: Any, where: str = "") -> set[str]:
    """Return the dotted names of the settings in which two configurations differ."""
    found: set[str] = set()
    for entry in dataclasses.fields(left):
        a, b = getattr(left, entry.name), getattr(right, entry.name)
        if dataclasses.is_dataclass(a):
            found |= differences(a, b, f"{where}{entry.name}.")
        elif a != b:
            found.add(where + entry.name)
    return found


def to_json(config: Config) -> str:
    """Return the configuration as JSON text, with the number of its format."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


def save(config: Config, path: Path) -> None:
    """Write the configuration beside the results, whole or not at all."""
    files.write(path, to_json(config))


def load(path: Path) -> Config:
    """Read a configuration of this format or an older one."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a readable configuration: {error}.") from error
    try:
        return from_dict(Config, migrated(data))
    except PlanetBayesError as error:
        raise ConfigError(f"{path}: {error}") from error


def from_dict(kind: type[Any], data: Any, where: str = "") -> Any:
    """Build the dataclass ``kind`` from plain data. Every field must be there, and no other."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where or 'configuration'}: expected a table of keys, got {data!r}.")
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in hints:
            raise ConfigError(f"unknown key {where + key!r}{nearest(key, hints)}")
        values[key] = _convert(hints[key], value, where + key)
    missing = [entry.name for entry in dataclasses.fields(kind) if entry.name not in values]
    if missing:
        raise ConfigError(f"missing key {where + missing[0]!r}; was the file edited?")
    return kind(**values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type[Any], hint), value, where + ".")
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _convert(
            next(arg for arg in typing.get_args(hint) if arg is not type(None)), value, where
        )
    if origin is dict:
        item = typing.get_args(hint)[1]
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a table, got {value!r}.")
        return {str(key): _convert(item, entry, f"{where}.{key}") for key, entry in value.items()}
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, got {value!r}.")
        return tuple(_convert(item, entry, where) for entry in value)
    if origin is Literal:
        if value not in typing.get_args(hint):
            words = [str(arg) for arg in typing.get_args(hint)]
            raise ConfigError(
                f"{where}: {value!r} is not one of {', '.join(words)}{nearest(str(value), words)}"
            )
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{where}: the number is too large.") from error
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: expected {hint.__name__}, got {value!r}.")
    return value
