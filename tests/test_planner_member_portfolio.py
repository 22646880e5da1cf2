"""A component for each member: against a NumPy reference, and where members disagree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from planet_bayes.planner import (
    FAMILIES,
    Bounds,
    MemberPortfolio,
    Portfolio,
    cem,
    member_portfolio,
    plan,
    portfolio,
)
from planet_bayes.planner._portfolio import MIN_ELITES
from planning import DOUBLE, seeded


def make(rng: np.random.Generator, apart: int, count: int = 4) -> MemberPortfolio:
    shape = (1, count, 3, 2)
    return MemberPortfolio(
        mean=torch.tensor(rng.normal(size=shape)),
        std=torch.tensor(rng.uniform(0.2, 0.6, size=shape)),
        alive=torch.ones(1, count, dtype=torch.bool),
        value=torch.full((1, count), -torch.inf, dtype=DOUBLE),
        rival=torch.arange(count).unsqueeze(0),
        bounds=Bounds(torch.full((2,), -9.0, dtype=DOUBLE), torch.full((2,), 9.0, dtype=DOUBLE)),
        floor=torch.full((2,), 0.05, dtype=DOUBLE),
        elite_fraction=0.2,
        waiting=apart,
        warm_std=0.5,
        apart=apart,
    )


@pytest.mark.parametrize("members", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(5))
def test_apart_a_component_is_fitted_to_the_best_of_its_own_by_its_member(
    seed: int, members: int
) -> None:
    rng = np.random.default_rng(seed)
    begin = make(rng, apart=1)
    mean, std = begin.mean[0].numpy(), begin.std[0].numpy()
    actions = rng.normal(size=(60, 3, 2))
    actions[:4] = mean  # the first places are the means
    returns = rng.normal(size=(60, members))
    found = begin.refit_returns(
        torch.tensor(actions)[None],
        torch.tensor(returns)[None],
        torch.tensor(returns.mean(-1))[None],
    )
    owner = []
    for number, action in enumerate(actions):
        density = (-0.5 * ((action - mean) / std) ** 2 - np.log(std)).sum((1, 2))
        owner.append(number if number < 4 else int(density.argmax()))
    for component in range(4):
        own = [number for number in range(60) if owner[number] == component]
        value = {number: returns[number, component % members] for number in own}
        size = max(round(0.2 * len(own)), min(len(own), MIN_ELITES))
        elites = sorted(own, key=lambda number: -value[number])[:size]
        np.testing.assert_allclose(found.mean[0, component], actions[elites].mean(0))
        expected = np.maximum(actions[elites].std(0), 0.05)
        np.testing.assert_allclose(found.std[0, component], expected)
        elite_value = np.mean([value[number] for number in elites])
        assert found.value[0, component] == pytest.approx(elite_value)
    assert (found.apart, found.waiting) == (0, 0)


def test_then_it_is_a_portfolio() -> None:
    rng = np.random.default_rng(0)
    begin = make(rng, apart=0)
    fields = {field.name: getattr(begin, field.name) for field in dataclasses.fields(Portfolio)}
    actions, returns = torch.tensor(rng.normal(size=(1, 60, 3, 2))), torch.randn(1, 60, 5)
    values = returns.mean(-1).double()
    found = begin.refit_returns(actions, returns.double(), values)
    expected = Portfolio(**fields).refit_values(actions, values)
    for name in fields:
        left, right = getattr(found, name), getattr(expected, name)
        assert torch.equal(left, right) if isinstance(left, Tensor) else left == right


def test_a_dead_member_is_replaced_by_all() -> None:
    rng = np.random.default_rng(1)
    begin = make(rng, apart=2)
    actions = torch.tensor(rng.normal(size=(1, 60, 3, 2)))
    returns = torch.tensor(rng.normal(size=(1, 60, 4)))
    values = returns[..., 1:].mean(-1)
    dead = returns.clone()
    dead[..., 0] = torch.nan
    replaced = torch.cat([values.unsqueeze(-1), returns[..., 1:]], -1)
    found = begin.refit_returns(actions, dead, values)
    expected = begin.refit_returns(actions, replaced, values)
    assert torch.equal(found.mean, expected.mean)
    assert torch.isfinite(found.value).all()


@pytest.mark.parametrize(("iterations", "apart"), [(1, 0), (2, 1), (5, 3), (10, 6)])
def test_the_last_iteration_is_joint(iterations: int, apart: int) -> None:
    config = member_portfolio(num_iterations=iterations)
    bounds = Bounds.symmetric(2)
    begin: Any = FAMILIES["member_portfolio"].start(bounds, config, seeded(0), None, 1)
    assert begin.apart == apart
    assert begin.waiting >= apart
    again: Any = FAMILIES["member_portfolio"].start(bounds, config, seeded(0), begin, 1)
    assert isinstance(again, MemberPortfolio)
    assert again.apart == apart


@dataclass
class Disagreeing:
    """A point on a line between two goals; half of the members know of each."""

    num_particles: int = 4

    def imagine(self, state: None, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards ``[B, N, P, H]``: 1 at a member's goal, at 1 or -1."""
        path = 0.2 * actions.cumsum(2)[..., 0]  # [B, N, H]
        goals = torch.tensor([1.0, 1.0, -1.0, -1.0]).view(1, 1, 4, 1)
        return (1 - (path.unsqueeze(2) - goals).abs()).clamp(min=0)


def test_the_plans_of_members_that_disagree_stay_alive() -> None:
    """By the mean of members both goals are equally good, and none is worth more than a half."""
    both = {}
    for name, config in {
        "cem": cem(horizon=8, num_trajectories=800),
        "portfolio": portfolio(horizon=8, num_trajectories=800),
        "member_portfolio": member_portfolio(horizon=8, num_trajectories=800, num_components=4),
    }.items():
        result = plan(Disagreeing(), None, Bounds.symmetric(1), config, seeded(3), batch_size=40)
        ends = result.proposal.modes().sum((-2, -1))  # [B, M]
        alive = result.proposal.components().weight > 0.05
        held = (alive & (ends > 1)).any(-1) & (alive & (ends < -1)).any(-1)
        both[name] = held.float().mean().item()
    assert both["cem"] == 0
    assert both["member_portfolio"] > 0.95
    assert both["member_portfolio"] >= both["portfolio"]
