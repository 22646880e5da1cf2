"""``planet-bayes figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console


@dataclass(frozen=True)
class Figures:
    """Draw the learning curves of an experiment from its files under results/."""

    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """A folder under results/, or a declared experiment (experiments/NAME.toml)."""

    def run(self, console: Console) -> int:
        """Write curves.png and print its path."""
        from planet_bayes.results.experiment import results_folder
        from planet_bayes.results.figures import draw_curves

        console.print(str(draw_curves(results_folder(self.source))), soft_wrap=True)
        return 0
