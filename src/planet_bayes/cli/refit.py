"""``planet-bayes refit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.cli._settings import Settings, run_settings
from planet_bayes.diagnostics.refit import Fit, RefitOptions

SHOWN_STEPS = (1, 3, 5, 10, 15, 20)


@dataclass(frozen=True)
class Refit:
    """Fit a new model to the episodes of a run, and measure its foresight on held-out ones.

    Settings that are not named are the run's own. Nothing is collected.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run. It must come first."""
    config: Settings
    options: Annotated[RefitOptions, tyro.conf.arg(name="")] = field(default_factory=RefitOptions)

    @classmethod
    def defaults(cls, words: list[str]) -> Refit:
        """Return the run's settings."""
        return cls(*run_settings(words, "refit"))

    def run(self, console: Console) -> int:
        """Print losses, errors and correlations after every so many updates."""
        import torch

        from planet_bayes.diagnostics.refit import refit

        torch.set_num_threads(self.config.run.threads or 1)
        options = self.options
        console.print(f"{options.updates} updates, a report after every {options.report_every}:")
        for fit in refit(self.folder, self.config, options):
            terms = ", ".join(f"{name} {value:.3g}" for name, value in fit.losses.items())
            console.print(
                f"{fit.updates} updates; mean losses since the last report: {terms}",
                soft_wrap=True,
            )
            console.print(_table(fit, options.horizon))
        return 0


def _table(fit: Fit, horizon: int) -> Table:
    """Return what `planet-bayes diagnose` shows too, for the held-out episodes."""
    titles = ("step ahead", "error of reward", "of a constant", "correlation of returns")
    table = Table(*titles, box=None)
    error, correlation = fit.foresight.error(), fit.foresight.correlation()
    constant = fit.foresight.real.std(0)
    for step in SHOWN_STEPS:
        if step <= horizon:
            errors = f"{error[step - 1]:.3f}", f"{constant[step - 1]:.3f}"
            table.add_row(str(step), *errors, f"{correlation[step - 1]:.2f}")
    return table
