"""``planet-bayes diagnose``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Diagnose:
    """Show how far ahead a run's model predicts rewards, on fresh episodes.

    For each step ahead: the error of the predicted reward, that of a constant prediction, and the
    correlation of the predicted return up to that step with the real one.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent."""
    episodes: int = 3
    """Fresh episodes."""
    horizon: int = 15
    """Steps imagined ahead."""
    exploration: float = 0.3
    """Std of the noise added to the agent's actions, as in collection."""
    every: int = 5
    """Steps between the points that are imagined from."""

    def run(self, console: Console) -> int:
        """Print the table."""
        import torch

        from planet_bayes import runs
        from planet_bayes.diagnostics.foresight import diagnose

        run = runs.load_run(self.folder, device="cpu")
        torch.set_num_threads(run.config.run.threads or 1)
        foresight = diagnose(run, self.episodes, self.horizon, self.exploration, self.every)
        table = Table(
            *("step ahead", "error of reward", "of a constant", "correlation of returns"),
            "members' disagreement",
            box=None,
        )
        error, correlation = foresight.error(), foresight.correlation()
        constant, spread = foresight.real.std(0), foresight.disagreement.mean(0)
        for step in range(self.horizon):
            table.add_row(
                str(step + 1),
                f"{error[step]:.3f}",
                f"{constant[step]:.3f}",
                f"{correlation[step]:.2f}",
                f"{spread[step]:.3f}",
            )
        console.print(table)
        return 0
