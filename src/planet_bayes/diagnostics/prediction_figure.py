"""The figure of `planet-bayes predict`: the truth on top, a row for each member of each run.

Images are strips at some steps. Everything else is a fan for each entry: the truth, each member and
their mean over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from planet_bayes.data import files
from planet_bayes.diagnostics.prediction import RunPrediction
from planet_bayes.training.prediction import shown_times
from planet_bayes.training.strip import MAX_CHARTS, is_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

Array = NDArray[Any]

WIDTH = 11.0
"""Inches."""
FAN_INCHES = 1.45
COLUMNS = 4
"""Fans beside each other."""
GAP, GROUP_GAP, CONTEXT_GAP = 0.06, 0.22, 0.22
"""Between images, above the rows of a run and after the context, in sides of an image."""
MEMBER_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Of Okabe and Ito: told apart by people who do not see all colours."""


def draw(predictions: Sequence[RunPrediction], title: str, path: Path) -> None:
    """Write the figure as PNG.

    Args:
        predictions: What each run predicts of the same window.
        title: What stands above.
        path: Where to.
    """
    from matplotlib.figure import Figure  # late: nothing else needs it

    real = predictions[0].shown.real
    blocks = [name for name in real if is_picture(real[name])]
    fans = [name for name in real if not is_picture(real[name])]
    heights = [_strip_inches(predictions) for _ in blocks]
    heights += [_fan_inches(predictions, _entries(real[name])) for name in fans]
    heights.append(_fan_inches(predictions, 1))
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.75), layout="constrained", dpi=130)
    figure.suptitle(title, fontsize=11)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, name in zip(parts, [*blocks, *fans], strict=False):
        if name in blocks:
            _draw_strip(part, name, predictions)
        else:
            _draw_fans(part, name, predictions)
    lines = _draw_rewards(parts[-1], predictions)
    handles, labels = lines.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=8, frameon=False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    files.write(path, buffer.getvalue())


def _rows(predictions: Sequence[RunPrediction]) -> int:
    return 1 + sum(one.shown.members for one in predictions)


def _entries(real: Array) -> int:
    return min(MAX_CHARTS, int(np.prod(real.shape[1:])))


def _columns(predictions: Sequence[RunPrediction]) -> tuple[list[int], list[int]]:
    shown = predictions[0].shown
    return shown_times(shown.context, shown.length - shown.context)


def _strip_inches(predictions: Sequence[RunPrediction]) -> float:
    context, ahead = _columns(predictions)
    side = (WIDTH - 1.3) / ((1 + GAP) * len(context + ahead) + CONTEXT_GAP)
    return side * ((1 + GAP) * _rows(predictions) + GROUP_GAP * len(predictions)) + 0.75


