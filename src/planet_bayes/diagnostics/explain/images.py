"""Images as text that a page can hold."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

QUALITY = 80
"""Of WebP's lossy compression, of 100."""


def data_uri(image: Array) -> str:
    """Return an RGB image as the address of a WebP image that the address itself contains."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "WEBP", quality=QUALITY, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def sheet(tiles: Array) -> Array:
    """Return tiles ``[rows, columns, S, S, 3]`` as one image."""
    rows, columns, height, width, channels = tiles.shape
    return tiles.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)


def packed(values: Array) -> dict[str, Any]:
    """Return numbers as a shape and the text of their bytes: 32 bits each, little-endian."""
    raw = np.ascontiguousarray(values, "<f4")
    return {"shape": list(raw.shape), "float32": base64.b64encode(raw.tobytes()).decode()}


def unpacked(text: dict[str, Any]) -> NDArray[np.float32]:
    """Return the numbers of `packed`."""
    raw = np.frombuffer(base64.b64decode(text["float32"]), "<f4")
    return raw.reshape(text["shape"])
