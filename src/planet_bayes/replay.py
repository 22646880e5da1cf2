"""Replay: one file per episode on disk, a bounded part of them in memory.

Episodes are plain ``.npz`` archives of arrays as they came (pixels stay uint8). Each is whole or
absent, and its sum is in the folder's ``SHA256SUMS`` (see `planet_bayes.files`).
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from planet_bayes import files
from planet_bayes.errors import ConfigError
from planet_bayes.files import DamagedError
from planet_bayes.types import Episode, SequenceBatch


def pack(episode: Episode) -> bytes:
    """Return an episode as the bytes of its file; the same episode gives the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, observation=episode.observation, action=episode.action, reward=episode.reward)
    return buffer.getvalue()


def unpack(data: bytes) -> Episode:
    """Return the episode in the bytes of a file, or raise ValueError if they hold none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays = [
                _array(archive, f"{name}.npy") for name in ("observation", "action", "reward")
            ]
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise ValueError(str(error)) from error
    observation, action, reward = arrays
    if not (
        len(observation) == len(action) == len(reward) > 0
        and (observation.ndim, action.ndim, reward.ndim) in ((2, 2, 1), (4, 2, 1))
        and observation.dtype == (np.uint8 if observation.ndim == 4 else np.float32)
        and action.dtype == reward.dtype == np.float32
    ):
        raise ValueError("its arrays are not those of an episode")
    return Episode(observation, action, reward)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive, without believing what its header says of its size."""
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed, which episodes never are")
    stream = io.BytesIO(archive.read(entry))
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"{name} has format {version}, expected (1, 0)")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = stream.read()
    if dtype.hasobject or len(rest) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} does not hold the numbers that its header says")
    array = np.frombuffer(bytearray(rest), dtype)  # not of bytes, which PyTorch may not share
    return array.reshape(shape, order="F" if in_columns else "C")


def read_episode(path: Path, digest: str | None = None) -> Episode:
    """Return the episode in a file, whose sum must be ``digest`` if that is given."""
    try:
        data = path.read_bytes()
        if digest is not None:
            files.compare(path, hashlib.sha256(data).hexdigest(), digest)
        return unpack(data)
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DamagedError(path, f"is not an episode: {error}.") from error


_WITHOUT = 4  # steps without a reward before one that counts as its coming
_OFTEN = 20.0  # times as often as by chance, at the most, is a sequence drawn for what it holds


