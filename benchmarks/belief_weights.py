"""The weights of an agent's particles: do they cancel, as the paper argues after Eq. 13?

    python benchmarks/belief_weights.py agents/cartpole_swingup

Every setting of ``agent.belief`` plays the same noise-free episodes. For the settings with weights,
it prints at some steps the spread (std) of the members' log weights, its two parts, and the
effective number of members, each a mean over the episodes. The mean of the ratio per step is minus
an estimate of the KL of q and p. The parts are

- ratio: log p(s | h) - log q(s | h, o), summed over the steps so far,
- likelihood: log p(o | h, s), summed over the steps so far. For the particle filter it is the log
  of the mean over a member's latents.

Weights of members that differ by much more than 1 in the log are not equal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

import planet_bayes as pb
from planet_bayes.models import Particles
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.training.collect import play

STEPS = (10, 50, 100)
"""Steps of the table, counted from 1, besides the last."""
BELIEFS = (
    ("inference", "mean"),
    ("inference", "sample"),
    ("importance", "sample"),
    ("particle_filter", "sample"),
)
"""``agent.belief`` and ``model.belief`` of each setting."""


@dataclass(frozen=True)
class Options:
    """Returns and weights of an agent with each kind of belief."""

    run: tyro.conf.Positional[Path] = Path("agents/cartpole_swingup")
    """Folder of the run or the exported agent."""
    episodes: int = 5
    """Episodes for each setting."""
    starts: int = 0
    """Number of the set of starts; 0 is the one of `planet-bayes evaluate`."""
    latent_particles: int = 64
    """Latents of each member in the particle filter."""
    observation_scale: float | None = None
    """Weight of the observations' log likelihood, in place of the one of the ELBO."""
    only: str = ""
    """Settings of ``agent.belief`` that contain this; all by default."""
    threads: int = 1
    """CPU threads."""


@dataclass
class Record:
    """What the weights of members were, step by step; each entry is ``[B, P]``."""

    ratio: list[Tensor] = field(default_factory=list)
    log_weights: list[Tensor] = field(default_factory=list)
    latents: list[Tensor] = field(default_factory=list)
    """Effective number of a member's latents, ``[B, P]``."""

    def add(self, particles: Particles) -> None:
        """Append a step."""
        log_weights = particles.log_weights.double()  # [B, P, L]
        last = self.ratio[-1] if self.ratio else 0.0
        self.ratio.append(last + particles.log_ratio.double().mean(-1))
        self.log_weights.append(log_weights.logsumexp(-1))
        self.latents.append(1 / log_weights.softmax(-1).square().sum(-1))

    def row(self, step: int) -> list[str]:
        """Return the cells of step ``step``, counted from 1."""
        total, ratio = self.log_weights[step - 1], self.ratio[step - 1]
        likelihood = total - ratio  # up to a constant of each episode
        effective = 1 / total.softmax(-1).square().sum(-1)  # [B]
        spreads = (total, ratio, likelihood)
        return [
            *(f"{part.std(-1, correction=0).mean():.2f}" for part in spreads),
            f"{effective.mean():.2f}",
            f"{self.latents[step - 1].mean():.1f}",
            f"{ratio.mean() / step:.2f}",
        ]


def main(options: Options) -> None:
    """Play with each setting and print the tables."""
    torch.set_num_threads(options.threads)
    console = Console(width=120)
    returns = Table("agent.belief", "model.belief", "mean return", "std", box=None)
    weights = Table(
        *("agent.belief", "step", "spread of log weights", "ratio", "likelihood"),
        *("effective members", "effective latents", "mean ratio per step"),
        box=None,
    )
    for belief, point in BELIEFS:
        if options.only not in belief:
            continue
        run = _changed(options, belief, point)
        record = Record()
        totals = _play(run, options, record)
        console.print(f"{belief}, {point}: {[round(total, 1) for total in totals]}")
        mean, std = statistics.mean(totals), statistics.pstdev(totals)
        returns.add_row(belief, point, f"{mean:.1f}", f"{std:.1f}")
        if record.ratio:
            length = len(record.ratio)
            for step in [*(step for step in STEPS if step < length), length]:
                weights.add_row(belief, str(step), *record.row(step))
    console.print(returns)
    console.print(weights)


def _changed(options: Options, belief: Any, point: Any) -> pb.Run:
    """Return the run with another belief."""
    config = pb.load_run(options.run).config
    agent = pb.AgentConfig(belief, options.latent_particles)
    model = dataclasses.replace(config.model, belief=point)
    loss = config.loss
    if options.observation_scale is not None:
        loss = dataclasses.replace(loss, observation_scale=options.observation_scale)
    changed = dataclasses.replace(config, agent=agent, model=model, loss=loss)
    return pb.load_run(options.run, changed=changed)


def _play(run: pb.Run, options: Options, record: Record) -> list[float]:
    """Return the returns of all episodes, played at the same time."""
    seed = run.config.seed
    seeds = [
        integer_seed(seed, "evaluate-environment", options.starts, index)
        for index in range(options.episodes)
    ]
    generator = torch_stream(seed, "evaluate-agent", options.starts, device=run.agent.device)

    def on_step(_: Any, carry: pb.Carry) -> None:
        if carry.particles is not None:
            record.add(carry.particles)

    with contextlib.ExitStack() as stack:
        envs = [stack.enter_context(contextlib.closing(run.make_env())) for _ in seeds]
        return play(list(envs), run.agent, seeds, generator, on_step=on_step)


if __name__ == "__main__":
    main(tyro.cli(Options))
