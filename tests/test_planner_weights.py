"""Weighted particles in the planner: both expectations against NumPy, and dead particles."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from planet_bayes.errors import PlannerError
from planet_bayes.planner import OPTIMALITIES, cem, mean, mppi, plan, weighted_mean
from planet_bayes.planner._optimality import NEGLIGIBLE_WEIGHT, log_optimality
from planning import DOUBLE, INF, NAN, Table, outputs, seeded, wide_bounds

RNG = np.random.default_rng(0)
RETURNS = RNG.normal(size=(2, 7, 3))
WEIGHTS = RNG.dirichlet(np.ones(3), size=2)


def tensor(values: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=DOUBLE)


def weighted(returns: Any, weights: Any) -> np.ndarray:
    return weighted_mean(tensor(weights))(tensor(returns)).numpy()


def test_the_weighted_mean_is_numpys() -> None:
    expected = np.stack([np.average(RETURNS[b], axis=-1, weights=WEIGHTS[b]) for b in range(2)])
    np.testing.assert_allclose(weighted(RETURNS, WEIGHTS), expected)
    np.testing.assert_allclose(weighted(RETURNS, 7 * WEIGHTS), expected)  # only ratios matter


def test_equal_weights_are_the_plain_mean() -> None:
    expected = mean(tensor(RETURNS)).numpy()
    np.testing.assert_allclose(weighted(RETURNS, np.ones((2, 3))), expected, rtol=1e-12)


def test_dead_particles_and_rejected_candidates() -> None:
    returns = [[[1.0, NAN, 3.0], [-INF, NAN, -INF], [5.0, NAN, 2.0]]]
    assert weighted(returns, [[0.25, 0.5, 0.25]]).tolist() == [[2.0, -INF, 3.5]]
    # Only the dead one had weight: the living ones share it.
    assert weighted(returns, [[0.0, 1.0, 0.0]]).tolist() == [[2.0, -INF, 3.5]]
    # A living particle without weight does not count, not even its -inf.
    assert weighted(returns, [[1.0, 0.0, 0.0]]).tolist() == [[1.0, -INF, 5.0]]


@pytest.mark.parametrize("name", sorted(OPTIMALITIES))
def test_the_weighted_expectation_after_is_numpys(name: str) -> None:
    config = cem(optimality=name, expectation="after", elite_fraction=0.4)
    optimality, returns = OPTIMALITIES[name], tensor(RETURNS)
    likelihood = optimality(returns, config).exp().numpy()  # f(R), [B, N, P]
    expected = (WEIGHTS[:, None] * likelihood).sum(-1)
    got = log_optimality(returns, mean(returns), config, optimality, tensor(WEIGHTS))
    np.testing.assert_allclose(got.exp().numpy(), expected, atol=1e-12)
    plain = log_optimality(returns, mean(returns), config, optimality)
    level = log_optimality(returns, mean(returns), config, optimality, torch.ones(2, 3))
    np.testing.assert_allclose(level.numpy(), plain.numpy(), rtol=1e-12)
    # "before" has the weights in the values.
    before = cem(optimality=name, elite_fraction=0.4)
    values = returns.mean(-1)
    with_weights = log_optimality(returns, values, before, optimality, tensor(WEIGHTS))
    assert torch.equal(with_weights, log_optimality(returns, values, before, optimality))


@pytest.mark.parametrize("small", [0.0, 1e-12])
@pytest.mark.parametrize("name", sorted(OPTIMALITIES))
def test_a_particle_without_weight_is_as_if_it_were_not_there(name: str, small: float) -> None:
    """Its returns, the largest of all, must not set the threshold."""
    config = cem(optimality=name, expectation="after", elite_fraction=0.4)
    returns = tensor(RETURNS)
    rich = torch.cat([returns[..., :2], returns[..., 2:] + 100], -1)
    weights = tensor([[0.3, 0.7, small]] * 2)
    assert small < NEGLIGIBLE_WEIGHT
    got = log_optimality(rich, mean(rich), config, OPTIMALITIES[name], weights)
    alone = rich[..., :2]
    expected = log_optimality(alone, mean(alone), config, OPTIMALITIES[name], weights[:, :2])
    np.testing.assert_allclose(got.exp().numpy(), expected.exp().numpy(), atol=1e-9)
    dead = torch.cat([alone, torch.full_like(alone[..., :1], NAN)], -1)
    weights = tensor([[0.3, 0.7, 5.0]] * 2)
    got = log_optimality(dead, mean(dead), config, OPTIMALITIES[name], weights)
    np.testing.assert_allclose(got.exp().numpy(), expected.exp().numpy(), atol=1e-9)


@pytest.mark.parametrize("expectation", ["before", "after"])
def test_plan_follows_the_particles_of_weight(expectation: str) -> None:
    table = Table(tensor([[float(n), -float(n)] for n in range(20)]))
    settings = {"horizon": 1, "num_trajectories": 20, "num_iterations": 1, "initial_std": 1.0}

    def planned(weights: list[float], method: Any = cem) -> Any:
        config = method(expectation=expectation, **settings)
        given = tensor([weights])
        return plan(table, None, wide_bounds(), config, seeded(0), particle_weights=given)

    for weights, best in (([1.0, 0.0], [18, 19]), ([0.0, 1.0], [0, 1])):
        seen = planned(weights).diagnostics
        assert seen.weights[0].nonzero().flatten().tolist() == best
    left, right = (outputs(planned(weights, mppi)) for weights in ([0.9, 0.1], [0.1, 0.9]))
    assert not torch.equal(left, right)


def test_a_risk_of_ones_own_is_left_alone() -> None:
    table = Table(tensor([[float(n), -float(n)] for n in range(20)]))
    config = cem(horizon=1, num_trajectories=20, num_iterations=1, initial_std=1.0)
    result = plan(
        *(table, None, wide_bounds(), config, seeded(0)),
        risk=lambda returns: returns[..., 1],
        particle_weights=tensor([[1.0, 0.0]]),
    )
    assert result.diagnostics.weights[0].nonzero().flatten().tolist() == [0, 1]
    assert float(result.diagnostics.best_return) == pytest.approx(0.0)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 3)])
def test_weights_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    table = Table(tensor([[0.0, 1.0]] * 20))
    config = cem(horizon=1, num_trajectories=20, num_iterations=1)
    with pytest.raises(PlannerError, match=r"particle_weights: expected the shape \(1, 2\)"):
        plan(
            *(table, None, wide_bounds(), config, seeded(0)),
            risk=lambda returns: returns[..., 0],
            particle_weights=torch.ones(shape),
        )
    assert math.prod(shape) != 2
