"""Episodes as files: plain ``.npz`` archives of arrays as they came.

Arrays are ``observation.NAME`` for each name of the signature, ``action``, ``reward`` and
``terminal``. Files of version 0.1 have one ``observation`` and no ``terminal``.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.data import files
from planet_bayes.data.files import DamagedError
from planet_bayes.data.parts import Blocks, Layout, layout
from planet_bayes.types import Episode

_OBSERVATION = "observation"


def pack(episode: Episode) -> bytes:
    """Return an episode as the bytes of its file; the same episode gives the same bytes."""
    buffer = io.BytesIO()
    named = {f"{_OBSERVATION}.{name}": value for name, value in episode.observation.items()}
    arrays: dict[str, Any] = {
        **named,
        "action": episode.action,
        "reward": episode.reward,
        "terminal": episode.terminal,
    }
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(data: bytes, unnamed: str = "") -> Episode:
    """Return the episode in the bytes of a file, or raise ValueError if they hold none.

    ``unnamed`` is the name of the observation in a file of version 0.1.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays = {
                name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()
            }
    except ValueError:
        raise
    except Exception as error:  # zipfile, NumPy and tokenize raise many kinds for damaged files
        raise ValueError(f"it cannot be read ({type(error).__name__}: {error})") from error
    observation = {
        name.removeprefix(f"{_OBSERVATION}."): arrays.pop(name)
        for name in list(arrays)
        if name.startswith(f"{_OBSERVATION}.")
    }
    if _OBSERVATION in arrays and not observation:
        if not unnamed:
            raise ValueError("it is of version 0.1, whose observation has no name")
        observation[unnamed] = arrays.pop(_OBSERVATION)
        arrays.setdefault("terminal", np.zeros(len(observation[unnamed]), np.bool_))
    if set(arrays) != {"action", "reward", "terminal"} or not observation:
        raise ValueError("its arrays are not those of an episode")
    action, reward, terminal = arrays["action"], arrays["reward"], arrays["terminal"]
    lengths = {len(array) for array in (*observation.values(), action, reward, terminal)}
    if not (
        len(lengths) == 1
        and lengths != {0}
        and (action.ndim, reward.ndim, terminal.ndim) == (2, 1, 1)
        and action.dtype == reward.dtype == np.float32
        and terminal.dtype == np.bool_
        and all(array.dtype in (np.uint8, np.float32) for array in observation.values())
    ):
        raise ValueError("its arrays are not those of an episode")
    return Episode(observation, action, reward, terminal)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive, without trusting the size in its header."""
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed, which episodes never are")
    stream = io.BytesIO(archive.read(entry))
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"{name} has format {version}, expected (1, 0)")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = stream.read()
    if not shape or dtype.hasobject or len(rest) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} does not hold the numbers that its header says")
    array = np.frombuffer(bytearray(rest), dtype)  # not of bytes, which PyTorch may not share
    return array.reshape(shape, order="F" if in_columns else "C")


def read_episode(path: Path, digest: str | None = None, unnamed: str = "") -> Episode:
    """Return the episode in a file, whose sum must be ``digest`` if that is given."""
    return _read(path, digest, unnamed)[0]


def open_episode(path: Path, digest: str, unnamed: str) -> tuple[Episode, EpisodeFile | None]:
    """Return the episode in a file, and the file to read parts of later."""
    episode, data = _read(path, digest, unnamed)
    return episode, EpisodeFile.of(path, data)


def _read(path: Path, digest: str | None, unnamed: str) -> tuple[Episode, bytes]:
    """Return the episode in a file, and the contents of the file."""
    try:
        data = path.read_bytes()
        if digest is not None:
            files.compare(path, hashlib.sha256(data).hexdigest(), digest)
        return unpack(data, unnamed), data
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DamagedError(path, f"is not an episode: {error}.") from error


@dataclass(frozen=True)
class EpisodeFile:
    """An episode on disk that has been checked, to read parts of."""

    blocks: Blocks
    layout: Layout

    @staticmethod
    def of(path: Path, data: bytes) -> EpisodeFile | None:
        """Return the file with the contents ``data``; None: it can only be read whole.

        That is so for files of version 0.1, and for arrays that are stored column by column.
        """
        places = layout(data)
        if places is None or _OBSERVATION in dict(places):
            return None
        return EpisodeFile(Blocks.of(path, data), _LAYOUTS.setdefault(places, places))

    def rows(self, start: int, stop: int) -> Episode:
        """Return entries ``start:stop`` as an episode; fewer if it is shorter."""
        path, length = self.blocks.path, self.layout[0][1].shape[0]
        first, last = min(start, length), min(stop, length)
        try:
            with open(path, "rb", buffering=0) as file:
                arrays = {
                    name: stored.rows(self.blocks, file.fileno(), first, last)
                    for name, stored in self.layout
                }
        except OSError as error:
            raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
        rest = {name: arrays.pop(name) for name in ("action", "reward", "terminal")}
        observation = {
            name.removeprefix(f"{_OBSERVATION}."): array for name, array in arrays.items()
        }
        return Episode(observation, **rest)


_LAYOUTS: dict[Layout, Layout] = {}
"""Every layout once: thousands of episodes have the same."""
