"""Panels of a film: small square RGB images. Pillow is imported when one is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL = 192
"""Pixels on a side."""
TRACE_STEPS = 64
MAX_TRACES = 12
_INK, _REAL, _MODEL = (24, 24, 32), (120, 200, 255), (255, 160, 60)


def square(frame: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an RGB image scaled to a panel, each pixel a block."""
    from PIL import Image

    image = Image.fromarray(np.asarray(frame).astype(np.uint8))
    return np.asarray(image.resize((PANEL, PANEL), Image.Resampling.NEAREST))


def traces(seen: list[NDArray[Any]], decoded: list[NDArray[Any]]) -> NDArray[np.uint8]:
    """Draw the last steps of each sensor, measured and decoded, as a strip chart."""
    from PIL import Image, ImageDraw

    real, model = np.stack(seen[-TRACE_STEPS:]), np.stack(decoded[-TRACE_STEPS:])
    image = Image.new("RGB", (PANEL, PANEL), _INK)
    draw = ImageDraw.Draw(image)
    sensors = min(real.shape[1], MAX_TRACES)
    height = PANEL / sensors
    for index in range(sensors):
        low = min(real[:, index].min(), model[:, index].min())
        high = max(real[:, index].max(), model[:, index].max(), low + 0.1)
        for values, colour in ((real, _REAL), (model, _MODEL)):
            share = (values[:, index] - low) / (high - low)
            xs = np.arange(len(share)) * (PANEL - 1) / (TRACE_STEPS - 1)
            ys = (index + 0.92 - 0.84 * share) * height
            points = list(zip(xs.tolist(), ys.tolist(), strict=True))
            if len(points) > 1:
                draw.line(points, fill=colour)
            else:
                draw.point(points, fill=colour)
    return np.asarray(image)
