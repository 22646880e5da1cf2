"""How many plans a proposal holds: against a NumPy reference, and where counts could mislead."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.planner import Bounds, Components, cem, paets, plan
from planet_bayes.planner._plans import component_distances, is_distinct, mean_distance
from planning import DOUBLE, Quadratic, seeded

Array = NDArray[np.float64]


def make(weight: Array, mean: Array, std: Array) -> Components:
    return Components(
        *(torch.tensor(part, dtype=DOUBLE).unsqueeze(0) for part in (weight, mean, std))
    )


def bhattacharyya(mean: Array, std: Array, left: int, right: int) -> float:
    """Return -log ∫ √(p q), by its closed form, one dimension after the other."""
    total, steps = 0.0, math.ceil(mean.shape[1] / 2)
    for t in range(steps):
        for a in range(mean.shape[2]):
            p, q = std[left, t, a] ** 2, std[right, t, a] ** 2
            gap = mean[left, t, a] - mean[right, t, a]
            total += gap**2 / (4 * (p + q)) + 0.5 * math.log((p + q) / (2 * math.sqrt(p * q)))
    return total


def counted(weight: Array, mean: Array, std: Array, values: Array) -> list[bool]:
    """Return which components count: from the best on, if good, alive and apart."""
    best = values.max()
    kept: list[int] = []
    for m in sorted(range(len(values)), key=lambda m: -values[m]):
        alive = weight[m] > 0.05 and values[m] >= best - 0.05 * abs(best)
        if alive and all(bhattacharyya(mean, std, m, other) > 2 for other in kept):
            kept.append(m)
    return [m in kept for m in range(len(values))]


@pytest.mark.parametrize("horizon", [1, 2, 7])
@pytest.mark.parametrize("seed", range(6))
def test_distances_and_counts_are_those_of_the_reference(horizon: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.full(5, 0.7))
    mean = rng.normal(size=(5, horizon, 2)) * rng.choice([0.1, 0.6, 2.0])
    std = rng.uniform(0.1, 0.9, size=(5, horizon, 2))
    values = rng.choice([-1, 1]) * (10 + rng.uniform(0, 1, size=5))
    components = make(weight, mean, std)
    distances = component_distances(components)[0].numpy()
    alive = [m for m in range(5) if weight[m] > 0.05]
    pairs = [(i, j) for i in alive for j in alive if i != j]
    for i in range(5):
        for j in range(5):
            assert distances[i, j] == pytest.approx(bhattacharyya(mean, std, i, j), abs=1e-12)
    apart = np.mean([distances[pair] for pair in pairs]) if pairs else 0.0
    assert mean_distance(components).item() == pytest.approx(apart)
    found = is_distinct(components, torch.tensor(values).unsqueeze(0))[0].tolist()
    assert found == counted(weight, mean, std, values)


def test_the_distance_is_that_of_the_integral() -> None:
    """In one dimension, against the integral of the root of the product of the densities."""
    grid = np.linspace(-30, 30, 200_001)

    def density(mean: float, std: float) -> Array:
        return np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))

    overlap = np.sqrt(density(0.3, 0.5) * density(-1.0, 1.4)).sum() * (grid[1] - grid[0])
    mean, std = np.array([[[0.3]], [[-1.0]]]), np.array([[[0.5]], [[1.4]]])
    found = component_distances(make(np.full(2, 0.5), mean, std))[0, 0, 1].item()
    assert found == pytest.approx(-math.log(overlap), abs=1e-6)


def two(gap: float, **changes: object) -> Components:
    """Two components whose distance is gap² / 8 in each of the first half's two dimensions."""
    values: dict[str, object] = {
        "weight": np.array([0.5, 0.5]),
        "mean": np.stack([np.zeros((2, 2)), np.full((2, 2), gap)]),
        "std": np.ones((2, 2, 2)),
        **changes,
    }
    return make(**values)  # type: ignore[arg-type]


GOOD = torch.tensor([[10.0, 10.0]], dtype=DOUBLE)


def count(components: Components, values: Tensor = GOOD) -> int:
    return int(is_distinct(components, values).sum())


def test_a_plan_counts_only_if_it_is_alive_good_and_apart() -> None:
    apart = two(3.0)  # 2 × 9 / 8 = 2.25
    assert count(apart) == 2
    assert count(two(2.8)) == 1  # 1.96
    assert count(two(3.0, weight=np.array([0.96, 0.04]))) == 1
    assert count(apart, torch.tensor([[10.0, 9.49]], dtype=DOUBLE)) == 1
    assert count(apart, torch.tensor([[10.0, 9.51]], dtype=DOUBLE)) == 2
    assert count(apart, torch.tensor([[-10.0, -10.51]], dtype=DOUBLE)) == 1
    late = np.zeros((2, 4, 2))
    late[1, 2:] = 9.0  # the same first half, another second half
    assert count(two(0.0, mean=late, std=np.ones((2, 4, 2)))) == 1


def test_merged_components_count_once_and_the_best_of_them_counts() -> None:
    """The effective number counts them as five."""
    merged = make(np.full(5, 0.2), np.zeros((5, 4, 3)), np.full((5, 4, 3), 0.1))
    values = torch.tensor([[9.6, 9.9, 10.0, 9.8, 9.7]], dtype=DOUBLE)
    assert is_distinct(merged, values)[0].tolist() == [False, False, True, False, False]
    assert merged.effective_number.item() == pytest.approx(5)
    assert mean_distance(merged).item() == 0


def test_problems_of_a_batch_are_counted_apart() -> None:
    parts = [two(3.0), two(0.1), two(3.0, weight=np.array([1.0, 0.0]))]
    joined = Components(
        *(torch.cat([getattr(p, n) for p in parts]) for n in ("weight", "mean", "std"))
    )
    assert is_distinct(joined, GOOD.expand(3, 2)).sum(-1).tolist() == [2, 1, 1]
    assert mean_distance(joined).tolist() == pytest.approx([2.25, 0.0025, 0.0])


def test_a_rejected_mode_and_a_std_of_zero_count_as_what_they_are() -> None:
    values = torch.tensor([[10.0, -torch.inf]], dtype=DOUBLE)
    assert count(two(3.0), values) == 1
    assert count(two(3.0), torch.full_like(values, -torch.inf)) == 0
    assert count(two(3.0, std=np.zeros((2, 2, 2)))) == 2
    assert count(two(0.0, std=np.zeros((2, 2, 2)))) == 1


def test_plans_are_counted_in_the_diagnostics() -> None:
    bounds, goal = Bounds.symmetric(2), Quadratic(torch.zeros(2))
    one = plan(goal, None, bounds, cem(horizon=4, num_trajectories=30), seeded(0), batch_size=3)
    assert one.diagnostics.distinct_plans.tolist() == [1, 1, 1]
    assert one.diagnostics.component_distance.tolist() == [0, 0, 0]
    five = plan(goal, None, bounds, paets(horizon=4, num_trajectories=30), seeded(0)).diagnostics
    expected = is_distinct(five.proposal.components(), five.mode_values).sum(-1)
    assert five.distinct_plans.tolist() == expected.tolist()
    assert five.component_distance.item() == mean_distance(five.proposal.components()).item()
