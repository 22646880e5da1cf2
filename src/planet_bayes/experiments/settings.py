"""The command line of an experiment on a run: the run's folder, then settings unlike its own."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import tyro

from planet_bayes import config as configuration
from planet_bayes.errors import PlanetBayesError

OptionsT = TypeVar("OptionsT")


def parse(kind: type[OptionsT], words: list[str]) -> OptionsT:
    """Return the options of ``kind``, a dataclass with the fields ``run`` and ``config``.

    The run comes first, for it has the defaults of the rest.
    """
    if not words or words[0].startswith("-"):
        raise SystemExit("name the run's folder first, then any settings: runs/NAME --help")
    run = Path(words[0])
    fields: dict[str, Any] = {"run": run, "config": configuration.load(run / "config.json")}
    return tyro.cli(kind, default=kind(**fields), args=words)


def call(main: Callable[[list[str]], None]) -> None:
    """Run the command; what the user can mend is told in one sentence."""
    try:
        main(sys.argv[1:])
    except PlanetBayesError as error:
        raise SystemExit(f"error: {error}") from error