def onsets(reward: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the steps with a reward after some steps without: where one comes about."""
    before = np.concatenate([[0], (reward != 0).cumsum()])  # how many, before each step
    step = np.arange(_WITHOUT, len(reward))
    return step[(reward[step] != 0) & (before[step] == before[step - _WITHOUT])]


def _power_sums(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums over the rows of values and of their squares, ``[2, D]``."""
    exact = np.uint16 if values.dtype == np.uint8 else np.float64  # a fourth, for many pixels
    squares = np.square(values, dtype=exact)
    return np.stack([values.sum(0, dtype=np.float64), squares.sum(0, dtype=np.float64)])


@dataclass(frozen=True)
class Moments:
    """How observations and rewards are distributed over all entries of all episodes."""

    observation_mean: torch.Tensor
    """``[D]``; of images, ``[S, S, 3]``."""
    observation_std: torch.Tensor
    """The same shape."""
    reward_std: torch.Tensor
    """A scalar."""


class Replay:
    """Episodes in a folder, numbered from 0."""

    def __init__(self, folder: Path, ram_bytes: int = 2_000_000_000) -> None:
        self.folder = folder
        self.ram_bytes = ram_bytes
        self.lengths: list[int] = []
        """Of each episode; 0 of one that was lost."""
        self._digests: list[str] = []
        self._shape: tuple[int, ...] = ()
        self._sums: NDArray[np.float64] | float = 0.0
        self._onsets: list[tuple[int, int]] = []  # episode and step
        self._cache: OrderedDict[int, Episode] = OrderedDict()
        self._cached_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        """Agent steps in all episodes, absorbing ones included."""
        return sum(length - 1 for length in self.lengths if length)

    def add(self, episode: Episode) -> None:
        """Store an episode; it is on disk before this returns."""
        path = self.path(len(self))
        digest = files.write(path, pack(episode))
        files.append(self.folder / files.SUMS, files.sum_line(digest, path.name))
        self._remember(len(self), episode)
        self._count(episode, digest)

    def replace(self, index: int, episode: Episode) -> bool:
        """Write the file of an episode anew; return whether it is what was there at first."""
        path, sums = self.path(index), files.read_sums(self.folder)
        before = sums.get(path.name)
        if before is None and path.is_file():
            before = files.file_sum(path)
        sums[path.name] = files.write(path, pack(episode))
        self._write_sums(sums)
        return before is None or before == sums[path.name]

    def damaged(self, count: int) -> dict[int, DamagedError]:
        """Return what is wrong with which of the first ``count`` episodes of the folder."""
        sums = files.read_sums(self.folder)
        found: dict[int, DamagedError] = {}
        for index in range(count):
            path = self.path(index)
            try:
                files.check(path, sums.get(path.name))
            except DamagedError as error:
                found[index] = error
        return found

    def restore(self, count: int, lost: Collection[int] = ()) -> None:
        """Take the first ``count`` episodes of the folder, but those ``lost``; delete later ones.

        Later ones were collected after the checkpoint that is being resumed: they will be
        collected again, the same.
        """
        self.lengths, self._digests, self._sums, self._onsets = [], [], 0.0, []
        sums = files.read_sums(self.folder)
        for index in range(count):
            digest = sums.get(self.path(index).name, "")
            if index in lost:
                self.lengths.append(0)
                self._digests.append(digest)
                continue
            episode = read_episode(self.path(index), digest)
            self._remember(index, episode)
            self._count(episode, digest)
        for path in self.folder.glob("*.npz"):
            if path.stem.isdigit() and int(path.stem) >= count:
                path.unlink()
        files.remove_partials(self.folder)
        self._write_sums({self.path(index).name: sum_ for index, sum_ in enumerate(self._digests)})

    def _write_sums(self, sums: dict[str, str]) -> None:
        lines = [files.sum_line(digest, name) + "\n" for name, digest in sums.items() if digest]
        files.write(self.folder / files.SUMS, "".join(lines))

    def moments(self) -> Moments:
        """Return mean and std of what is in the episodes, each entry counting once."""
        if not any(self.lengths):
            raise ConfigError("replay is empty: collect at least one episode before learning.")
        first, second = np.asarray(self._sums) / sum(self.lengths)
        var = second - np.square(first)
        # What is constant leaves a rest of rounding in the difference, in proportion to itself.
        var = np.where(var > 1e-12 * second, var, 0)
        mean, std = (
            torch.from_numpy(one[:-1].reshape(self._shape).astype(np.float32))
            for one in (first, np.sqrt(var))
        )
        return Moments(
            mean,
            std,
            torch.as_tensor(np.sqrt(var[-1]), dtype=torch.float32),
        )

    def _count(self, episode: Episode, digest: str) -> None:
        """Take the length and the sums of an episode's observations, rewards and their squares,
        and where its rewards come about."""
        self._onsets += [(len(self), step) for step in onsets(episode.reward).tolist()]
        self.lengths.append(len(episode))
        self._digests.append(digest)
        self._shape = episode.observation.shape[1:]
        flat = episode.observation.reshape(len(episode), -1)
        columns = [_power_sums(flat), _power_sums(episode.reward[:, None])]
        self._sums = self._sums + np.concatenate(columns, axis=1)

    def episode(self, index: int) -> Episode:
        """Return episode ``index``, from memory if it is there."""
        if index in self._cache:
            self._cache.move_to_end(index)
            return self._cache[index]
        episode = read_episode(self.path(index), self._digests[index])
        self._remember(index, episode)
        return episode

    def sample(
        self,
        rng: np.random.Generator,
        groups: int,
        batch: int,
        length: int,
        *,
        early: int = 0,
        weight: float = 1.0,
        onset_share: float = 0.0,
    ) -> SequenceBatch:
        """Draw ``[groups, batch, length]`` sequences: an episode at random, a start at random.

        Episodes after the ``early`` first ones are drawn ``weight`` times as often as each of
        those. Ones shorter than ``length`` are padded with zeros, which the mask leaves out.
        Where fewer than ``onset_share`` of such sequences hold the coming of a reward, some are
        replaced by ones that do.
        """
        if not any(self.lengths):
            raise ConfigError("replay is empty: collect at least one episode before learning.")
        total = groups * batch
        episodes = self._draw(rng, total, early, weight)
        starts = (rng.random(total) * self._num_starts(length)[episodes]).astype(np.int64)
        if onset_share:
            self._draw_onsets(rng, length, onset_share, episodes, starts)
        first = self.episode(int(episodes.min()))
        observation = np.zeros(
            (total, length, *first.observation.shape[1:]), first.observation.dtype
        )
        action = np.zeros((total, length, first.action.shape[1]), np.float32)
        reward = np.zeros((total, length), np.float32)
        mask = np.zeros((total, length), np.float32)
        # In the order of episodes, so that each is read from disk at most once per batch.
        for row in np.argsort(episodes, kind="stable"):
            episode = self.episode(int(episodes[row]))
            part = slice(starts[row], starts[row] + length)
            count = len(episode.reward[part])
            observation[row, :count] = episode.observation[part]
            action[row, :count] = episode.action[part]
            reward[row, :count] = episode.reward[part]
            mask[row, :count] = 1

        def grouped(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).unflatten(0, (groups, batch))

        return SequenceBatch(
            observation=grouped(observation),
            action=grouped(action),
            reward=grouped(reward),
            mask=grouped(mask),
        )

    def _draw(
        self, rng: np.random.Generator, total: int, early: int, weight: float
    ) -> NDArray[np.int64]:
        """Return the numbers of ``total`` episodes."""
        present = np.flatnonzero(self.lengths)
        count, early = len(present), int(np.searchsorted(present, early))
        if weight == 1 or not 0 < early < count:
            return present[rng.integers(count, size=total)]
        # A point on a line on which an early episode has length 1, a later one length `weight`.
        point = rng.random(total) * (early + weight * (count - early))
        late = early + np.floor((point - early) / weight)
        drawn = np.where(point < early, np.floor(point), late).astype(np.int64)
        return present[np.minimum(drawn, count - 1)]  # rounding may reach the end of the line

    def _num_starts(self, length: int) -> NDArray[np.int64]:
        """Return how many sequences each episode has."""
        return np.maximum(0, np.array(self.lengths) - length) + 1

    def _draw_onsets(
        self,
        rng: np.random.Generator,
        length: int,
        share: float,
        episodes: NDArray[np.int64],
        starts: NDArray[np.int64],
    ) -> None:
        """Replace some of the sequences, in place, by ones that hold the coming of a reward.

        So many that their share is ``share``, but no onset is drawn above some times as often
        as it is by chance: a few of them would be learned by heart.
        """
        if not self._onsets:
            return
        chance = min(1.0, len(self._onsets) * (length - 1) / sum(self.lengths))
        wanted = min(share, _OFTEN * chance)
        if wanted <= chance:
            return
        replaced = rng.random(len(episodes)) < (wanted - chance) / (1 - chance)
        which = rng.integers(len(self._onsets), size=len(episodes))
        before = 1 + np.floor(rng.random(len(episodes)) * (length - 1)).astype(np.int64)
        drawn = np.array(self._onsets)[which]  # [total, 2]
        latest = self._num_starts(length)[drawn[:, 0]] - 1
        episodes[:] = np.where(replaced, drawn[:, 0], episodes)
        starts[:] = np.where(replaced, np.clip(drawn[:, 1] - before, 0, latest), starts)

    def _remember(self, index: int, episode: Episode) -> None:
        self._cache[index] = episode
        self._cached_bytes += episode.num_bytes
        while self._cached_bytes > self.ram_bytes and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.num_bytes

    def path(self, index: int) -> Path:
        """Return the file of an episode."""
        return self.folder / f"{index:06d}.npz"
