"""What the planner's ways of spending less time cost, where the truth is known and cheap.

Each problem is controlled for a few steps, replanning with a warm start, and then by the last
plan to its end. The mean return is put on a scale on which zero actions are 0 and the full
setting is 1; beside it stands how many trajectories were imagined, as a share of the full
setting's, and the worst single problem. Settings share the seed of a problem.

Run:  python benchmarks/planner_quality.py
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor

from planet_bayes.planner import METHODS, Bounds, PlannerConfig, Proposal, plan

NUM_ACTIONS = 2


@dataclass(frozen=True)
class Options:
    """What is measured."""

    method: Literal["cem", "mppi", "proportional_cem", "cma_es", "paets"] = "paets"
    """The planner's method."""
    problems: int = 64
    """Problems of each kind."""
    steps: int = 3
    """Plans made in each problem, all but the first with a warm start."""
    horizon: int = 12
    """Steps that are planned ahead."""
    candidates: int = 200
    """Candidates in each iteration of the full setting."""
    iterations: int = 10
    """Iterations of the full setting."""
    initial_std: float = 0.5
    """Std of the proposal at the start of each plan, in units of half the action range."""
    min_std: float = 0.05
    """Floor of the refitted std, in the same units."""
    seed: int = 0
    """Root of the random streams."""


class System(Protocol):
    """A planning problem: the planner's model, which is the truth here."""

    def start(self) -> Tensor:
        """Return the first state, ``[1, S]``."""
        ...

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the next state ``[..., S]``."""
        ...

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[1, N, H, A]`` to rewards ``[1, N, 1, H]``."""
        ...


@dataclass(frozen=True)
class Linear:
    """A linear system that is to be brought to rest, and never is on its own: -|x|² - |u|² / 10."""

    first: Tensor
    """``[1, S]``."""
    drift: Tensor
    """``[S, S]``, transposed."""
    push: Tensor
    """``[A, S]``."""

    @staticmethod
    def random(generator: Generator, size: int = 4) -> System:
        """Return a system that turns without loss, at a distance of 2 from rest."""
        rates = 0.3 * torch.randn(size, size, generator=generator)
        push = 0.4 * torch.randn(NUM_ACTIONS, size, generator=generator)
        first = torch.randn(1, size, generator=generator)
        return Linear(2 * first / first.norm(), torch.linalg.matrix_exp(rates - rates.T), push)

    def start(self) -> Tensor:
        """Return the first state, ``[1, S]``."""
        return self.first

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the next state ``[..., S]``."""
        return state @ self.drift + action @ self.push

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[1, N, H, A]`` to rewards ``[1, N, 1, H]``."""
        state = state.unsqueeze(1)
        rewards = []
        for action in actions.unbind(2):
            state = self.step(state, action)
            rewards.append(-state.square().sum(-1) - 0.1 * action.square().sum(-1))
        return torch.stack(rewards, -1).unsqueeze(2)


@dataclass(frozen=True)
class TwoPeaks:
    """A point on a plane between two hills of different height, the lower one nearer."""

    peaks: Tensor
    """``[2, 2]``."""
    heights: Tensor
    """``[2]``."""

    @staticmethod
    def random(generator: Generator) -> System:
        """Return hills on opposite sides, in a random direction."""
        angle = 2 * math.pi * torch.rand((), generator=generator)
        side = torch.stack([angle.cos(), angle.sin()])
        lower = 0.6 + 0.3 * torch.rand((), generator=generator)
        return TwoPeaks(
            torch.stack([1.1 * side, -0.9 * side]), torch.stack([torch.ones(()), lower])
        )

    def start(self) -> Tensor:
        """Return the first state, ``[1, S]``."""
        return torch.zeros(1, 2)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the next state ``[..., S]``."""
        return state + 0.2 * action

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[1, N, H, A]`` to rewards ``[1, N, 1, H]``."""
        state = state[:, None, None] + 0.2 * actions.cumsum(2)  # [1, N, H, 2]
        distance = (state.unsqueeze(-2) - self.peaks).square().sum(-1)  # [1, N, H, 2]
        height = (self.heights * torch.exp(-distance / (2 * 0.4**2))).sum(-1)
        return (height - 0.02 * actions.square().sum(-1)).unsqueeze(2)


