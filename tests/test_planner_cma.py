"""CMA-ES: convergence, step size and the floor of the std."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import torch

from planet_bayes.planner import (
    Bounds,
    SeparableCMA,
    cma_es,
    plan,
)
from planning import (
    DOUBLE,
    Quadratic,
    Table,
    built_in,
    cma,
    draw_noises,
    optimise,
    seeded,
    wide_bounds,
)


def cma_run(goal: float, std: float, rounds: int) -> SeparableCMA:
    shape = (1, 1, 3, 2)
    begin = cma(torch.zeros(shape, dtype=DOUBLE), torch.full(shape, std, dtype=DOUBLE))
    noises = draw_noises(rounds, 1, 40, 3, 2, seed=3)
    model = Quadratic(torch.tensor(goal, dtype=DOUBLE))
    config = cma_es(min_std=1e-9)
    final, _ = optimise(model, begin, noises, wide_bounds(2), config)
    assert isinstance(final, SeparableCMA)
    return final


def test_cma_es_converges_on_a_sphere():
    final = cma_run(goal=20.0, std=1.0, rounds=80)
    torch.testing.assert_close(final.mean, torch.full_like(final.mean, 20.0), rtol=0, atol=1e-4)
    assert final.std.max() < 1e-3


def test_cma_es_step_size_grows_far_from_the_optimum_and_shrinks_near_it():
    assert cma_run(goal=90.0, std=0.1, rounds=10).step_size.item() > 2
    assert cma_run(goal=0.0, std=1.0, rounds=10).step_size.item() < 0.5


def test_cma_es_step_size_stays_when_returns_say_nothing():
    """No selection: the path is a random walk of the expected length, whatever the seed."""
    begin = cma(torch.zeros(64, 1, 3, 2, dtype=DOUBLE), torch.ones(64, 1, 3, 2, dtype=DOUBLE))
    returns = torch.rand(64, 40, 1, generator=seeded(), dtype=DOUBLE)
    noises = draw_noises(20, 64, 40, 3, 2, seed=5)
    config = cma_es(min_std=1e-9)
    final, _ = optimise(Table(returns), begin, noises, wide_bounds(2), config)
    assert isinstance(final, SeparableCMA)
    assert final.step_size.log().mean().abs().item() < 0.25


def test_cma_es_respects_the_floor():
    config = cma_es(horizon=2, num_trajectories=30, num_iterations=60, min_std=0.1)
    result = plan(Quadratic(torch.zeros(1)), None, Bounds.symmetric(1), config, seeded())
    fitted = built_in(result.proposal)
    torch.testing.assert_close(fitted.std, torch.full_like(fitted.std, 0.1))
