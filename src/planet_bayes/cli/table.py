"""``planet-bayes table``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes.errors import ConfigError


@dataclass(frozen=True)
class TableOf:
    """Print the results of an experiment as a Markdown table, or the commands that make them.

    A result is the median of a run's last ten noise-free evaluations, with the lowest and the
    highest of them. With variants, it is the last evaluation, and differences between variants on
    the same seeds follow, with 95 % intervals. Settings in which a run differs from
    today's presets are listed below the table. With `planet_bayes` and another method, three tables
    come first: mean ± std over seeds and the last ten evaluations (runs), beside the paper's own
    numbers; interquartile means of normalised returns (0: random actions, 1: the paper's
    PlaNet-Bayes) and probabilities of improvement; and differences on the same seeds. The last two
    have 95 % intervals over seeds. Where an experiment declares the returns that solve its tasks, a
    table of the agent's steps until then follows, and one of the mean of all evaluations.
    """

    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """A folder under results/, or a declared experiment (experiments/NAME.toml)."""
    against: Annotated[Path | None, tyro.conf.arg(metavar="RESULTS")] = None
    """Print only the differences from another experiment, on the same seeds: of each method here
    and each method there, with 95 % intervals, normalised as above."""
    commands: bool = False
    """Print the command of each run of a declared experiment instead."""
    missing: bool = False
    """Print only the commands of runs without a result."""

    def run(self, console: Console) -> int:
        """Print."""
        from planet_bayes.results import tables
        from planet_bayes.results.ablation import ablation, compares_methods
        from planet_bayes.results.contrast import contrast
        from planet_bayes.results.experiment import (
            is_declared,
            read_experiment,
            results_folder,
        )
        from planet_bayes.results.solved import area_table, solved_table

        experiment = read_experiment(self.source) if is_declared(self.source) else None
        if self.commands or self.missing:
            if experiment is None:
                raise ConfigError(
                    f"{self.source} is not a declared experiment; name a file like "
                    "experiments/NAME.toml."
                )
            for run in experiment.missing() if self.missing else experiment.runs:
                console.print(run.command, soft_wrap=True)
            return 0
        folder = results_folder(self.source)
        if self.against is not None:
            console.print(contrast(folder, results_folder(self.against)), soft_wrap=True)
            return 0
        if compares_methods(folder):
            console.print(ablation(folder), "", sep="\n", soft_wrap=True)
        variants = [] if experiment is None else experiment.variants
        console.print(tables.table(folder, variants), soft_wrap=True)
        if experiment is not None and experiment.solved:
            solved = solved_table(folder, experiment.variants, experiment.solved)
            area = area_table(folder, experiment.variants, experiment.solved)
            console.print("", solved, "", area, sep="\n", soft_wrap=True)
        others = tables.unlike_presets(folder)
        if others:
            console.print(f"\nUnlike today's presets:\n\n{others}", soft_wrap=True)
        return 0
