"""One Gaussian: refit, density, start and warm start."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from planet_bayes.planner import (
    METHODS,
    ActionNoise,
    Bounds,
    PlannerConfig,
    PlannerError,
    Proposal,
    cem,
    paets,
    plan,
)
from planet_bayes.planner._gaussian import normal_log_prob
from planning import (
    DOUBLE,
    Quadratic,
    Recorder,
    Table,
    built_in,
    gaussian,
    optimise,
    seeded,
    unit_gaussian,
    wide_bounds,
)


def test_one_round_of_cem_by_hand():
    """Actions 1, 5, -3, 4 with returns 1, 9, 2, 8, top two: mean 4.5, std 0.5."""
    noise = ActionNoise(
        torch.tensor([1.0, 5, -3, 4], dtype=DOUBLE).reshape(1, 4, 1, 1),
        torch.zeros(1, 4, dtype=DOUBLE),
    )
    table = Table(torch.tensor([[1.0], [9], [2], [8]]))
    config = cem(elite_fraction=0.5, min_std=0.001)
    fitted, seen = optimise(table, unit_gaussian(), [noise], wide_bounds(), config)
    assert fitted.mean.item() == 4.5
    assert fitted.std.item() == 0.5
    assert seen.effective_samples.item() == 2
    assert seen.best_return.tolist() == [[9]]
    # Clipped at ±2, before they are refitted: 2 and 2, and the floor of 0.1 x 2.
    fitted, seen = optimise(
        table, unit_gaussian(), [noise], wide_bounds(limit=2.0), replace(config, min_std=0.1)
    )
    assert seen.candidates.flatten().tolist() == [1, 2, -2, 2]
    assert fitted.mean.item() == 2
    assert fitted.std.item() == pytest.approx(0.2, rel=1e-12)


def test_entropy_weight_by_hand():
    """Equal returns, N(0, 1), κ = ½: w ∝ exp(a²/4); for a = 0, 2: 1 and e."""
    noise = ActionNoise(
        torch.tensor([0.0, 2], dtype=DOUBLE).reshape(1, 2, 1, 1), torch.zeros(1, 2, dtype=DOUBLE)
    )
    config = cem(entropy_weight=0.5)
    seen = optimise(Table(torch.ones(2, 1)), unit_gaussian(), [noise], wide_bounds(), config)[1]
    expected = [1 / (1 + math.e), math.e / (1 + math.e)]
    assert seen.weights[0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", ["cem", "mppi", "paets", "proportional_cem"])
def test_no_variance_leaves_the_floor(method):
    """All weight on one candidate: its deviation is 0 and the std is the floor, exactly."""
    table = torch.zeros(20, 1)
    table[7] = 1e6
    if method == "paets":  # with M > 1 a component's share of one candidate is one candidate
        config = paets(num_components=3, elite_fraction=0.05, min_std=0.03)
    else:
        config = METHODS[method](elite_fraction=0.05, min_std=0.03)
    config = replace(config, horizon=2, num_trajectories=20, num_iterations=1)
    bounds = Bounds(torch.tensor([-1.0, -4.0]), torch.tensor([1.0, 4.0]))
    fitted = built_in(plan(Table(table), None, bounds, config, seeded()).proposal)
    floor = torch.tensor([0.03, 0.12]).expand_as(fitted.std)
    torch.testing.assert_close(fitted.std, floor)


@pytest.mark.parametrize("std", [0.05, 0.001])
def test_single_precision_log_density_is_accurate(std):
    """At the default floor of the std and at a fine one: 0.02 nats are 2 % of a weight."""
    generator = seeded()
    mean = 2 * torch.rand(1, 5, 12, 6, generator=generator) - 1
    noise = torch.randn(1, 50, 12, 6, generator=generator)
    actions = mean[:, :1] + std * noise
    exact = torch.distributions.Normal(mean[:, :1].double(), std).log_prob(actions.double())
    ours = normal_log_prob(actions, mean, torch.full_like(mean, std))[:, 0]
    torch.testing.assert_close(ours.double(), exact.sum((-1, -2)), rtol=0, atol=0.02)


ODD_BOUNDS = Bounds(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 10.0]))
CENTRE = torch.tensor([1.0, 6.0])


def first_candidates(config: PlannerConfig, previous: Proposal | None) -> Tensor:
    """Mean of the first round's candidates, ``[H, A]``, with next to no noise."""
    recorder = Recorder([])
    config = replace(config, initial_std=1e-6)
    plan(recorder, None, ODD_BOUNDS, config, seeded(), previous=previous)
    assert len(recorder.seen) == config.num_iterations
    return recorder.seen[0][0].mean(0)


def test_an_episode_begins_at_the_centre():
    config = cem(horizon=4, num_trajectories=20, num_iterations=2)
    torch.testing.assert_close(first_candidates(config, None), CENTRE.expand(4, 2))


def test_warm_start_shifts_the_previous_plan():
    config = cem(horizon=4, num_trajectories=20, num_iterations=2)
    mean = torch.tensor([[0.0, 3], [1, 4], [2, 5], [2.5, 7]]).reshape(1, 1, 4, 2)
    previous = gaussian(mean, torch.full_like(mean, 0.01))
    expected = torch.tensor([[1.0, 4], [2, 5], [2.5, 7], [1, 6]])
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-4}
    torch.testing.assert_close(first_candidates(config, previous), expected, **close)
    cold = first_candidates(replace(config, warm_start=False), previous)
    torch.testing.assert_close(cold, CENTRE.expand(4, 2), **close)


@pytest.mark.parametrize(
    ("changes", "dims", "batch"),
    [({"horizon": 4}, 2, 1), ({"num_components": 2}, 2, 1), ({}, 3, 1), ({}, 2, 2)],
    ids=["horizon", "components", "actions", "batch"],
)
def test_previous_plan_of_the_wrong_shape(changes, dims, batch):
    config = paets(horizon=3, num_trajectories=10, num_iterations=1)
    previous = plan(
        Quadratic(torch.zeros(())), None, Bounds.symmetric(2), config, seeded()
    ).proposal
    with pytest.raises(PlannerError, match="previous"):
        plan(
            Quadratic(torch.zeros(())),
            None,
            Bounds.symmetric(dims),
            replace(config, **changes),
            seeded(),
            previous=previous,
            batch_size=batch,
        )
