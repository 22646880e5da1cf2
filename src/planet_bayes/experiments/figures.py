"""Figures from committed curves.

``python -m planet_bayes.experiments.figures results/first`` reads
``results/first/<method>/<task>/seed-*.csv`` and ``baselines.json``, and writes
``results/first/curves.png``: one panel per method and task, one line per seed.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@dataclass(frozen=True)
class Curve:
    """One seed's run."""

    seed: str
    episode: list[int]
    train_return: list[float | None]
    evaluation_return: list[float | None]
    cpu_minutes: list[float]


def read_curve(path: Path) -> Curve:
    """Read a metrics.csv."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> list[float | None]:
        return [float(row[name]) if row.get(name) else None for row in rows]

    return Curve(
        seed=path.stem.removeprefix("seed-"),
        episode=[int(row["episode"]) for row in rows],
        train_return=column("train_return"),
        evaluation_return=column("evaluation_return"),
        cpu_minutes=[float(row["cpu_minutes"]) for row in rows],
    )


def evaluations(curve: Curve) -> list[float]:
    """Return a run's noise-free evaluations, in their order."""
    return [value for value in curve.evaluation_return if value is not None]


def read_experiment(folder: Path) -> dict[str, list[Curve]]:
    """Return the curves of an experiment by ``method/task``."""
    found: dict[str, list[Curve]] = {}
    for path in sorted(folder.glob("*/*/seed-*.csv")):
        found.setdefault(f"{path.parts[-3]}/{path.parts[-2]}", []).append(read_curve(path))
    if not found:
        raise SystemExit(f"{folder}: no curves; expected <method>/<task>/seed-<n>.csv")
    return found


def draw(axes: Axes, name: str, curves: list[Curve], baselines: dict[str, float]) -> None:
    """Draw one panel: lines for collected episodes, dots for noise-free evaluations."""
    for index, curve in enumerate(curves):
        colour = f"C{index}"
        axes.plot(*_known(curve.episode, curve.train_return), color=colour, alpha=0.45)
        episodes, returns = _known(curve.episode, curve.evaluation_return)
        label = f"seed {curve.seed} ({curve.cpu_minutes[-1]:.0f} min of one core)"
        axes.plot(episodes, returns, "o-", color=colour, markersize=5, label=label)
    for policy, value in baselines.items():
        axes.axhline(value, color="grey", linestyle=":", linewidth=1)
        axes.annotate(policy, (0, value), fontsize=7, color="grey", va="bottom")
    axes.set_title(name.replace("/", ", "), fontsize=10)
    axes.set_xlabel("episodes collected with the agent")
    axes.set_ylabel("return")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.2)
    title = "dots: noise-free; faint: in training, with noise"
    axes.legend(fontsize=7, loc="upper left", title=title, title_fontsize=7)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend, above all curves


def _known(episodes: list[int], values: list[float | None]) -> tuple[list[int], list[float]]:
    """Return the episodes that have a value, and the values."""
    pairs = [(e, v) for e, v in zip(episodes, values, strict=True) if v is not None]
    return [e for e, _ in pairs], [v for _, v in pairs]


def main(folder: Path) -> Path:
    """Draw all curves of an experiment and return the figure's path."""
    found = read_experiment(folder)
    baselines = json.loads((folder / "baselines.json").read_text())
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    size = (5.2 * columns, 3.8 * rows)
    figure, panels = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axes, (title, curves) in zip(panels.flat, found.items(), strict=False):
        task = title.split("/")[1].rsplit("-", 1)[0]
        levels = {f"{name} actions": v["mean"] for name, v in baselines.get(task, {}).items()}
        draw(axes, title, curves, levels)
    for axes in panels.flat[len(found) :]:
        axes.remove()
    figure.tight_layout()
    path = folder / "curves.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
