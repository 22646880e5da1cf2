"""Open-loop prediction of the same episodes by one or several runs: the paper's figure.

From each starting point a few observations are filtered, and then the actions that were really
taken are imagined without any further observation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from planet_bayes.checks import at_least
from planet_bayes.data.folder import RunFolder
from planet_bayes.diagnostics.calibration import Comparison, compare, joined
from planet_bayes.diagnostics.foresight import MAX_DECODED_VALUES, Foresight, join
from planet_bayes.diagnostics.report import Figures, measured, plain
from planet_bayes.errors import ConfigError
from planet_bayes.models.open_loop import OpenLoop, open_loop
from planet_bayes.rng import torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.collect import collect_with_agent, episode_streams
from planet_bayes.training.offline import logged_episode
from planet_bayes.training.prediction import CONTEXT, STEPS, Prediction, predict_window
from planet_bayes.types import Episode


@dataclass(frozen=True)
class PredictionOptions:
    """What is predicted from how much."""

    context: int = CONTEXT
    """Observations that are filtered and reconstructed."""
    steps: int = STEPS
    """Steps that are then imagined open loop, with the actions that were really taken."""
    start: int = 0
    """Step of the first episode at which the context of the figure begins."""
    every: int = 5
    """Steps between the starting points of the table."""

    def __post_init__(self) -> None:
        at_least(self, "", 1, "context", "steps", "every")
        at_least(self, "", 0, "start")

    @property
    def length(self) -> int:
        """Entries of a window."""
        return self.context + self.steps


@dataclass(frozen=True)
class RunPrediction:
    """What one run's members predict."""

    name: str
    """The run's."""
    shown: Prediction
    """The window of the figure."""
    foresight: Foresight
    """All windows, imagined steps only."""

    @property
    def label(self) -> str:
        """What stands beside its rows."""
        members = self.shown.members
        return f"{self.name}, {members} member{'s' if members > 1 else ''}"

    def figures(self) -> dict[str, Figures]:
        """Return the figures of the reward, the return and each observation, by name."""
        found = self.foresight
        reward = compare(found.members, found.real)
        return {
            name: measured(one) for name, one in {"reward": reward, **found.quantities()}.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return all figures at all steps ahead. Those that are not finite are None."""
        return {
            "run": self.name,
            "members": self.shown.members,
            "points": len(self.foresight.real),
            "quantities": {
                name: {key: plain(values) for key, values in vars(found).items() if key != "auroc"}
                for name, found in self.figures().items()
            },
        }


def check_alike(runs: Sequence[Run]) -> None:
    """Refuse runs that do not all sense and act alike, which no episode fits."""
    first, *others = runs
    for run in others:
        if run.agent.signature != first.agent.signature:
            raise ConfigError(
                f"{run.path} has the signature {run.agent.signature}, but {first.path} has "
                f"{first.agent.signature}; name runs that sense and act alike."
            )


def fresh_episodes(run: Run, count: int, options: PredictionOptions) -> list[Episode]:
    """Collect episodes with a run's agent and the noise of its training."""
    if count < 1:
        raise ConfigError(f"episodes must be at least 1, got {count}.")
    made: list[Episode] = []
    with contextlib.closing(run.make_env()) as env:
        for number in range(count):
            streams = episode_streams(run.config.seed, "predict", number, "cpu")
            noise = run.config.collect.exploration
            made.append(collect_with_agent(env, run.agent, streams, noise).episode)
            check_length(made[-1], options, options.start if number == 0 else 0)
    return made


def stored_episode(run: Run, number: int, options: PredictionOptions) -> list[Episode]:
    """Read an episode that a run has learned from."""
    path = RunFolder(run.path).episode(number)
    if not path.is_file():
        raise ConfigError(f"{run.path} has no episode {number}: {path} does not exist.")
    return logged_episodes(run, path, options)


def logged_episodes(run: Run, path: Path, options: PredictionOptions) -> list[Episode]:
    """Read an episode from a file. It must fit the run's signature."""
    episode = logged_episode(path, run.agent.signature)
    check_length(episode, options, options.start)
    return [episode]


def check_length(episode: Episode, options: PredictionOptions, start: int) -> None:
    """Refuse an episode that ends before the window does."""
    if len(episode) < start + options.length:
        raise ConfigError(
            f"an episode of {len(episode)} observations is shorter than start + context + steps, "
            f"{start} + {options.context} + {options.steps}; choose smaller ones."
        )


def predict_run(
    run: Run, episodes: Sequence[Episode], options: PredictionOptions, name: str = ""
) -> RunPrediction:
    """Return what a run's members predict of episodes.

    Args:
        run: The run, on the CPU.
        episodes: The episodes. The first is that of the figure.
        options: What is predicted from how much.
        name: Of the run, in figures and tables; by default that of its folder.
    """
    model, seed, length = run.agent.model, run.config.seed, options.length
    parts = []
    for number, episode in enumerate(episodes):
        starts = range(0, len(episode) - length + 1, options.every)
        stream = torch_stream(seed, "predict-windows", number)
        found = open_loop(model, episode, starts, options.context, options.steps, stream)
        parts.append(_foresight(found))
    stream = torch_stream(seed, "predict-figure")
    starts = range(options.start, options.start + 1)
    found = open_loop(model, episodes[0], starts, options.context, options.steps, stream)
    shown = predict_window(found, episodes[0], options.start)
    return RunPrediction(name or run.path.resolve().name, shown, join(parts))


@torch.no_grad()
def _foresight(found: OpenLoop) -> Foresight:
    """Return the imagined steps of all windows, compared with the truth."""
    ahead = slice(found.context, None)
    observations: dict[str, Comparison] = {}
    for name, values in found.inputs.items():
        size = found.rewards[:, 0].numel() * values[0, 0].numel()  # of one window
        parts = []
        for some in torch.arange(len(values)).split(max(1, MAX_DECODED_VALUES // size)):
            decoded = found.decoded(name, some)[:, :, ahead].transpose(0, 1)  # [n, P, H, ...]
            parts.append(compare(decoded.numpy(), values[some, ahead].numpy()))
        observations[name] = joined(parts)
    members = found.rewards[..., ahead].transpose(0, 1)  # [N, P, H]
    real = found.real_rewards[:, ahead]
    return Foresight(np.asarray(members, np.float64), np.asarray(real, np.float64), observations)
