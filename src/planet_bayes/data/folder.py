"""The folder of a run: every path in it, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path


def episode_file(folder: Path, number: int) -> Path:
    """Return the file of an episode in a folder of episodes."""
    return folder / f"{number:06d}.npz"


def weights_file(folder: Path) -> Path:
    """Return the file with the sum of the weights that played the episodes in a folder."""
    return folder / "weights.sha256"


def labels(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: its own, or the parts in which their paths differ."""
    parts = [path.resolve().parts for path in folders]
    names = [part[-1] for part in parts]
    if len(set(names)) < len(names):
        first = _count_alike(parts)
        last = _count_alike([part[first:][::-1] for part in parts])
        names = ["/".join(part[first : len(part) - last]) for part in parts]
    if len(set(names)) < len(names):
        names = [f"{part[-1]} ({number})" for number, part in enumerate(parts, 1)]
    return names


def _count_alike(parts: Sequence[Sequence[str]]) -> int:
    """Return how many parts at the beginning are the same in all."""
    return len(list(takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False))))


@dataclass(frozen=True)
class RunFolder:
    """Names of the files and folders of a run."""

    path: Path

    @property
    def holds_run(self) -> bool:
        """Whether a run has begun in it."""
        return self.config.exists() or self.checkpoints.exists()

    @property
    def config(self) -> Path:
        """The settings."""
        return self.path / "config.json"

    @property
    def commits(self) -> Path:
        """The commits that it was made from."""
        return self.path / "commits.json"

    @property
    def log(self) -> Path:
        """Where the episodes of an offline run came from."""
        return self.path / "log.json"

    @property
    def checkpoints(self) -> Path:
        """One folder for each checkpoint."""
        return self.path / "checkpoints"

    @property
    def episodes(self) -> Path:
        """The replay: one file for each episode."""
        return self.path / "episodes"

    @property
    def held_out(self) -> Path:
        """The noise-free episodes of the newest evaluation. The model never learns from them."""
        return self.path / "held-out"

    @property
    def metrics(self) -> Path:
        """One line of JSON for each iteration."""
        return self.path / "metrics.jsonl"

    @property
    def table(self) -> Path:
        """The same as CSV."""
        return self.path / "metrics.csv"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's files."""
        return self.path / "tensorboard"

    @property
    def videos(self) -> Path:
        """Films of episodes."""
        return self.path / "videos"

    @property
    def evaluation(self) -> Path:
        """The result of `planet-bayes evaluate`."""
        return self.path / "evaluation.json"

    @property
    def evaluation_video(self) -> Path:
        """The film of `planet-bayes evaluate`."""
        return self.path / "evaluation.mp4"

    @property
    def confidence(self) -> Path:
        """The calibration of `planet-bayes calibrate`."""
        return self.path / "confidence.json"

    @property
    def confidence_figure(self) -> Path:
        """Its figure."""
        return self.path / "confidence.png"

    @property
    def requests_figure(self) -> Path:
        """The figure of `planet-bayes suggest`."""
        return self.path / "requests.png"

    @property
    def prediction_figure(self) -> Path:
        """The figure of `planet-bayes predict`."""
        return self.path / "prediction.png"

    @property
    def prediction_video(self) -> Path:
        """Its film."""
        return self.path / "prediction.mp4"

    @property
    def traversal_figure(self) -> Path:
        """The figure of `planet-bayes predict --traversal`."""
        return self.path / "traversal.png"

    @property
    def explanation(self) -> Path:
        """The page of `planet-bayes explain`."""
        return self.path / "explain.html"

    def episode(self, number: int) -> Path:
        """Return the file of an episode."""
        return episode_file(self.episodes, number)

    def video(self, iteration: int) -> Path:
        """Return the film of an iteration."""
        return self.videos / f"episode-{iteration:05d}.mp4"


@dataclass(frozen=True)
class CheckpointFolder:
    """Names of the files of a checkpoint."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings at that moment."""
        return self.path / "config.json"

    @property
    def signature(self) -> Path:
        """What the agent senses and how it acts. Files of version 0.1 have none."""
        return self.path / "signature.json"

    @property
    def model(self) -> Path:
        """The weights to act with."""
        return self.path / "model.safetensors"

    @property
    def optimiser(self) -> Path:
        """What learning needs besides: Adam's moments, and the learned weights if averaged."""
        return self.path / "optimiser.safetensors"

    @property
    def actor(self) -> Path:
        """Older weights that an episode still to come is collected with."""
        return self.path / "actor.safetensors"

    @property
    def progress(self) -> Path:
        """The counters."""
        return self.path / "progress.json"