KINDS: dict[str, Callable[[Generator], System]] = {
    "linear system, quadratic reward": Linear.random,
    "two peaks": TwoPeaks.random,
}


@dataclass(frozen=True)
class Outcome:
    """What controlling one problem came to."""

    gain: float
    """Return above that of zero actions."""
    imagined: int
    """Trajectories."""
    iterations: float
    """Iterations in a plan, on average."""


@dataclass
class Counted:
    """A model that counts the trajectories it is asked for."""

    system: System
    calls: int = 0
    trajectories: int = 0

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Pass on to the system."""
        self.calls += 1
        self.trajectories += actions.shape[1]
        return self.system.imagine(state, actions, generator)


def control(system: System, config: PlannerConfig, steps: int, seed: int) -> Outcome:
    """Act by the first ``steps - 1`` plans, then by all of the last one."""
    model, generator = Counted(system), Generator().manual_seed(seed)
    bounds, state = Bounds.symmetric(NUM_ACTIONS), system.start()
    previous: Proposal | None = None
    actions: list[Tensor] = []
    for _ in range(steps):
        result = plan(model, state, bounds, config, generator, previous=previous)
        state, previous = system.step(state, result.action), result.proposal
        actions.append(result.action)
    assert previous is not None
    components = previous.components()
    best = components.mean[0, int(components.weight[0].argmax())]  # [H, A]
    taken = torch.cat([*actions[:-1], best.clamp(bounds.low, bounds.high)])
    both = torch.stack([taken, torch.zeros_like(taken)]).unsqueeze(0)  # [1, 2, T, A]
    returns = system.imagine(system.start(), both, generator).sum((-1, -2))[0]
    return Outcome(float(returns[0] - returns[1]), model.trajectories, model.calls / steps)


def settings(options: Options) -> dict[str, PlannerConfig]:
    """Return the settings to compare; the first is the full one."""
    full = METHODS[options.method](
        horizon=options.horizon,
        num_trajectories=options.candidates,
        num_iterations=options.iterations,
        initial_std=options.initial_std,
        min_std=options.min_std,
        execute="mean",
    )
    changes: dict[str, dict[str, Any]] = {
        "full": {},
        "candidate_decay 0.7": {"candidate_decay": 0.7},
        "5 iterations": {"num_iterations": 5},
        "3 iterations": {"num_iterations": 3},
    }
    return {name: dataclasses.replace(full, **change) for name, change in changes.items()}


def ratio(ours: list[float], full: list[float]) -> tuple[float, float]:
    """Return the ratio of two means over the same problems, and its standard error."""
    share = sum(ours) / sum(full)
    residuals = [mine - share * theirs for mine, theirs in zip(ours, full, strict=True)]
    error = statistics.stdev(residuals) / math.sqrt(len(full)) / statistics.mean(full)
    return share, error


def measure(kind: str, options: Options) -> Table:
    """Return the table of one kind of problem."""
    generator = Generator().manual_seed(options.seed)
    systems = [KINDS[kind](generator) for _ in range(options.problems)]
    table = Table("setting", "imagined", "iterations", "return", "± s.e.", "worst", title=kind)
    for column in table.columns[1:]:
        column.justify = "right"
    full: list[Outcome] = []
    for name, config in settings(options).items():
        outcomes = [
            control(system, config, options.steps, options.seed + number)
            for number, system in enumerate(systems)
        ]
        full = full or outcomes
        share, error = ratio([ours.gain for ours in outcomes], [best.gain for best in full])
        worst = min(ours.gain / best.gain for ours, best in zip(outcomes, full, strict=True))
        imagined = sum(ours.imagined for ours in outcomes) / sum(best.imagined for best in full)
        table.add_row(
            name,
            f"{imagined:.2f}",
            f"{statistics.mean(ours.iterations for ours in outcomes):.1f}",
            f"{share:.3f}",
            f"{error:.3f}",
            f"{worst:.2f}",
        )
    return table


def main(options: Options) -> None:
    """Measure both kinds of problem and print a table each."""
    torch.set_num_threads(1)
    console = Console()
    for kind in KINDS:
        console.print(measure(kind, options))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
