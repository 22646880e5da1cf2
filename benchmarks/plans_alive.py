"""How many good plans a planner keeps, and what that costs: problems with known answers.

A point moves on a plane or in six dimensions; the model is the truth. Every method imagines the
same number of trajectories. For each problem the table has:

- both: share of seeds whose first plan holds both of two equally good plans. A plan is held if a
  component with a weight above 0.05 leads there and its mean's return is within 5 % of the best.
- distinct: mean of `Diagnostics.distinct_plans` of the first plan, which knows no answers.
- return: of the closed loop, with the difference to `cem` on the same seeds and its 95 % interval.

In "route closes" the way that the agent has begun to follow is blocked after two steps. The lost
return is that of the same method without the block, minus that with it.

In "members disagree" one way around the obstacle is closed. Of four members of the model two know
which one, and two believe the opposite. After two steps all know the truth. "both" is counted
before that, over components with a weight above 0.05. In "members agree" all know it at once.

Run:  python benchmarks/plans_alive.py                 # minutes
      python benchmarks/plans_alive.py --only portfolio paets --seeds 20
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor

from planet_bayes.planner import (
    Bounds,
    PlannerConfig,
    PlanResult,
    Proposal,
    cem,
    cma_es,
    member_portfolio,
    mppi,
    paets,
    plan,
    portfolio,
)


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seeds: int = 50
    """Problems of each kind, each with its own random numbers."""
    first_seed: int = 2000
    """Number of the first seed."""
    candidates: int = 200
    """Candidates in each iteration."""
    iterations: int = 10
    """Iterations of a plan."""
    horizon: int = 12
    """Steps that are planned ahead."""
    steps: int = 8
    """Control steps of the closed loop; 20 around the obstacle."""
    only: tuple[str, ...] = ()
    """Methods to compare with cem; empty: all."""


NUM_MEMBERS = 4
"""Members of the model where they disagree."""
OBSTACLE_STEPS = 20
"""Control steps around the obstacle."""


class Problem(Protocol):
    """Several planning problems at once: the planner's model, which is the truth here."""

    @property
    def num_actions(self) -> int:
        """Entries of an action."""
        ...

    def start(self) -> Tensor:
        """Return the first states, ``[B, S]``."""
        ...

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the next states ``[B, S]``."""
        ...

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[B, N, H, A]`` to rewards ``[B, N, 1, H]``."""
        ...

    def way(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return which way plans ``[B, M, H, A]`` lead, ``[B, M]``: 1, -1, or 0 if there is one."""
        ...


@dataclass
class Obstacle:
    """A goal behind a round obstacle: two ways around it, each the mirror image of the other."""

    batch: int
    closed: Tensor | None = None
    """The side that is closed, ``[B]``: 1 or -1."""
    num_actions: int = 2
    speed: float = 0.3

    def start(self) -> Tensor:
        """Return the origin."""
        return torch.zeros(self.batch, 2)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Move by the action."""
        return state + self.speed * action

    def _path(self, state: Tensor, actions: Tensor) -> Tensor:
        return state[:, None, None] + self.speed * actions.cumsum(2)  # [B, N, H, 2]

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Reward is 0 at the start and 1 at the goal; inside obstacle and wall it is lower."""
        path = self._path(state, actions)
        x, y = path.unbind(-1)
        reward = 1 - torch.hypot(x - 3, y) / 3
        reward = reward - 2 * (1 - torch.hypot(x - 1.5, y) / 0.7).clamp(min=0)
        if self.closed is not None:
            behind = y * self.closed.view(-1, 1, 1)
            depth = (0.4 - (x - 1.5).abs()).clamp(min=0) / 0.4
            reward = reward - 2 * depth * ((behind > 0) & (behind < 2.5))
        return reward.unsqueeze(2)

    def way(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return the side on which a plan passes the obstacle."""
        x, y = self._path(state, plans).unbind(-1)
        return torch.sign((y * torch.exp(-(((x - 1.5) / 0.3) ** 2))).sum(-1))


@dataclass
class Members:
    """Members of a model that believe different ways around the obstacle to be closed."""

    believed: Tensor
    """The side that each member believes to be closed, ``[B, P]``."""

    @property
    def num_particles(self) -> int:
        """P."""
        return self.believed.shape[1]

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[B, N, H, A]`` to rewards ``[B, N, P, H]``."""
        worlds = [Obstacle(len(self.believed), closed) for closed in self.believed.unbind(1)]
        return torch.cat([world.imagine(state, actions, generator) for world in worlds], 2)


@dataclass
class Goals:
    """One goal, or two on opposite sides of the start, in a random direction at distance 2."""

    goal: Tensor
    """``[B, A]``."""
    two: bool
    speed: float = 0.25

    @staticmethod
    def random(batch: int, dims: int, two: bool, generator: Generator) -> Goals:
        """Return problems with goals in random directions."""
        goal = torch.randn(batch, dims, generator=generator)
        return Goals(2 * goal / goal.norm(dim=-1, keepdim=True), two)

    @property
    def num_actions(self) -> int:
        """Entries of an action."""
        return self.goal.shape[-1]

    def start(self) -> Tensor:
        """Return the origin."""
        return torch.zeros_like(self.goal)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Move by the action."""
        return state + self.speed * action

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Reward is 0 at the start and 1 at a goal."""
        path = state[:, None, None] + self.speed * actions.cumsum(2)
        goal = self.goal[:, None, None]
        distance = (path - goal).norm(dim=-1)
        if self.two:
            distance = torch.minimum(distance, (path + goal).norm(dim=-1))
        return 1 - distance.unsqueeze(2) / 2

    def way(self, state: Tensor, plans: Tensor) -> Tensor:
        """Return the goal that a plan ends nearer to."""
        end = state[:, None] + self.speed * plans.sum(2)
        return torch.sign((end * self.goal[:, None]).sum(-1)) * float(self.two)


@dataclass
class Linear:
    """A linear system that turns without loss is brought to rest: -|x|² - |u|² / 10."""

    first: Tensor
    drift: Tensor
    push: Tensor
    num_actions: int = 2

    @staticmethod
    def random(batch: int, generator: Generator, size: int = 4) -> Linear:
        """Return systems at a distance of 2 from rest."""
        rates = 0.3 * torch.randn(batch, size, size, generator=generator)
        push = 0.4 * torch.randn(batch, 2, size, generator=generator)
        first = torch.randn(batch, size, generator=generator)
        drift = torch.linalg.matrix_exp(rates - rates.transpose(1, 2))
        return Linear(2 * first / first.norm(dim=-1, keepdim=True), drift, push)

    def start(self) -> Tensor:
        """Return the first states."""
        return self.first

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the next states."""
        return (state[:, None] @ self.drift + action[:, None] @ self.push)[:, 0]

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[B, N, H, A]`` to rewards ``[B, N, 1, H]``."""
        states, rewards = state[:, None].expand(-1, actions.shape[1], -1), []
        for action in actions.unbind(2):
            states = states @ self.drift + action @ self.push
            rewards.append(-states.square().sum(-1) - 0.1 * action.square().sum(-1))
        return torch.stack(rewards, -1).unsqueeze(2)

    def way(self, state: Tensor, plans: Tensor) -> Tensor:
        """There is one way."""
        return plans.new_zeros(plans.shape[:2])


KINDS: dict[str, Callable[[int, Generator], Problem]] = {
    "obstacle, 12 × 2": lambda batch, generator: Obstacle(batch),
    "two goals, 12 × 2": lambda batch, generator: Goals.random(batch, 2, True, generator),
    "two goals, 12 × 6": lambda batch, generator: Goals.random(batch, 6, True, generator),
    "one goal, 12 × 6": lambda batch, generator: Goals.random(batch, 6, False, generator),
    "linear system, 12 × 2": Linear.random,
}


def methods(options: Options) -> dict[str, PlannerConfig]:
    """Return the methods by name; the first is the one that others are compared with."""
    base = {
        "horizon": options.horizon,
        "num_trajectories": options.candidates,
        "num_iterations": options.iterations,
        "execute": "mean",
    }
    found = {
        "cem": cem(**base),
        "cem, std 1": cem(initial_std=1.0, **base),
        "official PlaNet": cem(initial_std=1.0, warm_start=False, **base),
        "mppi": mppi(temperature=0.3, **base),
        "cma_es": cma_es(**base),
        "paets": paets(**base),
        "paets, std 1": paets(initial_std=1.0, **base),
        "portfolio": portfolio(**base),
        "portfolio, M = 1": portfolio(num_components=1, **base),
        "member_portfolio": member_portfolio(num_components=4, **base),
    }
    if options.only:
        found = {
            name: config
            for name, config in found.items()
            if name == "cem" or name.split(",")[0] in options.only
        }
    return found


def holds_both(problem: Problem, state: Tensor, result: PlanResult) -> Tensor:
    """Return whether a plan holds both ways, ``[B]``."""
    components, values = result.proposal.components(), result.diagnostics.mode_values
    best = values.amax(-1, keepdim=True)
    held = (components.weight > 0.05) & (values >= best - 0.05 * best.abs())
    way = problem.way(state, result.proposal.modes())
    return (held & (way > 0)).any(-1) & (held & (way < 0)).any(-1)


@dataclass(frozen=True)
class Outcome:
    """What a method does on all problems of a kind; each entry is ``[B]``."""

    both: Tensor
    distinct: Tensor
    total: Tensor


def control(
    problem: Problem, config: PlannerConfig, steps: int, seed: int, closing: bool = False
) -> Outcome:
    """Control all problems of a kind for some steps; each plan begins with the last one."""
    generator, state = Generator().manual_seed(seed), problem.start()
    bounds, total = Bounds.symmetric(problem.num_actions), torch.zeros(len(state))
    previous: Proposal | None = None
    both = distinct = torch.zeros(len(state))
    for step in range(steps):
        if closing and step == 2:
            assert isinstance(problem, Obstacle)
            problem.closed = torch.where(state[:, 1] >= 0, 1.0, -1.0)
        result = plan(
            problem, state, bounds, config, generator, previous=previous, batch_size=len(state)
        )
        if step == 0:
            both = holds_both(problem, state, result).float()
            distinct = result.diagnostics.distinct_plans.float()
        total = total + problem.imagine(state, result.action[:, None, None], generator)[:, 0, 0, 0]
        state, previous = problem.step(state, result.action), result.proposal
    return Outcome(both, distinct, total)


def control_with_members(
    config: PlannerConfig, options: Options, seed: int, revealed: int
) -> Outcome:
    """Control with members that disagree until the step ``revealed``."""
    generator, batch = Generator().manual_seed(seed), options.seeds
    closed = torch.where(torch.rand(batch, generator=generator) < 0.5, 1.0, -1.0)
    order = torch.rand(batch, NUM_MEMBERS, generator=generator).argsort(-1)
    believed = torch.where(order < NUM_MEMBERS // 2, closed[:, None], -closed[:, None])
    world, bounds = Obstacle(batch, closed), Bounds.symmetric(2)
    state, previous = world.start(), None
    both = distinct = total = torch.zeros(batch)
    for step in range(OBSTACLE_STEPS):
        knows = step >= revealed
        model = Members(closed[:, None].expand_as(believed) if knows else believed)
        result = plan(model, state, bounds, config, generator, previous=previous, batch_size=batch)
        if step == max(0, revealed - 1):
            way, alive = (
                world.way(state, result.proposal.modes()),
                result.proposal.components().weight > 0.05,
            )
            both = ((alive & (way > 0)).any(-1) & (alive & (way < 0)).any(-1)).float()
            distinct = result.diagnostics.distinct_plans.float()
        total = total + world.imagine(state, result.action[:, None, None], generator)[:, 0, 0, 0]
        state, previous = world.step(state, result.action), result.proposal
    return Outcome(both, distinct, total)


def measure_members(options: Options, revealed: int) -> Table:
    """Return the table of members that disagree until a step."""
    title = "members disagree, 12 × 2" if revealed else "members agree, 12 × 2"
    table = Table("method", "both", "distinct", "return", "minus cem", title=title)
    reference = None
    for name, config in methods(options).items():
        # As many candidates as in the other problems, each imagined by all members.
        config = dataclasses.replace(config, num_trajectories=options.candidates * NUM_MEMBERS)
        found = control_with_members(config, options, options.first_seed, revealed)
        reference = found.total if reference is None else reference
        table.add_row(
            name,
            f"{found.both.mean():.2f}",
            f"{found.distinct.mean():.2f}",
            with_interval(found.total),
            with_interval(found.total - reference),
        )
    return table


def interval(values: Tensor) -> float:
    """Return half the width of the 95 % interval of a mean."""
    return 1.96 * statistics.stdev(values.tolist()) / len(values) ** 0.5


def with_interval(values: Tensor) -> str:
    """Return a mean and its 95 % interval as text."""
    return f"{values.mean():.3f} ± {interval(values):.3f}"


def measure(kind: str, options: Options) -> Table:
    """Return the table of one kind of problem."""
    obstacle = kind.startswith("obstacle")
    table = Table("method", "both", "distinct", "return", "minus cem", title=kind)
    if obstacle:
        table.add_column("lost when the route closes")
    for column in table.columns[1:]:
        column.justify = "right"
    steps = OBSTACLE_STEPS if obstacle else options.steps
    seed, reference = options.first_seed, None
    for name, config in methods(options).items():
        made = KINDS[kind](options.seeds, Generator().manual_seed(seed))
        found = control(made, config, steps, seed)
        reference = found.total if reference is None else reference
        row = [
            name,
            f"{found.both.mean():.2f}",
            f"{found.distinct.mean():.2f}",
            with_interval(found.total),
            with_interval(found.total - reference),
        ]
        if obstacle:
            closed = control(Obstacle(options.seeds), config, steps, seed, closing=True)
            row.append(with_interval(found.total - closed.total))
        table.add_row(*row)
    return table


def main(options: Options) -> None:
    """Measure all kinds of problems and print a table each."""
    torch.set_num_threads(1)
    console = Console(width=120)
    console.print(dataclasses.asdict(options))
    for kind in KINDS:
        console.print(measure(kind, options))
    console.print(measure_members(options, revealed=2), measure_members(options, revealed=0))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
