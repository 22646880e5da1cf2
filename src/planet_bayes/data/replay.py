"""Replay: one file per episode on disk, a bounded part of them in memory.

Each file is whole or absent, and its sum is in the folder's ``SHA256SUMS`` (see
`planet_bayes.data.files`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from planet_bayes.data import files, sampling
from planet_bayes.data.episode import EpisodeFile, open_episode, pack, read_episode
from planet_bayes.data.files import DamagedError
from planet_bayes.data.folder import episode_file
from planet_bayes.errors import ConfigError
from planet_bayes.types import Episode, Moments, SequenceBatch


class Replay:
    """Episodes in a folder, numbered from 0.

    Args:
        folder: Where the files are; it is made if it does not exist.
        ram_bytes: Memory for episodes; the rest is read from disk when it is drawn.
        unnamed: Name of the observation in files of version 0.1.
    """

    def __init__(self, folder: Path, ram_bytes: int = 2_000_000_000, unnamed: str = "") -> None:
        self.folder, self.ram_bytes, self._unnamed = folder, ram_bytes, unnamed
        self.lengths: list[int] = []
        """Entries of each episode; 0 if it was lost."""
        self._digests: list[str] = []
        self._files: list[EpisodeFile | None] = []
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._onsets: list[tuple[int, int]] = []  # episode and step
        self._arrays: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
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
        path, data = self.path(len(self)), pack(episode)
        digest = files.write(path, data)
        files.append(self.folder / files.SUMS, files.sum_line(digest, path.name))
        self._remember(len(self), episode)
        self._count(episode, digest, EpisodeFile.of(path, data))

    def replace(self, index: int, episode: Episode) -> bool:
        """Write the file of an episode anew; return whether it is the same as at first.

        Only before `restore`, which reads the files.
        """
        assert not self.lengths
        path, sums = self.path(index), files.read_sums(self.folder)
        before = sums.get(path.name)
        if before is None and path.is_file():
            before = files.file_sum(path)
        sums[path.name] = files.write(path, pack(episode))
        self._write_sums(sums)
        return before is None or before == sums[path.name]

    def damaged(self, count: int) -> dict[int, DamagedError]:
        """Return which of the first ``count`` episodes of the folder are damaged, and how."""
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
        """Load the first ``count`` episodes of the folder except ``lost``; delete later ones.

        Later ones were collected after the checkpoint that is being resumed. They will be
        collected again, the same.
        """
        self.lengths, self._digests, self._files, self._sums, self._onsets = [], [], [], {}, []
        self._arrays = None
        self._cache.clear()
        self._cached_bytes = 0
        sums = files.read_sums(self.folder)
        for index in range(count):
            self._load(sums.get(self.path(index).name, ""), index in lost)
        for path in self.folder.glob("*.npz"):
            if path.stem.isdigit() and int(path.stem) >= count:
                path.unlink()
        files.remove_partials(self.folder)
        self._write_sums({self.path(index).name: sum_ for index, sum_ in enumerate(self._digests)})

    def digests(self, first: int = 0) -> list[str | None]:
        """Return the checksums of the episodes from ``first`` on; None for one that is lost."""
        known = zip(self._digests[first:], self.lengths[first:], strict=True)
        return [digest if length else None for digest, length in known]

    def follow(self, digests: Sequence[str | None]) -> None:
        """Load the next episodes, which another process has written, by their `digests`."""
        for digest in digests:
            self._load(digest or "", lost=digest is None)

    def moments(self) -> dict[str, Moments]:
        """Return mean and std of the reward and of each observation, by name.

        Each entry of each episode counts once.
        """
        self._refuse_empty()
        found = {}
        for name, sums in self._sums.items():
            first, second = sums / sum(self.lengths)
            var = second - np.square(first)
            # Rounding leaves a rest in the difference for constants, in proportion to them.
            var = np.where(var > 1e-12 * second, var, 0)
            found[name] = Moments(
                torch.from_numpy(np.asarray(first, np.float32)),
                torch.from_numpy(np.asarray(np.sqrt(var), np.float32)),
            )
        return found

    def episode(self, index: int) -> Episode:
        """Return episode ``index``, from memory if it is there."""
        if index in self._cache:
            self._cache.move_to_end(index)
            return self._cache[index]
        episode = read_episode(self.path(index), self._digests[index], self._unnamed)
        self._remember(index, episode)
        return episode

    def part(self, index: int, start: int, length: int) -> Episode:
        """Return at most ``length`` entries of an episode, from memory if it is there."""
        file = self._files[index]
        if index not in self._cache and file is not None:
            return file.rows(start, start + length)
        return _sliced(self.episode(index), slice(start, start + length))

    def sample(
        self,
        rng: np.random.Generator,
        groups: int,
        batch: int,
        length: int,
        *,
        seed_episodes: int = 0,
        agent_weight: float = 1.0,
        onset_share: float = 0.0,
        rows: slice = slice(None),
        counts: NDArray[np.int64] | None = None,
    ) -> SequenceBatch:
        """Draw ``[groups, batch, length]`` sequences: an episode at random, a start at random.

        Args:
            rng: Source of all randomness.
            groups: Leading axis: particles that draw sequences of their own, or 1.
            batch: Sequences in each group.
            length: Steps in a sequence. Shorter episodes are padded with zeros, and masked.
            seed_episodes: How many of the first episodes are seed episodes.
            agent_weight: How many times as often each later episode is drawn.
            onset_share: Minimum fraction of sequences with a reward onset.
            rows: Sequences of each group to return. The draw does not depend on it.
            counts: How many times as often each group draws each episode, ``[groups, n]``.
        """
        self._refuse_empty()
        lengths, onsets = self._as_arrays()
        together = groups * batch if counts is None else batch
        drawn = [
            sampling.draw_sequences(
                *(rng, lengths, onsets, together, length),
                *(seed_episodes, agent_weight, onset_share, of_group),
            )
            for of_group in ([None] if counts is None else counts)
        ]
        episodes, starts = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        returned = np.arange(groups * batch).reshape(groups, batch)[:, rows]
        episodes, starts = episodes[returned.ravel()], starts[returned.ravel()]
        arrays: dict[str, NDArray[Any]] = {}
        # In the order of episodes: files of version 0.1 are read whole, at most once per batch.
        for row in np.argsort(episodes, kind="stable"):
            episode = self.part(int(episodes[row]), int(starts[row]), length)
            arrays = arrays or _empty_arrays(episode, returned.size, length)
            for name, values in _columns(episode).items():
                arrays[name][row, : len(episode)] = values
            arrays["mask"][row, : len(episode)] = 1
        tensors = {
            name: torch.from_numpy(array).unflatten(0, returned.shape)
            for name, array in arrays.items()
        }
        return SequenceBatch(
            observation={name: tensors[f"observation.{name}"] for name in episode.observation},
            action=tensors["action"],
            reward=tensors["reward"],
            terminal=tensors["terminal"],
            mask=tensors["mask"],
        )

    def _as_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return lengths ``[n]`` and onsets ``[m, 2]``, made again only after a new episode."""
        if self._arrays is None or len(self._arrays[0]) != len(self.lengths):
            onsets = np.array(self._onsets, np.int64).reshape(-1, 2)
            self._arrays = np.array(self.lengths, np.int64), onsets
        return self._arrays

    def path(self, index: int) -> Path:
        """Return the file of an episode."""
        return episode_file(self.folder, index)

    def _refuse_empty(self) -> None:
        if not any(self.lengths):
            raise ConfigError("replay is empty: collect at least one episode before learning.")

    def _write_sums(self, sums: dict[str, str]) -> None:
        lines = [files.sum_line(digest, name) + "\n" for name, digest in sums.items() if digest]
        files.write(self.folder / files.SUMS, "".join(lines))

    def _load(self, digest: str, lost: bool) -> None:
        """Read the next episode of the folder, or count it as lost."""
        if lost:
            self.lengths.append(0)
            self._digests.append(digest)
            self._files.append(None)
            return
        episode, file = open_episode(self.path(len(self)), digest, self._unnamed)
        self._remember(len(self), episode)
        self._count(episode, digest, file)

    def _count(self, episode: Episode, digest: str, file: EpisodeFile | None) -> None:
        """Add an episode to the lengths, the sums for `moments`, and the onsets."""
        self._onsets += [(len(self), step) for step in sampling.onsets(episode.reward).tolist()]
        self.lengths.append(len(episode))
        self._digests.append(digest)
        self._files.append(file)
        for name, values in {**episode.observation, "reward": episode.reward}.items():
            sums = _power_sums(values)
            self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    def _remember(self, index: int, episode: Episode) -> None:
        self._cache[index] = episode
        self._cached_bytes += episode.num_bytes
        while self._cached_bytes > self.ram_bytes and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.num_bytes


