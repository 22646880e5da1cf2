"""The command line of an experiment on a run: the run's folder, then settings unlike its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from planet_bayes.config import Config
from planet_bayes.errors import PlanetBayesError
from planet_bayes.planner import PlannerError
from planet_bayes.training import checkpoint


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
    command = f"python -m planet_bayes.experiments.{Path(sys.argv[0]).stem}"
    if not words or words[0].startswith("-"):
        raise SystemExit(
            "name the run's folder first, then any settings of its own or of the run. For a list "
            f"of them: {command} runs/NAME --help"
        )
    run = Path(words[0])
    return tyro.cli(kind, default=kind(run, own_settings(run)), args=words, prog=command)


def own_settings(run: Path) -> Config:
    """Return the settings that a run has, or say what is wrong with its folder."""
    return checkpoint.load_config(checkpoint.latest(run))


def call(main: Callable[[list[str]], None]) -> None:
    """Run the command; what the user can mend is told in one sentence."""
    try:
        main(sys.argv[1:])
    except (PlanetBayesError, PlannerError) as error:
        raise SystemExit(f"error: {error}") from error
