"""Spending less time on a plan: a deadline, or fewer candidates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from planet_bayes import agent as agents
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.models import Vector, WorldModel
from planet_bayes.models.imagination import Imagination
from planet_bayes.planner import (
    METHODS,
    OPTIMALITIES,
    ActionNoise,
    Bounds,
    Deadline,
    PlannerConfig,
    PlannerError,
    PlanResult,
    cem,
    paets,
    plan,
)
from planet_bayes.planner import _deadline as deadlines
from planet_bayes.planner._optimality import log_optimality
from planet_bayes.spaces import Box, Signature
from planning import (
    INF,
    NAN,
    built_in,
    seeded,
    start,
)

BOUNDS = Bounds(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 10.0]))
GOAL = torch.tensor([0.4, 7.0])


@dataclass
class Clock:
    """A clock that moves when it is told to."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(deadlines, "_clock", fake)
    return fake


@dataclass
class Tracking:
    """Reward -|a_t - goal|² in units of half the range, plus noise; keeps what it is asked."""

    noise: float = 0.0
    scale: float = 1.0
    clock: Clock | None = None
    durations: tuple[float, ...] = (1.0,)
    """Seconds that each imagination takes on the clock; the last one is repeated."""
    seen: list[Tensor] = field(default_factory=list)

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        if self.clock is not None:
            self.clock.now += self.durations[min(len(self.seen), len(self.durations) - 1)]
        self.seen.append(actions)
        distance = ((actions - GOAL) / BOUNDS.half_range).square().sum(-1).unsqueeze(2)
        rewards = -self.scale * distance
        if self.noise == 0:
            return rewards
        return rewards + self.noise * torch.randn(rewards.shape, generator=generator)

    @property
    def counts(self) -> list[int]:
        return [actions.shape[1] for actions in self.seen]


def tensors(result: PlanResult) -> list[Tensor]:
    fitted, seen = built_in(result.proposal), result.diagnostics
    parts = [result.action, fitted.mean, fitted.std, fitted.log_weights]
    return [*parts, *(x for x in vars(seen).values() if isinstance(x, Tensor))]