def _power_sums(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums over the entries of values and of their squares, ``[2, ...]``."""
    exact = np.uint16 if values.dtype == np.uint8 else np.float64  # a fourth of the memory
    flat = values.reshape(len(values), -1)
    squares = np.square(flat, dtype=exact)
    sums = np.stack([flat.sum(0, dtype=np.float64), squares.sum(0, dtype=np.float64)])
    return sums.reshape(2, *values.shape[1:])


def _sliced(episode: Episode, part: slice) -> Episode:
    return Episode(
        {name: value[part] for name, value in episode.observation.items()},
        episode.action[part],
        episode.reward[part],
        episode.terminal[part],
    )


def _columns(episode: Episode) -> dict[str, NDArray[Any]]:
    observation = {f"observation.{name}": value for name, value in episode.observation.items()}
    return {
        **observation,
        "action": episode.action,
        "reward": episode.reward,
        "terminal": episode.terminal,
    }


def _empty_arrays(like: Episode, total: int, length: int) -> dict[str, NDArray[Any]]:
    """Return zeros for ``total`` sequences of episodes like this one, and their mask."""
    arrays = {
        name: np.zeros(
            (total, length, *values.shape[1:]),
            np.float32 if values.dtype == np.bool_ else values.dtype,
        )
        for name, values in _columns(like).items()
    }
    return {**arrays, "mask": np.zeros((total, length), np.float32)}
