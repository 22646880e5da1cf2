"""Risk over particles: each by hand, and in the planner."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from planet_bayes.planner import PlannerError, cautious, cem, mean, paets, plan, weighted_mean
from planning import DOUBLE, INF, NAN, Table, seeded, wide_bounds

RETURNS = torch.tensor([[[3.0, 1.0, 2.0, 6.0], [0.0, 0.0, 0.0, 8.0]]], dtype=DOUBLE)


@pytest.mark.parametrize(
    ("caution", "tail", "expected"),
    [
        (0.0, 1.0, [3.0, 2.0]),
        (1.0, 1.0, [3.0 - math.sqrt(3.5), 2.0 - math.sqrt(12.0)]),
        (-1.0, 1.0, [3.0 + math.sqrt(3.5), 2.0 + math.sqrt(12.0)]),
        (0.0, 0.5, [1.5, 0.0]),  # the two worst
        (0.0, 0.75, [2.0, 0.0]),
        (0.0, 0.875, [(1 + 2 + 3 + 0.5 * 6) / 3.5, 0.5 * 8 / 3.5]),  # and half of the last
        (0.0, 0.25, [1.0, 0.0]),
        (0.0, 0.1, [1.0, 0.0]),  # less than one particle: the worst
        (0.0, 0.0, [1.0, 0.0]),
        (2.0, 0.5, [1.5 - 2 * math.sqrt(3.5), -2 * math.sqrt(12.0)]),
    ],
)
def test_values_by_hand(caution: float, tail: float, expected: list[float]) -> None:
    found = cautious(caution, tail)(RETURNS)
    np.testing.assert_allclose(found, [expected], atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_weighted_particles_are_as_copies_of_particles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    returns, copies = rng.normal(size=(5, 4)), rng.integers(0, 4, 4)
    copies[rng.integers(4)] = 3
    caution, tail = float(rng.normal()), float(rng.uniform(0, 1))
    found = cautious(caution, tail, torch.tensor(copies[None]))(torch.tensor(returns[None]))
    for row, value in zip(returns, found[0], strict=True):
        every = np.sort(np.repeat(row, copies))
        wanted = max(tail * len(every), 1e-9)
        share = np.clip(wanted - np.arange(len(every)), 0, 1)
        expected = (share * every).sum() / share.sum() - caution * every.std()
        assert float(value) == pytest.approx(expected)


@pytest.mark.parametrize("tail", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("caution", [0.0, 0.7, -0.7])
def test_dead_particles_do_not_count_and_rejected_candidates_stay_rejected(
    caution: float, tail: float
) -> None:
    dead = torch.cat([RETURNS, torch.full_like(RETURNS[..., :1], NAN)], -1)
    risk = cautious(caution, tail)
    np.testing.assert_allclose(risk(dead), risk(RETURNS))
    rejected = dead.clone()
    rejected[0, 1, :4] = -INF
    assert risk(rejected)[0, 1] == -INF
    assert risk(rejected)[0, 0] == pytest.approx(float(risk(RETURNS)[0, 0]))


@pytest.mark.parametrize(
    ("caution", "tail", "expected"),
    [
        # Shares 1/8, 1/2, 3/8 and 0: in order, 1 (1/2), 2 (3/8), 3 (1/8).
        (0.0, 1.0, (0.5 * 1 + 0.375 * 2 + 0.125 * 3)),
        (0.0, 0.75, (0.5 * 1 + 0.25 * 2) / 0.75),  # a part of the second
        (0.0, 0.5, 1.0),
        (0.0, 0.0, 1.0),
        (1.0, 1.0, 1.625 - math.sqrt(0.484375)),
        (-2.0, 1.0, 1.625 + 2 * math.sqrt(0.484375)),
    ],
)
def test_weighted_values_by_hand(caution: float, tail: float, expected: float) -> None:
    weights = torch.tensor([[1.0, 4.0, 3.0, 0.0]], dtype=DOUBLE)  # they need not sum to 1
    for last in (-100.0, 100.0):  # without weight it is neither the worst nor part of the std
        returns = torch.tensor([[[3.0, 1.0, 2.0, last]]], dtype=DOUBLE)
        assert float(cautious(caution, tail, weights)(returns)) == pytest.approx(expected)


@pytest.mark.parametrize("tail", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("caution", [0.0, 0.7, -0.7])
def test_the_weight_of_dead_particles_goes_to_the_living_of_the_same_problem(
    caution: float, tail: float
) -> None:
    returns = RETURNS.repeat(3, 1, 1)
    returns[1, :, 0] = NAN
    returns[2, :, :2] = NAN
    weights = torch.tensor([[2.0, 1.0, 1.0, 4.0]] * 2 + [[1.0, 1.0, 0.0, 0.0]], dtype=DOUBLE)
    found = cautious(caution, tail, weights)(returns)
    expected = torch.cat(
        [
            cautious(caution, tail, weights[:1])(RETURNS),
            cautious(caution, tail, weights[:1, 1:])(RETURNS[..., 1:]),
            cautious(caution, tail)(RETURNS[..., 2:]),  # only the dead had any: equal ones
        ]
    )
    np.testing.assert_allclose(found, expected)


def test_without_caution_it_is_the_mean() -> None:
    returns = torch.cat([RETURNS, torch.full_like(RETURNS[..., :1], NAN)], -1)
    weights = torch.tensor([[2.0, 1.0, 1.0, 4.0, 3.0]], dtype=DOUBLE)
    np.testing.assert_allclose(cautious(0.0)(returns), mean(returns))
    np.testing.assert_allclose(
        cautious(0.0, 1.0, weights)(returns), weighted_mean(weights)(returns)
    )


@pytest.mark.parametrize("tail", [1.0, 0.5, 0.0])
def test_without_a_living_particle_there_is_no_value(tail: float) -> None:
    """The worst of none was +inf: better than every plan."""
    assert cautious(0.0, tail)(torch.full_like(RETURNS, NAN)).isnan().all()


def test_one_particle_has_no_spread() -> None:
    one = RETURNS[..., :1]
    np.testing.assert_allclose(cautious(5.0, 0.3)(one), one[..., 0])


def test_the_planner_chooses_by_it() -> None:
    """Three candidates: a good mean with a bad particle, a fair one without, and a jackpot."""
    rows = [[10.0, 10.0, -5.0], [4.0, 4.0, 4.0], [-6.0, -6.0, 21.0]]

    def chosen(**settings: float) -> list[int]:
        config = cem(
            horizon=1, num_trajectories=3, num_iterations=1, elite_fraction=0.34, **settings
        )
        result = plan(
            Table(torch.tensor(rows, dtype=DOUBLE)), None, wide_bounds(), config, seeded(0)
        )
        return result.diagnostics.weights[0].nonzero().flatten().tolist()

    assert chosen() == [0]
    assert chosen(caution=1.0) == [1]
    assert chosen(tail=0.5) == [1]
    assert chosen(tail=0.0) == [1]
    assert chosen(caution=-2.0) == [2]
    rows = [[*row, NAN] for row in rows]  # a dead particle changes nothing
    assert (chosen(), chosen(caution=1.0), chosen(caution=-2.0)) == ([0], [1], [2])
    rows[0][1] = rows[2][0] = NAN  # these two are rejected
    assert chosen(caution=1.0) == chosen(caution=-2.0) == chosen(tail=0.0) == [1]


def test_bad_settings_are_refused() -> None:
    for settings in ({"tail": -0.1}, {"tail": 1.1}, {"tail": NAN}, {"caution": INF}):
        with pytest.raises(PlannerError, match=next(iter(settings))):
            paets(**settings)
    with pytest.raises(PlannerError, match="caution and tail have no effect"):
        paets(caution=1.0, expectation="after")
