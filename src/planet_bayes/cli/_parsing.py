"""From words to a command."""

from __future__ import annotations

import inspect
from typing import Any

import tyro


def parse(kind: type[Any], name: str, words: list[str]) -> Any:
    """Return the command of ``kind`` that the words describe. Help ends the program."""
    complete = "--help-all" in words
    words = ["--help" if word == "--help-all" else word for word in words]
    default = kind.defaults(words) if hasattr(kind, "defaults") else None
    description, parsed = inspect.cleandoc(kind.__doc__ or ""), kind
    if default is not None and not complete:
        from planet_bayes.cli._settings import SHOWN, abridged_command  # late: most have none

        description += (
            f"\n\nThese are the {len(SHOWN)} settings that change most often. --help-all lists all."
        )
        if "--help" in words or "-h" in words:
            parsed, default = abridged_command(kind, default)
    options: dict[str, Any] = {} if default is None else {"default": default}
    return tyro.cli(
        parsed, prog=f"planet-bayes {name}", description=description, args=words, **options
    )
