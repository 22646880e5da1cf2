"""``planet-bayes figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console


@dataclass(frozen=True)
class Figures:
    """Draw the learning curves of an experiment from its files under results/.

    curves: each run. With `planet_bayes` and another method also methods-episodes and
    methods-hours, which compare the methods. variants, in place of these, if the experiment has
    any. Each as PNG and SVG.
    """

    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RESULTS")]]
    """A folder under results/, or a declared experiment (experiments/NAME.toml)."""

    def run(self, console: Console) -> int:
        """Write the figures and print their paths."""
        from planet_bayes.results.ablation import compares_methods
        from planet_bayes.results.curves import has_variants
        from planet_bayes.results.experiment import results_folder
        from planet_bayes.results.figures import draw_comparison, draw_curves, draw_variants

        folder = results_folder(self.source)
        paths = draw_variants(folder) if has_variants(folder) else draw_curves(folder)
        if compares_methods(folder):
            paths += [*draw_comparison(folder, "episodes"), *draw_comparison(folder, "hours")]
        for path in paths:
            console.print(str(path), soft_wrap=True)
        return 0
