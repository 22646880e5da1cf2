"""Foresight: how well a model predicts, open loop, on episodes that it was not trained on.

An episode is filtered up to many points. From each point the model imagines the actions that were
really taken. The rewards and observations that it foresees are compared with the real ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.diagnostics.calibration import Comparison, compare, joined, sampling_share
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModalityNetwork, WorldModel
from planet_bayes.rng import torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.collect import collect_with_agent, episode_streams
from planet_bayes.types import Belief, Episode

MAX_DECODED_VALUES = 2**22
"""Numbers that are decoded at once: images of all members, points and steps take gigabytes."""


@dataclass(frozen=True)
class Foresight:
    """Predicted and real rewards and observations."""

    members: NDArray[np.float64]
    """The reward that each member predicts, ``[points, P, H]``."""
    real: NDArray[np.float64]
    """The real rewards, ``[points, H]``."""
    observations: dict[str, Comparison] = field(default_factory=dict)
    """Decoded and real observations by name, in the units in which the model is trained."""
    redrawn: NDArray[np.float64] | None = None
    """``members`` with other draws of the latent states; None: the model draws none, or not
    asked."""

    @property
    def predicted(self) -> NDArray[np.float64]:
        """The mean over members, ``[points, H]``."""
        return self.members.mean(1)

    def error(self) -> NDArray[np.float64]:
        """Return the root mean square error of the reward at each step ahead, ``[H]``."""
        return np.sqrt(np.square(self.predicted - self.real).mean(0))

    def correlation(self) -> NDArray[np.float64]:
        """Return the correlation of predicted and real returns up to each step, ``[H]``."""
        left, right = self.predicted.cumsum(1), self.real.cumsum(1)
        left, right = left - left.mean(0), right - right.mean(0)
        scale = np.sqrt(np.square(left).sum(0) * np.square(right).sum(0))
        return (left * right).sum(0) / np.maximum(scale, 1e-12)

    def quantities(self) -> dict[str, Comparison]:
        """Return the return up to each step and the observations at it, each by name."""
        returns = compare(self.members.cumsum(2), self.real.cumsum(1))
        return {"return": returns, **self.observations}

    def sampling_share(self) -> NDArray[np.float64] | None:
        """Return the share of the disagreement about returns that is drawn noise, ``[H]``."""
        if self.redrawn is None or self.members.shape[1] == 1:
            return None
        return sampling_share(self.members.cumsum(2), self.redrawn.cumsum(2))


@torch.no_grad()
def foresee(
    model: WorldModel,
    episode: Episode,
    horizon: int,
    every: int,
    generator: Generator,
    observations: bool = False,
) -> Foresight:
    """Imagine the actions that were taken, from every few steps of an episode.

    Args:
        model: The world model, on the CPU.
        episode: The episode. It must have more than ``horizon`` steps.
        horizon: Steps imagined ahead (H).
        every: Steps between the points that are imagined from.
        generator: Source of all randomness.
        observations: Decode and compare observations too.
    """
    particles = model.num_particles
    observation = {
        name: torch.from_numpy(values)[None] for name, values in episode.observation.items()
    }
    action = torch.from_numpy(episode.action)
    inputs = model.inputs(observation, generator)
    embed = model.encode(inputs).expand(particles, 1, -1, -1)  # [P, 1, T, embed]
    steps = embed.shape[2]
    noise = model.belief_noise((steps, particles, 1, model.config.stoch), generator)
    filtered = model.filter_sequences(embed, action[None].expand(particles, 1, -1, -1), noise)
    points = torch.arange(0, steps - horizon, every)
    start = Belief(filtered.deter[:, 0, points], filtered.stoch[:, 0, points])
    ahead = points[:, None] + 1 + torch.arange(horizon)  # [points, H]
    taken = action[ahead]  # [points, H, A]
    rewards = model.imagine(start, taken[:, None], generator)[:, 0].double()  # [points, P, H]
    real = torch.from_numpy(episode.reward)[ahead].double()
    compared: dict[str, Comparison] = {}
    if observations:
        features = imagined_features(model, start, taken, generator)
        compared = _compared_observations(model, features, inputs, ahead)
    return Foresight(rewards.numpy(), real.numpy(), compared)


def imagined_features(
    model: WorldModel, start: Belief, taken: Tensor, generator: Generator
) -> Tensor:
    """Return features ``[points, P, H, D + S]`` of actions ``[points, H, A]``."""
    noise = None
    if model.config.latent_noise != "mean":
        shape = (taken.shape[1], *start.stoch.shape)  # [H, P, points, S]
        noise = torch.randn(shape, generator=generator)
    return model.rollout(start, taken.transpose(0, 1), noise).permute(2, 1, 0, 3)


def _compared_observations(
    model: WorldModel, features: Tensor, inputs: Mapping[str, Tensor], ahead: Tensor
) -> dict[str, Comparison]:
    """Compare what features ``[points, P, H, F]`` decode to with inputs ``[1, T, ...]``."""
    compared = {}
    for name, module in model.senses.items():
        values = inputs[name][0]  # [T, ...]
        at_each_point = features[0, ..., 0].numel() * values[0].numel()
        parts = []
        for some in torch.arange(len(ahead)).split(max(1, MAX_DECODED_VALUES // at_each_point)):
            decoded = cast(ModalityNetwork, module).decode(features[some])
            parts.append(compare(decoded.numpy(), values[ahead[some]].numpy()))
        compared[name] = joined(parts)
    return compared


def foresee_all(
    model: WorldModel,
    episodes: Sequence[Episode],
    horizon: int,
    every: int,
    seed: int,
    name: str = "diagnose-model",
) -> Foresight:
    """Return what a model foresees of several episodes: rewards and observations.

    Args:
        model: The world model, on the CPU.
        episodes: Episodes of more than ``horizon`` steps.
        horizon: Steps imagined ahead.
        every: Steps between the points that are imagined from.
        seed: Seed of the streams of randomness, one for each episode.
        name: Their name.
    """
    draws = (model.config.belief, model.config.latent_noise) != ("mean", "mean")
    parts, redrawn = [], []
    for number, episode in enumerate(episodes):
        stream = torch_stream(seed, name, number)
        parts.append(foresee(model, episode, horizon, every, stream, observations=True))
        if draws:
            redrawn.append(foresee(model, episode, horizon, every, stream).members)
    whole = join(parts)
    again = np.concatenate(redrawn) if draws else None
    return Foresight(whole.members, whole.real, whole.observations, again)


def diagnose(
    run: Run, episodes: int = 3, horizon: int = 15, exploration: float = 0.3, every: int = 5
) -> Foresight:
    """Collect fresh episodes with a run's agent and return what its model foresees of them.

    Args:
        run: The run, on the CPU.
        episodes: Fresh episodes.
        horizon: Steps imagined ahead.
        exploration: Std of the noise added to the agent's actions.
        every: Steps between the points that are imagined from.
    """
    check_counts(episodes=episodes, horizon=horizon, every=every)
    fresh, seed = [], run.config.seed
    with contextlib.closing(run.make_env()) as env:
        for number in range(episodes):
            streams = episode_streams(seed, "diagnose", number, "cpu")
            episode = collect_with_agent(env, run.agent, streams, exploration).episode
            if len(episode) <= horizon:
                raise ConfigError(
                    f"an episode of {len(episode) - 1} steps is shorter than the horizon, "
                    f"{horizon}."
                )
            fresh.append(episode)
    return foresee_all(run.agent.model, fresh, horizon, every, seed)


def check_counts(**counts: int) -> None:
    """Refuse counts below 1."""
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")


def join(parts: Sequence[Foresight]) -> Foresight:
    """Return the foresight of several episodes as one."""
    return Foresight(
        np.concatenate([part.members for part in parts]),
        np.concatenate([part.real for part in parts]),
        {
            name: joined([part.observations[name] for part in parts])
            for name in parts[0].observations
        },
    )
