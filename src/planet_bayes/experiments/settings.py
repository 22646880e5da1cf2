"""The command line of an experiment on a run: the run's folder, then settings unlike its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.errors import PlanetBayesError
from planet_bayes.planner import PlannerError


@dataclass(frozen=True)
class OnRun:
    """What every experiment on a run is given; its own options, with defaults, come after."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    config: Annotated[Config, tyro.conf.arg(name="")]
    """The run's own settings, but for those that are named."""


OptionsT = TypeVar("OptionsT", bound=OnRun)


def parse(kind: type[OptionsT], words: list[str]) -> OptionsT:
    """Return the options of ``kind``. The run comes first, for it has the defaults of the rest."""
    if not words or words[0].startswith("-"):
        raise SystemExit("name the run's folder first, then any settings: runs/NAME --help")
    run = Path(words[0])
    default = kind(run, configuration.load(run / "config.json"))
    return tyro.cli(kind, default=default, args=words)


def call(main: Callable[[list[str]], None]) -> None:
    """Run the command; what the user can mend is told in one sentence."""
    try:
        main(sys.argv[1:])
    except (PlanetBayesError, PlannerError) as error:
        raise SystemExit(f"error: {error}") from error
