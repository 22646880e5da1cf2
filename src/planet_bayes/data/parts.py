"""Parts of episode files: the rows of a sequence, read and checked without the rest of the file.

The checksum of a file covers all of it. When a file is written, or read whole, the checksums of its
blocks are kept in memory; a part is read in whole blocks, which are compared with them.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.data.files import DamagedError

BLOCK = 16_384
"""Bytes of a block: 4 bytes of memory for each 16 KiB on disk."""


@dataclass(frozen=True)
class Blocks:
    """The checksums of a file's blocks."""

    path: Path
    size: int
    sums: array[int]

    @staticmethod
    def of(path: Path, data: bytes) -> Blocks:
        """Return the checksums of ``data``, the contents of the file."""
        view = memoryview(data)
        sums = (zlib.crc32(view[start : start + BLOCK]) for start in range(0, len(data), BLOCK))
        return Blocks(path, len(data), array("I", sums))

    def read(self, handle: int, start: int, stop: int) -> memoryview:
        """Return bytes ``start:stop`` of the open file, or raise `DamagedError`."""
        first, last = start // BLOCK, -(-stop // BLOCK)
        begin, end = first * BLOCK, min(last * BLOCK, self.size)
        data = memoryview(os.pread(handle, end - begin, begin))
        for number in range(first, last):
            place = number * BLOCK - begin
            if zlib.crc32(data[place : place + BLOCK]) != self.sums[number]:
                raise DamagedError(self.path, "is damaged: it has changed since it was checked.")
        return data[start - begin : stop - begin]


@dataclass(frozen=True)
class Stored:
    """Where an array lies in an archive, row after row."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def rows(self, blocks: Blocks, handle: int, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start:stop``."""
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        begin, end = self.offset + start * row, self.offset + stop * row
        data = blocks.read(handle, begin, end)
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])


Layout = tuple[tuple[str, Stored], ...]
"""The arrays of an archive by name."""


def layout(data: bytes) -> Layout | None:
    """Return where the arrays of an ``.npz`` archive lie, which has been read before.

    None: an array is not stored row by row.
    """
    found = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            # The local header repeats name and extra field, with lengths of its own.
            lengths = struct.unpack_from("<HH", data, entry.header_offset + 26)
            begin = entry.header_offset + 30 + sum(lengths)
            stream = io.BytesIO(data[begin : begin + min(entry.file_size, 4096)])
            np.lib.format.read_magic(stream)
            shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
            if in_columns:
                return None
            stored = Stored(begin + stream.tell(), dtype, shape)
            found.append((entry.filename.removesuffix(".npy"), stored))
    return tuple(found)
