"""Figures of learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planet_bayes.results.curves import Curve, Group, read_baselines, read_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
PANEL_INCHES = (5.2, 3.8)


def draw_curves(folder: Path) -> Path:
    """Draw all curves in a folder of results and return the figure's path.

    There is one panel for each method, task and observation, and one line for each seed.
    """
    from matplotlib.figure import Figure  # late: nothing else needs it

    groups, baselines = read_curves(folder), read_baselines(folder)
    columns = min(COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows))
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (group, curves) in zip(panels.flat, groups.items(), strict=False):
        task = group[1]
        levels = {f"{name} actions": v["mean"] for name, v in baselines.get(task, {}).items()}
        draw_panel(axes, group, curves, levels)
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    figure.tight_layout()
    path = folder / "curves.png"
    figure.savefig(path, dpi=130)
    return path


def draw_panel(axes: Axes, group: Group, curves: list[Curve], levels: dict[str, float]) -> None:
    """Draw one panel: lines for collected episodes, dots for noise-free evaluations."""
    from matplotlib.ticker import MaxNLocator

    for index, curve in enumerate(curves):
        colour = f"C{index}"
        axes.plot(*_known(curve.episode, curve.train_return), color=colour, alpha=0.45)
        episodes, returns = _known(curve.episode, curve.evaluation_return)
        label = f"seed {curve.run.seed} ({curve.cpu_minutes[-1]:.0f} min of one core)"
        axes.plot(episodes, returns, "o-", color=colour, markersize=5, label=label)
    for policy, value in levels.items():
        axes.axhline(value, color="grey", linestyle=":", linewidth=1)
        axes.annotate(policy, (0, value), fontsize=7, color="grey", va="bottom")
    method, task, observation = group
    axes.set_title(f"{method}, {task}-{observation}", fontsize=10)
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
