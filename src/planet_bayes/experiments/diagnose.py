"""How well a trained model foresees rewards: open loop, on episodes that it was not trained on.

``python -m planet_bayes.experiments.diagnose runs/NAME`` collects fresh episodes with the run's
agent, filters each up to many points, and from there imagines with the actions that were really
taken. At each step ahead it prints the error of the predicted reward beside that of a constant,
and how well the predicted return so far goes with the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from planet_bayes import runs
from planet_bayes.config import at_least
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.settings import call
from planet_bayes.models import WorldModel
from planet_bayes.rng import torch_stream
from planet_bayes.training.collect import collect_episode, episode_streams
from planet_bayes.types import Belief, Episode


@dataclass(frozen=True)
class Options:
    """What is diagnosed."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    episodes: int = 3
    """Fresh episodes."""
    horizon: int = 15
    """Steps imagined ahead."""
    exploration: float = 0.3
    """Noise on the agent's actions, as in collection."""
    every: int = 5
    """Steps between the points that are imagined from."""


@dataclass(frozen=True)
class Foresight:
    """Predicted and real rewards, ``[points, H]``; predictions are the members' mean."""

    predicted: NDArray[np.float64]
    real: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    """Std over members of the predicted return up to each step, ``[points, H]``."""

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
    model: WorldModel, episode: Episode, horizon: int, every: int, generator: torch.Generator
) -> Foresight:
    """Imagine from every few steps of an episode, as the agent does, with the actions taken."""
    observation = torch.from_numpy(episode.observation)[None]
    action = torch.from_numpy(episode.action)[None, :].expand(model.members, 1, -1, -1)
    inputs = model.prepare(observation, generator)
    embed = model.encode(inputs).expand(model.members, 1, -1, -1)
    steps = embed.shape[2]
    noise = model.belief_noise((steps, model.members, 1, model.config.stoch), generator)
    seen = model.observe(embed, action, noise)
    points = torch.arange(0, steps - horizon, every)
    start = Belief(seen.deter[:, 0, points], seen.stoch[:, 0, points])
    ahead = points[:, None] + 1 + torch.arange(horizon)  # [points, H]
    taken = torch.from_numpy(episode.action)[ahead]  # [points, H, A]
    rewards = model.imagine(start, taken[:, None], generator)[:, 0].double()  # [points, P, H]
    real = torch.from_numpy(episode.reward)[ahead].double()
    spread = rewards.cumsum(-1).std(1, correction=0)
    return Foresight(rewards.mean(1).numpy(), real.numpy(), spread.numpy())


def diagnose(options: Options) -> Foresight:
    """Collect fresh episodes and return what the run's model foresaw of them."""
    at_least(options, "", 1, "episodes", "horizon", "every")
    run = runs.load_run(options.run, device="cpu")
    config = run.config
    torch.set_num_threads(config.threads or 1)
    env = run.make_env()
    found = []
    try:
        for number in range(options.episodes):
            seed, generator, rng = episode_streams(config.seed, "diagnose", number, "cpu")
            episode = collect_episode(env, run.agent, seed, generator, rng, options.exploration, 0)
            if len(episode) <= options.horizon:
                raise ConfigError(
                    f"an episode of {len(episode) - 1} steps is shorter than the horizon, "
                    f"{options.horizon}."
                )
            stream = torch_stream(config.seed, "diagnose-model", number)
            found.append(foresee(run.agent.model, episode, options.horizon, options.every, stream))
    finally:
        env.close()
    return join(found)


def join(found: list[Foresight]) -> Foresight:
    """Return what was foreseen of several episodes as one."""
    return Foresight(
        np.concatenate([one.predicted for one in found]),
        np.concatenate([one.real for one in found]),
        np.concatenate([one.disagreement for one in found]),
    )


def main(options: Options) -> None:
    """Print the table."""
    found = diagnose(options)
    table = Table(
        *("step ahead", "error of reward", "of a constant", "correlation of returns"),
        "members' disagreement",
        box=None,
    )
    error, correlation = found.error(), found.correlation()
    constant, spread = found.real.std(0), found.disagreement.mean(0)
    for step in range(options.horizon):
        table.add_row(
            str(step + 1),
            f"{error[step]:.3f}",
            f"{constant[step]:.3f}",
            f"{correlation[step]:.2f}",
            f"{spread[step]:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    call(lambda words: main(tyro.cli(Options, args=words)))
