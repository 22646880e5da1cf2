"""The learning curves of two sets of results side by side: the same work, done faster.

python benchmarks/before_after.py     # results/first and results/fast -> docs/before_after.png
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.experiments.figures import Curve, read_curve

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Options:
    """Two folders of results, each with METHOD/TASK/seed-N.csv."""

    before: Path = ROOT / "results" / "first"
    after: Path = ROOT / "results" / "fast"
    experiment: str = "planet_bayes/cartpole_swingup-sensors"
    """The folder of seeds within both."""
    figure: Path = ROOT / "docs" / "before_after.png"


def main(options: Options) -> None:
    """Print a row for each seed, and draw."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="tight")
    table = Table("", "seed", "return at the end", "minutes of one core", box=None)
    for name, folder, colour in (
        ("before", options.before, "tab:gray"),
        ("after", options.after, "tab:blue"),
    ):
        curves = [
            read_curve(path) for path in sorted((folder / options.experiment).glob("seed-*.csv"))
        ]
        for curve in curves:
            last = [value for value in curve.evaluation_return if value is not None][-1]
            table.add_row(name, curve.seed, f"{last:.0f}", f"{curve.cpu_minutes[-1]:.1f}")
            _draw(axes, curve, colour, name if curve is curves[0] else None)
        minutes = [curve.cpu_minutes[-1] for curve in curves]
        table.add_row(name, "mean", "", f"{statistics.mean(minutes):.1f}")
    axes[0].set(xlabel="episode", ylabel="return while collecting")
    axes[1].set(xlabel="minutes of one core", ylabel="return while collecting")
    axes[0].legend()
    figure.savefig(options.figure, dpi=110)
    Console().print(table)


def _draw(axes: list[plt.Axes], curve: Curve, colour: str, label: str | None) -> None:
    pairs = [
        (episode, minutes, value)
        for episode, minutes, value in zip(
            curve.episode, curve.cpu_minutes, curve.train_return, strict=True
        )
        if value is not None
    ]
    episodes, minutes, values = zip(*pairs, strict=True)
    axes[0].plot(episodes, values, color=colour, label=label)
    axes[1].plot(minutes, values, color=colour)


if __name__ == "__main__":
    main(tyro.cli(Options))
