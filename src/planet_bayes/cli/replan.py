"""``planet-bayes replan``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from planet_bayes.cli._settings import Settings, run_settings


@dataclass(frozen=True)
class Replan:
    """Evaluate a run with other settings of its planner: same weights, same starts.

    Settings that are not named are the run's own. --env.max-steps makes episodes shorter.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent. It must come first."""
    config: Settings
    episodes: int = 6
    """Noise-free episodes, planned as one batch."""
    starts: int = 0
    """Number of the set of starts; 0 is the one of `planet-bayes evaluate`."""

    @classmethod
    def defaults(cls, words: list[str]) -> Replan:
        """Return the run's settings."""
        return cls(*run_settings(words, "replan"))

    def run(self, console: Console) -> int:
        """Print the mean, the lowest and the highest return, and all of them."""
        import torch

        from planet_bayes.diagnostics.replan import replan

        torch.set_num_threads(self.config.run.threads or 1)
        began = time.monotonic()
        returns = replan(self.folder, self.config, self.episodes, self.starts)
        console.print(
            f"mean {np.mean(returns):.1f}, lowest {min(returns):.1f}, highest {max(returns):.1f}; "
            f"{', '.join(f'{value:.1f}' for value in returns)}; {time.monotonic() - began:.0f} s",
            soft_wrap=True,
        )
        return 0
