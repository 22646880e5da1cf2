"""``planet-bayes archive``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes.errors import ConfigError


@dataclass(frozen=True)
class Archive:
    """Copy the curves and settings of finished runs to results/."""

    target: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """A folder under results/, or a declared experiment (experiments/NAME.toml)."""
    folders: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]] = ()
    """Folders of runs. A declared experiment knows its own."""
    baselines: bool = False
    """Write the returns of random and zero actions to baselines.json, 50 episodes each."""
    tasks: tuple[str, ...] = ()
    """Tasks of the baselines. A declared experiment knows its own."""

    def run(self, console: Console) -> int:
        """Copy, and print what was left out."""
        from planet_bayes.results import archive
        from planet_bayes.results.experiment import is_declared, read_experiment

        folders: dict[Path, list[Path]] = {self.target: list(self.folders)}
        results, tasks = self.target, list(self.tasks)
        if is_declared(self.target):
            if self.folders or self.tasks:
                raise ConfigError(f"{self.target} declares its runs and tasks; name no others.")
            experiment = read_experiment(self.target)
            results, tasks, folders = experiment.results, experiment.tasks, {}
            for run in experiment.runs:
                if run.folder.is_dir():
                    folders.setdefault(run.archive, []).append(run.folder)
        elif not self.folders and not self.baselines:
            raise ConfigError("name the runs to archive, or --baselines and its --tasks.")
        if self.baselines and not tasks:
            raise ConfigError("name the tasks of the baselines: --tasks TASK …")
        for folder, runs in folders.items():
            for message in archive.collect(folder, runs):
                console.print(message, soft_wrap=True)
        if self.baselines:
            console.print(str(archive.baselines(results, tasks)), soft_wrap=True)
        return 0
