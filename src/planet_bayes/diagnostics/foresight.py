"""Foresight: how well a model predicts rewards, open loop, on episodes that it was not trained on.

An episode is filtered up to many points. From each point the model imagines the actions that were
really taken, and its rewards are compared with the real ones.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from planet_bayes.errors import ConfigError
from planet_bayes.models import WorldModel
from planet_bayes.rng import torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.collect import collect_with_agent, episode_streams
from planet_bayes.types import Belief, Episode


@dataclass(frozen=True)
class Foresight:
    """Predicted and real rewards, ``[points, H]``; predictions are the mean over particles."""

    predicted: NDArray[np.float64]
    real: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    """Std over particles of the predicted return up to each step, ``[points, H]``."""

    def error(self) -> NDArray[np.float64]:
        """Return the root mean square error of the reward at each step ahead, ``[H]``."""
        return np.sqrt(np.square(self.predicted - self.real).mean(0))

    def correlation(self) -> NDArray[np.float64]:
        """Return the correlation of predicted and real returns up to each step, ``[H]``."""
        left, right = self.predicted.cumsum(1), self.real.cumsum(1)
        left, right = left - left.mean(0), right - right.mean(0)
        scale = np.sqrt(np.square(left).sum(0) * np.square(right).sum(0))
        return (left * right).sum(0) / np.maximum(scale, 1e-12)


@torch.no_grad()
def foresee(
    model: WorldModel, episode: Episode, horizon: int, every: int, generator: Generator
) -> Foresight:
    """Imagine the actions that were taken, from every few steps of an episode.

    Args:
        model: The world model, on the CPU.
        episode: The episode. It must have more than ``horizon`` steps.
        horizon: Steps imagined ahead (H).
        every: Steps between the points that are imagined from.
        generator: Source of all randomness.
    """
    particles = model.num_particles
    observation = {
        name: torch.from_numpy(values)[None] for name, values in episode.observation.items()
    }
    action = torch.from_numpy(episode.action)
    embed = model.encode(model.inputs(observation, generator))
    embed = embed.expand(particles, 1, -1, -1)  # [P, 1, T, embed]
    steps = embed.shape[2]
    noise = model.belief_noise((steps, particles, 1, model.config.stoch), generator)
    filtered = model.filter_sequences(embed, action[None].expand(particles, 1, -1, -1), noise)
    points = torch.arange(0, steps - horizon, every)
    start = Belief(filtered.deter[:, 0, points], filtered.stoch[:, 0, points])
    ahead = points[:, None] + 1 + torch.arange(horizon)  # [points, H]
    taken = action[ahead]  # [points, H, A]
    rewards = model.imagine(start, taken[:, None], generator)[:, 0].double()  # [points, P, H]
    real = torch.from_numpy(episode.reward)[ahead].double()
    spread = rewards.cumsum(-1).std(1, correction=0)
    return Foresight(rewards.mean(1).numpy(), real.numpy(), spread.numpy())


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
    for name, value in (("episodes", episodes), ("horizon", horizon), ("every", every)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")
    parts, seed = [], run.config.seed
    with contextlib.closing(run.make_env()) as env:
        for number in range(episodes):
            streams = episode_streams(seed, "diagnose", number, "cpu")
            episode = collect_with_agent(env, run.agent, streams, exploration).episode
            if len(episode) <= horizon:
                raise ConfigError(
                    f"an episode of {len(episode) - 1} steps is shorter than the horizon, "
                    f"{horizon}."
                )
            stream = torch_stream(seed, "diagnose-model", number)
            parts.append(foresee(run.agent.model, episode, horizon, every, stream))
    return join(parts)


def join(parts: list[Foresight]) -> Foresight:
    """Return the foresight of several episodes as one."""
    return Foresight(
        np.concatenate([part.predicted for part in parts]),
        np.concatenate([part.real for part in parts]),
        np.concatenate([part.disagreement for part in parts]),
    )
