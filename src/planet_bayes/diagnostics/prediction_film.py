"""The film of `planet-bayes predict`: truth and members side by side, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.diagnostics.prediction import RunPrediction
from planet_bayes.training.prediction import Prediction
from planet_bayes.training.strip import PAPER, chart, is_picture, stacked

Array = NDArray[Any]

TILE = 128
"""Pixels on a side of an image, at least."""
BORDER, CAPTION = 4, 18
"""Pixels around an image, and above it for a line of text."""
CONTEXT_COLOUR, IMAGINED_COLOUR = (40, 160, 80), (200, 60, 40)
"""Of the frame around what members show: reconstructed, and imagined."""


def film(predictions: Sequence[RunPrediction]) -> NDArray[np.uint8]:
    """Return frames ``[T, H, W, 3]``: for each step the runs below each other."""
    shown = predictions[0].shown
    return np.stack([_frame(predictions, step) for step in range(shown.length)])


def _frame(predictions: Sequence[RunPrediction], step: int) -> NDArray[np.uint8]:
    first = predictions[0].shown
    kind = "reconstructed" if step < first.context else "imagined open loop"
    parts = [_caption(f"t = {step + 1}, {kind}", 400)]
    for run in predictions:
        if len(predictions) > 1:
            parts.append(_caption(run.label, 400))
        for name, real in first.real.items():
            if is_picture(real):
                parts.append(_pictures(run.shown, name, step))
            else:
                parts.append(chart(run.shown, name, until=step + 1))
    return _even(stacked(parts))


def _pictures(shown: Prediction, name: str, step: int) -> NDArray[np.uint8]:
    """Return the truth and each member's image of a step, beside each other."""
    colour = CONTEXT_COLOUR if step < shown.context else IMAGINED_COLOUR
    tiles = [_tile(shown.real[name][step], "truth", (0, 0, 0))]
    for number, images in enumerate(shown.predicted[name], 1):
        tiles.append(_tile(images[step], f"member {number}", colour))
    return np.concatenate(tiles, 1)


def _tile(image: Array, words: str, colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return an image with a coloured frame and a caption."""
    scale = max(1, TILE // len(image))
    large = image.round().clip(0, 255).astype(np.uint8).repeat(scale, 0).repeat(scale, 1)
    side = len(large) + 2 * BORDER
    framed = np.empty((side, side, 3), np.uint8)
    framed[:] = colour
    framed[BORDER:-BORDER, BORDER:-BORDER] = large
    tile = np.concatenate([_caption(words, side), framed])
    return np.pad(tile, ((0, 0), (0, BORDER), (0, 0)), constant_values=PAPER)


def _caption(words: str, width: int) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, CAPTION), (PAPER,) * 3)
    font = ImageFont.load_default(size=13)
    ImageDraw.Draw(image).text((2, 1), words, fill=(0, 0, 0), font=font)
    return np.asarray(image)


def _even(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a frame whose sides are multiples of 16, as the video's encoder wants them."""
    height, width = (-side % 16 for side in frame.shape[:2])
    return np.pad(frame, ((0, height), (0, width), (0, 0)), constant_values=PAPER)