def same(left: PlanResult, right: PlanResult) -> bool:
    pairs = zip(tensors(left), tensors(right), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("execute", ["sample", "mean"])
@pytest.mark.parametrize("method", METHODS)
def test_by_default_the_loop_is_the_plain_one(method: str, execute: str) -> None:
    """Bit for bit, the generator's state included: sample, imagine, weigh, refit, U times."""
    config = METHODS[method](horizon=3, num_trajectories=33, num_iterations=4, execute=execute)
    model, generator = Tracking(noise=0.1), seeded(5)
    proposal = start(BOUNDS, config, generator, None, 2)
    for _ in range(4):
        noise = ActionNoise.draw((2, 33, 3, 2), BOUNDS.low, generator)
        candidates = proposal.sample(noise).clamp(BOUNDS.low, BOUNDS.high)
        returns = model.imagine(None, candidates, generator).sum(-1)
        values, optimality = returns.mean(-1), OPTIMALITIES[config.optimality]
        log_weights = log_optimality(returns, values, config, optimality)
        if method == "member_portfolio":
            proposal = proposal.refit_returns(candidates, returns, values)
        elif method == "portfolio":
            proposal = proposal.refit_values(candidates, values)
        else:
            proposal = proposal.refit(candidates, log_weights.softmax(-1))
    action = proposal.first_action(execute, generator)

    other = seeded(5)
    result = plan(Tracking(noise=0.1), None, BOUNDS, config, other, batch_size=2)
    assert torch.equal(result.action, action)
    fitted = built_in(result.proposal)
    assert torch.equal(fitted.mean, proposal.mean)
    assert torch.equal(fitted.std, proposal.std)
    assert torch.equal(fitted.log_weights, proposal.log_weights)
    assert torch.equal(other.get_state(), generator.get_state())
    assert (result.diagnostics.num_iterations, result.diagnostics.stopped_by) == (4, "iterations")


def test_without_a_budget_the_clock_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_clock", None)
    plan(Tracking(), None, BOUNDS, cem(horizon=2, num_iterations=2, num_trajectories=200), seeded())


@pytest.mark.parametrize(
    ("budget", "durations", "expected", "reason"),
    [
        (1e-9, (1.0,), 1, "deadline"),  # one in any case
        (0.5, (1.0,), 1, "deadline"),
        (1.99, (1.0,), 1, "deadline"),  # a second one would end at 2
        (2.2, (1.0,), 2, "deadline"),
        (3.9, (1.0,), 3, "deadline"),
        (5.2, (1.0,), 5, "iterations"),
        (1e9, (1.0,), 5, "iterations"),
        (4.0, (3.0, 0.1), 1, "deadline"),  # the first is all that is known
        (6.5, (3.0, 0.1), 5, "iterations"),  # a slow start is forgotten after two
        (7.5, (1.0, 3.0, 1.0), 3, "deadline"),  # a single short one does not deceive
        (5.5, (0.5, 0.5, 2.5, 1.0), 3, "deadline"),
    ],
)
def test_no_iteration_begins_that_is_not_expected_to_fit(
    clock: Clock, budget: float, durations: tuple[float, ...], expected: int, reason: str
) -> None:
    model = Tracking(clock=clock, durations=durations)
    config = paets(horizon=3, num_trajectories=30, num_iterations=5)
    begun = clock.now
    result = plan(model, None, BOUNDS, config, seeded(), time_budget=budget)
    assert len(model.seen) == expected
    assert result.diagnostics.num_iterations == expected
    assert result.diagnostics.best_return.shape == (1, expected)
    assert result.diagnostics.stopped_by == reason
    assert clock.now - begun <= max(budget, durations[0])


@pytest.mark.parametrize("execute", ["sample", "mean"])
def test_a_plan_cut_short_is_the_plan_of_fewer_iterations(clock: Clock, execute: str) -> None:
    """So the noise of the iterations that are done is what it is without a budget."""
    config = paets(horizon=3, num_trajectories=30, num_iterations=8, execute=execute)
    fewer = dataclasses.replace(config, num_iterations=3)
    model = Tracking(noise=0.1, clock=clock)
    cut = plan(model, None, BOUNDS, config, seeded(1), time_budget=3.5)
    assert same(cut, plan(Tracking(noise=0.1), None, BOUNDS, fewer, seeded(1)))
    generous = plan(model, None, BOUNDS, config, seeded(1), time_budget=1e6)
    assert same(generous, plan(Tracking(noise=0.1), None, BOUNDS, config, seeded(1)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_an_accelerator_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    waited: list[torch.device] = []

    def synchronize(device: torch.device) -> None:
        clock.now += 2  # the work that was only launched until now
        waited.append(device)

    monkeypatch.setattr(torch.accelerator, "synchronize", synchronize)
    deadline = Deadline(7.0, torch.device(device))
    assert [deadline.another() for _ in range(3)] == [True, True, device == "cpu"]
    assert waited == ([] if device == "cpu" else [torch.device(device)] * 3)
    assert deadline.stopped == (device != "cpu")


def test_what_is_left_is_a_valid_budget(clock: Clock) -> None:
    deadline = Deadline(3.0)
    clock.now += 1.25
    assert deadline.left() == 1.75
    clock.now += 9
    assert 0 < deadline.left() < 1e-6


@pytest.mark.parametrize("budget", [0.0, -1.0, INF, NAN])
def test_bad_budgets_are_refused(budget: float, tiny: Config) -> None:
    with pytest.raises(PlannerError, match="time_budget"):
        plan(Tracking(), None, BOUNDS, cem(horizon=2), seeded(), time_budget=budget)
    agent = make_agent(tiny)
    with pytest.raises(PlannerError, match="time_budget"):
        agent.act(agent.initial(), [{"sensors": np.zeros(3)}], seeded(), time_budget=budget)


def make_agent(config: Config) -> Agent:
    signature = Signature({"sensors": Vector(3)}, Box((-1.0, -1.0), (1.0, 1.0)))
    model = WorldModel(signature.observation, 2, config.model, seeded())
    return Agent(model, signature, config.planner)


def slowed(clock: Clock, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        clock.now += seconds
        return function(*args)

    return call


@pytest.mark.parametrize("times", [(None, 2.0, None), (5.0, 2.0, 3.0), (5.0, 7.0, 1e-9)])
def test_the_agent_passes_on_what_filtering_leaves(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tiny: Config, times: tuple[Any, ...]
) -> None:
    budget, filtering, expected = times
    agent, budgets = make_agent(tiny), []

    def watched(*args: Any, **options: Any) -> Any:
        budgets.append(options["time_budget"])
        return plan(*args, **options)

    monkeypatch.setattr(agent.model, "filter", slowed(clock, agent.model.filter, filtering))
    monkeypatch.setattr(Imagination, "imagine", slowed(clock, Imagination.imagine, 1.0))
    monkeypatch.setattr(agents, "plan", watched)
    view = [{"sensors": np.zeros(3)}]
    action, _, seen = agent.act(agent.initial(), view, seeded(), 0.1, time_budget=budget)
    assert budgets == [expected]
    assert np.abs(action).max() <= 1
    assert seen.num_iterations == (1 if expected == 1e-9 else tiny.planner.num_iterations)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (paets(num_trajectories=200), [200] * 6),
        (paets(num_trajectories=200, candidate_decay=0.7), [200, 140, 98, 69, 48, 34]),
        (
            cem(num_trajectories=200, candidate_decay=0.5, elite_fraction=0.25),
            [200, 100, 50, 30, 30, 30],
        ),
        (
            paets(num_trajectories=200, candidate_decay=0.5, elite_fraction=0.05),
            [200, 100, 60, 60, 60, 60],
        ),
        (
            cem(num_trajectories=200, candidate_decay=0.01, elite_fraction=0.07),
            [200, 43, 43, 43, 43, 43],
        ),
        # Fewer than the least to begin with: as they are.
        (cem(candidate_decay=0.5, num_trajectories=20), [20] * 6),
    ],
)
def test_the_model_sees_fewer_candidates(config: PlannerConfig, expected: list[int]) -> None:
    model = Tracking()
    config = dataclasses.replace(config, horizon=2, num_iterations=6)
    result = plan(model, None, BOUNDS, config, seeded())
    assert model.counts == expected
    assert result.diagnostics.weights.shape == (1, expected[-1])
    assert result.diagnostics.candidates.shape == (1, expected[-1], 2, 2)


@pytest.mark.parametrize("batch", [1, 3])
def test_candidates_that_stay_keep_their_noise(batch: int) -> None:
    """With nothing to choose between, the proposal moves little, and candidates show noise."""
    config = cem(horizon=2, num_trajectories=400, num_iterations=4, initial_std=0.1)
    plain, fewer = Tracking(scale=0.0), Tracking(scale=0.0)
    plan(plain, None, BOUNDS, config, seeded(3), batch_size=batch)
    decayed = dataclasses.replace(config, candidate_decay=0.8)
    plan(fewer, None, BOUNDS, decayed, seeded(3), batch_size=batch)
    assert fewer.counts == [400, 320, 256, 205]
    assert torch.equal(plain.seen[0], fewer.seen[0])
    assert torch.equal(plain.seen[1][:, :320], fewer.seen[1])
    for ours, theirs in zip(plain.seen[2:], fewer.seen[2:], strict=True):
        stay = ours[:, : theirs.shape[1]]
        pairs = torch.stack([stay.flatten(1), theirs.flatten(1)])
        assert all(torch.corrcoef(pairs[:, b])[0, 1] > 0.99 for b in range(batch))


@pytest.mark.parametrize("method", METHODS)
def test_decay_still_tracks_the_goal(method: str) -> None:
    """From 0.28 root mean square in units of half the range; without decay 0.005 to 0.03, and
    0.09 with proportional weights, which select little.
    """
    sharp = {"temperature": 0.1} if method == "mppi" else {}
    config = METHODS[method](
        horizon=4, num_trajectories=200, candidate_decay=0.7, execute="mean", **sharp
    )
    result = plan(Tracking(), None, BOUNDS, config, seeded(), batch_size=64)
    error = ((result.action - GOAL) / BOUNDS.half_range).square().mean().sqrt().item()
    assert error < (0.14 if method == "proportional_cem" else 0.07)


@settings(max_examples=40, deadline=None)
@given(
    method=st.sampled_from(sorted(METHODS)),
    changes=st.fixed_dictionaries(
        {
            "candidate_decay": st.floats(0.05, 1),
            "execute": st.sampled_from(["sample", "mean"]),
        }
    ),
    budget=st.none() | st.floats(1e-6, 1e-2),
    seed=st.integers(0, 2**20),
)
def test_actions_stay_in_bounds(
    method: str, changes: dict[str, Any], budget: float | None, seed: int
) -> None:
    config = METHODS[method](
        horizon=2, num_trajectories=80, num_iterations=4, initial_std=1.0, **changes
    )
    model, generator = Tracking(), seeded(seed)
    result = plan(model, None, BOUNDS, config, generator, batch_size=2, time_budget=budget)
    assert 1 <= result.diagnostics.num_iterations <= 4
    assert result.action.shape == (2, 2)
    for actions in (result.action, result.diagnostics.candidates):
        assert (actions >= BOUNDS.low).all()
        assert (actions <= BOUNDS.high).all()