def _fan_inches(predictions: Sequence[RunPrediction], entries: int) -> float:
    return FAN_INCHES * len(predictions) * -(-entries // COLUMNS) + 0.45


def _draw_strip(part: SubFigure, name: str, predictions: Sequence[RunPrediction]) -> None:
    """Draw images at their places, in coordinates of which one image is the unit."""
    axes = part.subplots()
    context, ahead = _columns(predictions)
    left = {
        time: number * (1 + GAP) + (CONTEXT_GAP if time in ahead else 0)
        for number, time in enumerate([*context, *ahead])
    }
    right, top, ticks = max(left.values()) + 1, 0.0, {}
    _draw_row(axes, predictions[0].shown.real[name], left, top)
    ticks[top + 0.5] = "truth"
    for run in predictions:
        top += GROUP_GAP
        first = top + 1 + GAP
        for number, images in enumerate(run.shown.predicted[name], 1):
            top += 1 + GAP
            _draw_row(axes, images, left, top)
            ticks[top + 0.5] = f"member {number}"
        middle = (first + top + 1) / 2
        axes.text(
            right + 0.12, middle, run.name, rotation=-90, va="center", fontsize=8, clip_on=False
        )
    axes.set(xlim=(0, right), ylim=(top + 1, 0), aspect="equal")
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.xaxis.tick_top()
    axes.set_xticks([x + 0.5 for x in left.values()], [f"t = {t}" for t in left], fontsize=8)
    axes.tick_params(length=0)
    edge = left[ahead[0]] - (CONTEXT_GAP + GAP) / 2
    axes.axvline(edge, color="0.25", linewidth=1.2, linestyle=(0, (4, 3)))
    for x, words in (
        ((edge / 2), f"{name}: context, reconstructed"),
        ((edge + right) / 2, "imagined open loop"),
    ):
        axes.text(x, -0.42, words, ha="center", va="bottom", fontsize=9, clip_on=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_row(axes: Axes, images: Array, left: dict[int, float], top: float) -> None:
    for time, x in left.items():
        image = images[time - 1].round().clip(0, 255).astype(np.uint8)
        axes.imshow(image, extent=(x, x + 1, top + 1, top), interpolation="nearest")


def _draw_fans(part: SubFigure, name: str, predictions: Sequence[RunPrediction]) -> None:
    """Draw a fan for each entry, `COLUMNS` in a line, the lines of each run below the other."""
    real = predictions[0].shown.real[name]
    entries = _entries(real)
    columns, lines = min(COLUMNS, entries), -(-entries // COLUMNS)
    grid = part.subplots(lines * len(predictions), columns, squeeze=False, sharex=True)
    flat = real.reshape(len(real), -1)
    for number, run in enumerate(predictions):
        own = grid[number * lines : (number + 1) * lines]
        members = run.shown.predicted[name].reshape(run.shown.members, len(real), -1)
        for entry, axes in enumerate(own.flat):
            if entry >= entries:
                axes.remove()
                continue
            _fan(axes, flat[:, entry], members[..., entry], run.shown.context)
            axes.set_title(f"{name} {entry}", fontsize=8, pad=2)
        if len(predictions) > 1:
            own[0, 0].set_ylabel(run.name, fontsize=8)
    for entry in range(entries):
        place = entry // columns, entry % columns
        _share_limits([grid[n * lines + place[0], place[1]] for n in range(len(predictions))])
    for axes in grid[-1]:
        axes.set_xlabel("t", fontsize=8)


def _draw_rewards(part: SubFigure, predictions: Sequence[RunPrediction]) -> Axes:
    """Draw a fan of the reward for each run, and return that with most members."""
    grid = part.subplots(len(predictions), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, run in zip(grid, predictions, strict=True):
        shown = run.shown
        _fan(axes, shown.real_reward, shown.predicted_reward, shown.context)
        if len(predictions) > 1:
            axes.set_ylabel(run.name, fontsize=8)
    grid[0].set_title("reward", fontsize=8, pad=2)
    grid[-1].set_xlabel("t", fontsize=8)
    most = max(range(len(grid)), key=lambda number: predictions[number].shown.members)
    return cast("Axes", grid[most])


def _fan(axes: Axes, real: Array, members: Array, context: int) -> None:
    times = np.arange(1, len(real) + 1)
    axes.axvspan(1, context, color="0.93", linewidth=0)
    axes.axvline(context, color="0.25", linewidth=0.8, linestyle=(0, (4, 3)))
    for number, values in enumerate(members):
        colour = MEMBER_COLOURS[number % len(MEMBER_COLOURS)]
        axes.plot(
            times, values, color=colour, linewidth=0.8, alpha=0.85, label=f"member {number + 1}"
        )
    if len(members) > 1:
        axes.plot(
            times, members.mean(0), color="#c00000", linewidth=1.6, linestyle="--", label="mean"
        )
    axes.plot(times, real, color="black", linewidth=1.6, label="truth")
    axes.set_xlim(1, len(real))
    axes.tick_params(labelsize=7)


def _share_limits(axes: Sequence[Axes]) -> None:
    limits = np.array([one.get_ylim() for one in axes])
    for one in axes:
        one.set_ylim(limits[:, 0].min(), limits[:, 1].max())
