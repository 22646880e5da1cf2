"""Figures of learning curves, each as PNG and as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from planet_bayes.results.ablation import ORDER
from planet_bayes.results.curves import (
    Cost,
    Curve,
    Group,
    hours,
    read_baselines,
    read_costs,
    read_curves,
    read_variants,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
PANEL_INCHES = (5.2, 3.8)
MAX_ENTRIES = 6
"""Lines of a legend that a panel has room for above its curves."""
WINDOW = 5
"""Episodes of each run that a point of a comparison is taken over."""
BAND = (5, 50, 95)
"""Percentiles of the band and the line of a comparison."""

Array = NDArray[np.float64]
Panel = TypeVar("Panel")


def draw_curves(folder: Path) -> list[Path]:
    """Draw all curves in a folder of results and return the figures' paths.

    There is one panel for each method, task and observation, and one line for each seed.
    """
    groups, baselines = read_curves(folder), read_baselines(folder)

    def draw(axes: Axes, group: Group) -> None:
        draw_panel(axes, group, groups[group], _levels(baselines, group[1]))

    note = "dots: noise-free; faint: in training, with noise"
    return _save(_panels(list(groups), draw, note), folder / "curves")


def draw_comparison(folder: Path, against: str) -> list[Path]:
    """Draw the methods in a folder of results beside each other and return the figures' paths.

    There is one panel for each task and observation, and one line with a band for each method:
    median and percentiles 5 to 95 over the seeds and the last `WINDOW` collected episodes.

    Args:
        folder: The folder.
        against: ``episodes``, or ``hours`` of one core, at common costs if these are known.
    """
    groups, baselines, costs = read_curves(folder), read_baselines(folder), read_costs(folder)
    panels = list(dict.fromkeys((task, observation) for _, task, observation in groups))

    def draw(axes: Axes, panel: tuple[str, str]) -> None:
        for index, method in enumerate(ORDER):
            curves = groups.get((method, *panel))
            if curves:
                across, bands = comparison_band(curves, against, costs)
                axes.plot(across, bands[1], color=f"C{index}", label=f"{method} ({len(curves)})")
                if len(curves) > 1:  # one run's spread says nothing of others
                    axes.fill_between(across, bands[0], bands[2], color=f"C{index}", alpha=0.15)
        _draw_levels(axes, _levels(baselines, panel[0]))
        unit = "hours of one core" if against == "hours" else "episodes collected with the agent"
        _finish(axes, f"{panel[0]}-{panel[1]}", unit)

    note = f"method (runs): median and 5 to 95 % of {WINDOW} episodes of all runs, with noise"
    return _save(_panels(panels, draw, note), folder / f"methods-{against}")


def draw_variants(folder: Path) -> list[Path]:
    """Draw the variants of an experiment beside each other and return the figures' paths.

    There is one panel for each method, task and observation, and one line with a band for each
    variant: median and percentiles 5 to 95 of the noise-free evaluations over seeds, against the
    agent's steps, those of the seed episodes included.
    """
    variants, baselines = read_variants(folder), read_baselines(folder)
    panels = sorted(
        {
            group
            for groups in variants.values()
            for group, curves in groups.items()
            if any(curve.evaluations for curve in curves)
        }
    )

    def draw(axes: Axes, group: Group) -> None:
        for index, (name, groups) in enumerate(variants.items()):
            curves = groups.get(group, [])
            if any(curve.evaluations for curve in curves):
                across, bands = evaluation_band(curves)
                axes.plot(
                    across, bands[1], "o-", color=f"C{index}", label=f"{name} ({len(curves)})"
                )
                if len(curves) > 1:
                    axes.fill_between(across, bands[0], bands[2], color=f"C{index}", alpha=0.15)
        _draw_levels(axes, _levels(baselines, group[1]))
        method, task, observation = group
        title = f"{method}, {task}-{observation}"
        _finish(axes, title, "steps of the agent, with seed episodes")

    note = "variant (runs): median and 5 to 95 % of noise-free evaluations of all runs"
    return _save(_panels(panels, draw, note), folder / "variants")


def evaluation_band(curves: list[Curve]) -> tuple[Array, Array]:
    """Return the steps ``[n]`` and the percentiles `BAND` ``[3, n]`` of noise-free evaluations.

    Evaluations are numbered in each run. Those that some run does not have are left out.
    """
    known = [_known(curve.steps, curve.evaluation_return) for curve in curves if curve.evaluations]
    count = min(len(steps) for steps, _ in known)
    across = np.mean([steps[:count] for steps, _ in known], 0)
    return across, np.percentile([values[:count] for _, values in known], BAND, 0)


def comparison_band(
    curves: list[Curve], against: str, costs: Mapping[Group, Cost]
) -> tuple[Array, Array]:
    """Return the positions ``[n]`` and the percentiles `BAND` ``[3, n]`` of collected returns.

    A point is over all runs and the last `WINDOW` episodes of each. In hours it is at the mean of
    the runs. Episodes that some run does not have are left out.
    """
    count = min(len(curve.episode) for curve in curves)
    returns = np.array([curve.train_return[:count] for curve in curves], np.float64)
    first = [max(0, last + 1 - WINDOW) for last in range(count)]
    bands = [np.nanpercentile(returns[:, low : i + 1], BAND) for i, low in enumerate(first)]
    if against == "hours":
        across = np.mean([hours(curve, costs)[:count] for curve in curves], 0)
    else:
        across = np.arange(count, dtype=np.float64)
    return across, np.array(bands).T


def draw_panel(axes: Axes, group: Group, curves: list[Curve], levels: dict[str, float]) -> None:
    """Draw one panel: lines for collected episodes, dots for noise-free evaluations."""
    from matplotlib.ticker import MaxNLocator

    for index, curve in enumerate(curves):
        colour = f"C{index}"
        axes.plot(*_known(curve.episode, curve.train_return), color=colour, alpha=0.45)
        episodes, returns = _known(curve.episode, curve.evaluation_return)
        label = f"seed {curve.run.seed} ({curve.cpu_minutes[-1]:.0f} min of one core)"
        axes.plot(episodes, returns, "o-", color=colour, markersize=5, label=label)
    _draw_levels(axes, levels)
    method, task, observation = group
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"{method}, {task}-{observation}"
    _finish(axes, title, "episodes collected with the agent")


def _panels(panels: list[Panel], draw: Callable[[Axes, Panel], None], note: str) -> Figure:
    """Return a figure with a panel for each, `COLUMNS` in a row, and a note above them."""
    from matplotlib.figure import Figure  # late: nothing else needs it

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for one, panel in zip(axes, panels, strict=False):
        draw(one, panel)
    for one in axes[len(panels) :]:
        one.remove()
    figure.suptitle(note, fontsize=9)
    figure.tight_layout()
    return figure


def _save(figure: Figure, stem: Path) -> list[Path]:
    """Write PNG and SVG. The same curves give the same SVG: it has no date and no random names."""
    import matplotlib

    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with matplotlib.rc_context({"svg.hashsalt": "planet-bayes"}):
        figure.savefig(paths[0], dpi=130)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _levels(baselines: dict[str, dict[str, dict[str, float]]], task: str) -> dict[str, float]:
    return {f"{name} actions": found["mean"] for name, found in baselines.get(task, {}).items()}


def _draw_levels(axes: Axes, levels: dict[str, float]) -> None:
    for policy, value in levels.items():
        axes.axhline(value, color="grey", linestyle=":", linewidth=1)
        place = (0.99, value)  # the right edge of the panel, at the level
        axes.annotate(
            policy,
            place,
            xycoords=("axes fraction", "data"),
            fontsize=7,
            color="grey",
            ha="right",
            va="bottom",
        )


def _finish(axes: Axes, title: str, across: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(across)
    axes.set_ylabel("return")
    axes.grid(alpha=0.2)
    entries = len(axes.legend(fontsize=7, loc="upper left").get_texts())
    # Room for the legend above all curves: a line of it takes a twentieth of a panel.
    axes.set_ylim(0, axes.get_ylim()[1] / (0.97 - 0.05 * min(entries, MAX_ENTRIES)))


def _known(across: list[int], values: list[float | None]) -> tuple[list[int], list[float]]:
    """Return the positions that have a value, and the values."""
    pairs = [(x, value) for x, value in zip(across, values, strict=True) if value is not None]
    return [x for x, _ in pairs], [value for _, value in pairs]
