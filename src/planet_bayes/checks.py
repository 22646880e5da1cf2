"""Checks of settings, with one wording for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planet_bayes.errors import ConfigError, nearest


def at_least(config: Any, group: str, least: float, *names: str) -> None:
    """Refuse settings below ``least``; NaN is refused too."""
    for name in names:
        value = getattr(config, name)
        if not value >= least:
            raise ConfigError(f"{_label(group, name)} must be at least {least}, got {value}.")


def positive(config: Any, group: str, *names: str) -> None:
    """Refuse settings that are not positive and finite."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            raise ConfigError(f"{_label(group, name)} must be positive, got {value}.")


def between(config: Any, group: str, low: float, high: float, *names: str) -> None:
    """Refuse settings outside the closed interval from ``low`` to ``high``."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            label = _label(group, name)
            raise ConfigError(f"{label} must be from {low:g} to {high:g}, got {value}.")


def one_of(config: Any, group: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among the known ones, and suggest the nearest."""
    value, words = getattr(config, name), list(known)
    if value not in words:
        raise ConfigError(
            f"{_label(group, name)}: there is no {value!r}{nearest(str(value), words)} "
            f"There are {', '.join(words)}."
        )


def _label(group: str, name: str) -> str:
    return f"{group}.{name}" if group else name
