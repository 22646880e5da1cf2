"""Logs: folders of episodes that someone else has recorded, for a run that only learns from them.

A run copies its log into its own replay. It records in ``log.json`` which files of which folder
they were, with their sums: so a copy that is damaged later can be made again, if the log is still
there and the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planet_bayes.data import files
from planet_bayes.data.episode import read_episode
from planet_bayes.data.files import DamagedError
from planet_bayes.data.folder import RunFolder
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.spaces import Signature
from planet_bayes.types import Episode

MIN_STEPS = 2
"""Agent steps of the shortest episode that is accepted."""
ENVIRONMENT = "the environment"
"""Owner of the signature while a run is set up: its settings can still change."""


@dataclass(frozen=True)
class LoggedFile:
    """An episode of a log."""

    name: str
    """Name of its file in the log."""
    sha256: str
    """Checksum of its file."""


@dataclass(frozen=True)
class Log:
    """The episodes of a log, in the order of their names."""

    folder: Path
    files: tuple[LoggedFile, ...]

    def __len__(self) -> int:
        return len(self.files)

    def episode(self, index: int, signature: Signature) -> Episode:
        """Return an episode; its file must be as it was when the run began."""
        if not self.holds(index):
            raise RunError(
                f"{self.folder / self.files[index].name} has changed since the run began; bring "
                "back the file as it was, or begin a new run."
            )
        return logged_episode(self.folder / self.files[index].name, signature, ENVIRONMENT)

    def holds(self, index: int) -> bool:
        """Return whether the file of an episode is as it was when the run began."""
        if index >= len(self.files):
            return False
        file = self.files[index]
        try:
            return files.file_sum(self.folder / file.name) == file.sha256
        except OSError:
            return False

    def to_json(self) -> str:
        """Return the record as JSON text, with the whole path of the folder."""
        listed = [{"name": file.name, "sha256": file.sha256} for file in self.files]
        data = {"folder": str(self.folder.resolve()), "episodes": listed}
        return json.dumps(data, indent=2) + "\n"


def load_log(path: Path) -> Log:
    """Read the record of a log."""
    try:
        data: Any = json.loads(path.read_text())
        found = tuple(LoggedFile(str(one["name"]), str(one["sha256"])) for one in data["episodes"])
        return Log(Path(str(data["folder"])), found)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}: {error}).") from error


def logged_paths(folder: Path) -> list[Path]:
    """Return the files of a log: those of a folder, or of the episodes of a run."""
    if not folder.is_dir():
        raise ConfigError(f"the log {folder} is not a folder; name one with episodes.")
    run = RunFolder(folder)
    found = sorted((run.episodes if run.episodes.is_dir() else folder).glob("*.npz"))
    if not found:
        raise ConfigError(
            f"the log {folder} holds no episodes; name a folder of .npz files or a run."
        )
    return found


def open_log(folder: Path, signature: Signature) -> Log:
    """Read every episode of a log once, and refuse the log if one does not fit."""
    paths = logged_paths(folder)
    known = files.read_sums(paths[0].parent)
    found = []
    for path in paths:
        sha256 = logged_sum(path, known)
        logged_episode(path, signature, ENVIRONMENT)
        found.append(LoggedFile(path.name, sha256))
    return Log(paths[0].parent, tuple(found))


def logged_sum(path: Path, known: Mapping[str, str]) -> str:
    """Return the checksum of a file of a log, which must be the known one if there is one."""
    try:
        found = files.file_sum(path)
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
    files.compare(path, found, known.get(path.name, found))
    return found


def logged_episode(path: Path, signature: Signature, owner: str = "the agent") -> Episode:
    """Read an episode, with its observations in the order of the signature of ``owner``."""
    episode = read_episode(path, unnamed=next(iter(signature.observation)))
    problem = _misfit(episode, signature, owner) or _fault(episode)
    if problem:
        raise ConfigError(f"the logged episode {path} {problem}.")
    ordered = {name: episode.observation[name] for name in signature.observation}
    return Episode(ordered, episode.action, episode.reward, episode.terminal)


def _misfit(episode: Episode, signature: Signature, owner: str) -> str:
    """Return how an episode differs from the signature, or nothing."""
    if set(episode.observation) != set(signature.observation):
        hint = "; see --env.observation" if owner == ENVIRONMENT else ""
        return (
            f"has the observations {', '.join(sorted(episode.observation))}, but {owner} has "
            f"{', '.join(sorted(signature.observation))}{hint}"
        )
    for name, modality in signature.observation.items():
        array = episode.observation[name]
        if array.shape[1:] != modality.shape:
            return (
                f"has the observation {name!r} of shape {array.shape[1:]}, but that of "
                f"{owner} has {modality.shape}"
            )
        if array.dtype != modality.dtype:
            return (
                f"has the observation {name!r} of type {array.dtype}, but that of {owner} is "
                f"{modality.dtype}"
            )
    if episode.action.shape[1] != signature.action.size:
        return (
            f"has actions of size {episode.action.shape[1]}, but those of {owner} have "
            f"{signature.action.size}"
        )
    return ""


def _fault(episode: Episode) -> str:
    """Return what is wrong with the numbers of an episode, or nothing."""
    steps = len(episode) - 1
    if steps < MIN_STEPS:
        return f"has {steps} steps, and at least {MIN_STEPS} are needed"
    arrays = {**episode.observation, "action": episode.action, "reward": episode.reward}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            return f"has NaN or infinite numbers in {name!r}"
    if np.abs(episode.action).max() > 1:
        return (
            f"has an action of {episode.action.flat[np.abs(episode.action).argmax()]:g}, beyond "
            "[-1, 1]; scale the actions to the bounds of the action space"
        )
    if episode.action[0].any() or episode.reward[0]:
        return (
            "has an action or a reward at index 0; index t must hold the action that led to "
            "observation t and the reward that came with it, so both are zero at 0"
        )
    return ""
