"""Replay: one file per episode on disk, a bounded part of them in memory.

Episodes are plain ``.npz`` archives of arrays as they came (pixels stay uint8), written to
a temporary name and renamed, and read with pickling off.
"""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from planet_bayes.errors import ConfigError, RunError
from planet_bayes.types import Episode, SequenceBatch


def read_episode(path: Path) -> Episode:
    """Return the episode in a file of a replay."""
    try:
        # Opened here, not by NumPy, which leaves a damaged archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return Episode(arrays["observation"], arrays["action"], arrays["reward"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(
            f"episode file {path} is missing or damaged ({error}); the run cannot go on "
            "exactly without it. Restore the file or start a new run."
        ) from error


@dataclass(frozen=True)
class Moments:
    """How sensors and rewards are distributed over all entries of all episodes."""

    observation_mean: torch.Tensor
    """``[D]``; of images, ``[0]``."""
    observation_std: torch.Tensor
    """``[D]``; of images, ``[0]``."""
    reward_std: torch.Tensor
    """A scalar."""


class Replay:
    """Episodes in a folder, numbered from 0 without gaps."""

    def __init__(self, folder: Path, ram_bytes: int = 2_000_000_000) -> None:
        self.folder = folder
        self.ram_bytes = ram_bytes
        self.lengths: list[int] = []
        self._sums: list[NDArray[np.float64]] = []
        self._cache: OrderedDict[int, Episode] = OrderedDict()
        self._cached_bytes = 0
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        """Agent steps in all episodes, absorbing ones included."""
        return sum(self.lengths) - len(self.lengths)

    def add(self, episode: Episode) -> None:
        """Store an episode; it is on disk before this returns."""
        path = self._path(len(self))
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.savez(
                file,
                observation=episode.observation,
                action=episode.action,
                reward=episode.reward,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        self._remember(len(self), episode)
        self._count(episode)

    def restore(self, count: int) -> None:
        """Take the first ``count`` episodes of the folder as contents; delete any later ones.

        Later ones were collected after the checkpoint that is being resumed: they will be
        collected again, the same.
        """
        self.lengths, self._sums = [], []
        for index in range(count):
            self._count(self.episode(index))
        for path in self.folder.glob("*.npz"):
            if path.stem.isdigit() and int(path.stem) >= count:
                path.unlink()

    def moments(self) -> Moments:
        """Return mean and std of what is in the episodes, each entry counting once."""
        total = sum(self.lengths)
        first, second = np.sum(self._sums, axis=0) / total
        var = second - np.square(first)
        # What is constant leaves a rest of rounding in the difference, in proportion to itself.
        std = np.sqrt(np.where(var > 1e-12 * second, var, 0))
        mean, spread = (torch.from_numpy(part.astype(np.float32)) for part in (first, std))
        return Moments(mean[:-1], spread[:-1], spread[-1])

    def _count(self, episode: Episode) -> None:
        """Take the length and the sums of an episode's sensors, rewards and their squares."""
        self.lengths.append(len(episode))
        values = episode.reward[:, None].astype(np.float64)
        if episode.observation.dtype != np.uint8:
            values = np.concatenate([episode.observation, values], axis=1, dtype=np.float64)
        self._sums.append(np.stack([values.sum(0), np.square(values).sum(0)]))

    def episode(self, index: int) -> Episode:
        """Return episode ``index``, from memory if it is there."""
        if index in self._cache:
            self._cache.move_to_end(index)
            return self._cache[index]
        episode = read_episode(self._path(index))
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
    ) -> SequenceBatch:
        """Draw ``[groups, batch, length]`` sequences: an episode at random, a start at random.

        Episodes after the ``early`` first ones are drawn ``weight`` times as often as each of
        those. Ones shorter than ``length`` are padded with zeros, which the mask leaves out.
        """
        if not self.lengths:
            raise ConfigError("replay is empty: collect at least one episode before learning.")
        total = groups * batch
        first = self.episode(0)
        observation = np.zeros(
            (total, length, *first.observation.shape[1:]), first.observation.dtype
        )
        action = np.zeros((total, length, first.action.shape[1]), np.float32)
        reward = np.zeros((total, length), np.float32)
        mask = np.zeros((total, length), np.float32)
        episodes = self._draw(rng, total, early, weight)
        starts = rng.random(total)
        # In the order of episodes, so that each is read from disk at most once per batch.
        for row in np.argsort(episodes, kind="stable"):
            episode = self.episode(int(episodes[row]))
            start = int(starts[row] * (max(0, len(episode) - length) + 1))
            part = slice(start, start + length)
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
        count = len(self)
        if weight == 1 or not 0 < early < count:
            return rng.integers(count, size=total)
        # A point on a line on which an early episode has length 1, a later one length `weight`.
        point = rng.random(total) * (early + weight * (count - early))
        late = early + np.floor((point - early) / weight)
        drawn = np.where(point < early, np.floor(point), late).astype(np.int64)
        return np.minimum(drawn, count - 1)  # rounding may reach the end of the line

    def _remember(self, index: int, episode: Episode) -> None:
        self._cache[index] = episode
        self._cached_bytes += episode.num_bytes
        while self._cached_bytes > self.ram_bytes and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.num_bytes

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:06d}.npz"
