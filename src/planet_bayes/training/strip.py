"""The strip of an open-loop prediction: truth above members, as one small RGB image.

Images are a row for the truth and one for each member, at some steps. Everything else is a chart of
its entries over all steps. Pillow is imported when a chart is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.training.prediction import Prediction, shown_times

Array = NDArray[Any]

TILE = 64
"""Pixels on a side of an image in a strip, at least."""
GAP, WIDE_GAP = 2, 8
"""Pixels between images, and between context and imagination."""
PAPER = 255
CHART_WIDTH, CHART_HEIGHT = 640, 56
"""Pixels of the chart of one entry."""
MAX_CHARTS = 12
"""Entries of an observation that are drawn."""
_INK, _REAL, _MODEL = (24, 24, 32), (120, 200, 255), (255, 160, 60)
_CONTEXT, _RULE = (44, 44, 58), (90, 90, 110)


def is_picture(values: Array) -> bool:
    """Return whether values ``[T, ...]`` are RGB images."""
    return values.ndim == 4 and values.shape[-1] == 3


def strip(prediction: Prediction) -> NDArray[np.uint8]:
    """Return all observations of a prediction below each other, ``[H, W, 3]``."""
    parts = [
        picture_strip(prediction, name) if is_picture(real) else chart(prediction, name)
        for name, real in prediction.real.items()
    ]
    return stacked(parts)


def stacked(parts: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return images below each other, the narrow ones filled up with white."""
    width = max(part.shape[1] for part in parts)
    wide = [
        np.pad(part, ((0, 0), (0, width - part.shape[1]), (0, 0)), constant_values=PAPER)
        for part in parts
    ]
    between = np.full((WIDE_GAP, width, 3), PAPER, np.uint8)
    return np.concatenate([piece for part in wide for piece in (part, between)][:-1])


def picture_strip(prediction: Prediction, name: str, tile: int = TILE) -> NDArray[np.uint8]:
    """Return rows of images: the truth, then each member."""
    rows = [prediction.real[name], *prediction.predicted[name]]
    times = shown_times(prediction.context, prediction.length - prediction.context)
    return mosaic(rows, times, tile)


def mosaic(rows: list[Array], times: tuple[list[int], list[int]], tile: int) -> NDArray[np.uint8]:
    """Return images ``[T, S, S, 3]`` of each row at some steps, with a gap after the context.

    Args:
        rows: Images of each row.
        times: Steps of the context and imagined ones, counted from 1.
        tile: Least pixels on a side of an image.
    """
    scale = max(1, tile // rows[0].shape[1])
    context, ahead = times
    lines = []
    for row in rows:
        pieces = []
        for time in [*context, *ahead]:
            image = row[time - 1].round().astype(np.uint8)
            pieces.append(image.repeat(scale, 0).repeat(scale, 1))
            gap = WIDE_GAP if time == context[-1] else GAP
            pieces.append(np.full((len(pieces[-1]), gap, 3), PAPER, np.uint8))
        line = np.concatenate(pieces[:-1], 1)
        lines += [line, np.full((GAP, line.shape[1], 3), PAPER, np.uint8)]
    return np.concatenate(lines[:-1])


def chart(prediction: Prediction, name: str, until: int | None = None) -> NDArray[np.uint8]:
    """Return a chart for each entry: the truth, and each member's line over it.

    Args:
        prediction: The prediction.
        name: The observation.
        until: Steps that are drawn. None: all.
    """
    real = prediction.real[name].reshape(prediction.length, -1)[:, :MAX_CHARTS]
    members = prediction.predicted[name].reshape(prediction.members, prediction.length, -1)
    return lines(real, members[..., :MAX_CHARTS], prediction.context, until)


def lines(real: Array, members: Array, context: int, until: int | None = None) -> NDArray[np.uint8]:
    """Draw entries ``[T, D]`` and members' ``[P, T, D]`` as charts below each other."""
    from PIL import Image, ImageDraw

    length, entries = real.shape
    image = Image.new("RGB", (CHART_WIDTH, CHART_HEIGHT * entries), _INK)
    draw = ImageDraw.Draw(image)
    across = np.arange(length) * (CHART_WIDTH - 1) / max(1, length - 1)
    edge = across[context - 1]
    draw.rectangle((0, 0, edge, image.height), fill=_CONTEXT)
    for entry in range(entries):
        top = entry * CHART_HEIGHT
        draw.line((0, top, CHART_WIDTH, top), fill=_RULE)
        series = [*members[..., entry], real[:, entry]]
        low = min(values.min() for values in series)
        high = max(*(values.max() for values in series), low + 1e-6)
        for number, values in enumerate(series):
            heights = top + CHART_HEIGHT * (0.92 - 0.84 * (values - low) / (high - low))
            points = list(zip(across.tolist(), heights.tolist(), strict=True))[:until]
            last = number == len(members)
            if len(points) > 1:
                draw.line(points, fill=_REAL if last else _MODEL, width=2 if last else 1)
    return np.asarray(image)
