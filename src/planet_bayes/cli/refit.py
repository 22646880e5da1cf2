"""``planet-bayes refit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

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
        console.print(
            f"After every {options.report_every} of {options.updates} updates: mean losses since "
            "the last report; then for each step ahead: error of the reward / that of a constant, "
            "r = correlation of returns",
            soft_wrap=True,
        )
        for fit in refit(self.folder, self.config, options):
            console.print(_lines(fit, options.horizon), soft_wrap=True)
        return 0


def _lines(fit: Fit, horizon: int) -> str:
    error, correlation = fit.foresight.error(), fit.foresight.correlation()
    constant = fit.foresight.real.std(0)
    parts = [
        f"{step}: {error[step - 1]:.2f}/{constant[step - 1]:.2f} r {correlation[step - 1]:.2f}"
        for step in SHOWN_STEPS
        if step <= horizon
    ]
    terms = " ".join(f"{name} {value:.3g}" for name, value in fit.losses.items())
    return f"{fit.updates}  {terms}\n      " + "  ".join(parts)
