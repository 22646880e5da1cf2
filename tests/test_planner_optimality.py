"""Optimalities: weights by hand, by property, and for returns that are not finite."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from planet_bayes.planner import (
    METHODS,
    OPTIMALITIES,
    cem,
    cma_es,
    mppi,
    proportional_cem,
)
from planning import (
    DOUBLE,
    INF,
    NAN,
    Table,
    bandit_weights,
    draw_noises,
    optimise,
    unit_gaussian,
    wide_bounds,
)

# Means over particles: 2, 1.5, 0.5, 3.
HAND = [[4.0, 0.0], [1.0, 2.0], [0.0, 1.0], [3.0, 3.0]]


LOGS = [[math.log(1), math.log(4)], [math.log(2), math.log(2)], [0.0, 0.0]]
HALF = {"elite_fraction": 0.5}
ROOT = 1 + math.sqrt(2)
RANKED = math.log(1.25) + math.log(2.5)
POOLED = math.log(4.5) / 2 + math.log(1.125) / 2 + math.log(2.25)


@pytest.mark.parametrize(
    ("config", "returns", "expected"),
    [
        # Two elites of four: the means 3 and 2.
        (cem(**HALF), HAND, [0.5, 0, 0, 0.5]),
        # Four elites of the eight returns: 4, 3, 3, 2. Their shares: ½, ½, 0, 1.
        (cem(expectation="after", **HALF), HAND, [0.25, 0.25, 0, 0.5]),
        # The same shares to the power ½.
        (
            cem(expectation="after", temperature=2.0, **HALF),
            HAND,
            [math.sqrt(0.5) / ROOT, math.sqrt(0.5) / ROOT, 0, 1 / ROOT],
        ),
        # exp of the means: 2, 2, 1; and to the power ½ and 2.
        (mppi(), LOGS, [0.4, 0.4, 0.2]),
        (mppi(temperature=0.5), LOGS, [4 / 9, 4 / 9, 1 / 9]),
        # Means of exp: 2.5, 2, 1.
        (mppi(expectation="after"), LOGS, [5 / 11, 4 / 11, 2 / 11]),
        # Means above the smallest mean: 1.5, 1, 0, 2.5.
        (proportional_cem(), HAND, [0.3, 0.2, 0, 0.5]),
        # Means above the smallest return, 0: 2, 1.5, 0.5, 3.
        (proportional_cem(expectation="after"), HAND, [2 / 7, 1.5 / 7, 0.5 / 7, 3 / 7]),
        # Ranks 2, 3, 4, 1 and two elites: log 2.5 - log(rank), not below 0.
        (cma_es(), HAND, [math.log(1.25) / RANKED, 0, 0, math.log(2.5) / RANKED]),
        # Ranks of 4, 3, 3, 2 among eight: 1, 2, 2, 4, and four elites: log 4.5 - log(rank).
        (
            cma_es(expectation="after"),
            HAND,
            [
                math.log(4.5) / 2 / POOLED,
                math.log(1.125) / 2 / POOLED,
                0,
                math.log(2.25) / POOLED,
            ],
        ),
    ],
)
def test_weights_by_hand(config, returns, expected):
    assert bandit_weights(returns, config) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_ties_at_the_threshold_pass_where_there_is_room_or_nothing_better():
    crowd = [[5.0], [3.0], [3.0], [3.0], [1.0]]
    assert bandit_weights(crowd, cem(elite_fraction=0.4)) == [1, 0, 0, 0, 0]
    assert bandit_weights(crowd, cem(elite_fraction=0.8)) == pytest.approx([0.25] * 4 + [0])
    level = [[3.0], [3.0], [3.0], [1.0], [0.0]]
    assert bandit_weights(level, cem(elite_fraction=0.4)) == pytest.approx([1 / 3] * 3 + [0, 0])


def test_a_rare_reward_is_not_drowned():
    returns = [[0.0]] * 57 + [[1.0], [2.0], [0.5]]
    weights = bandit_weights(returns, cem(elite_fraction=0.1))
    assert weights == pytest.approx([0.0] * 57 + [1 / 3] * 3)


def test_equal_ranks_share_the_best():
    """Ranks 1, 2, 2, 4 and three elites: log 3.5 - log(rank)."""
    best, tied = math.log(3.5), math.log(1.75)
    total = best + 2 * tied
    weights = bandit_weights([[9.0], [4.0], [4.0], [1.0]], cma_es(elite_fraction=0.75))
    assert weights == pytest.approx([best / total, tied / total, tied / total, 0])


@pytest.mark.parametrize("expectation", ["before", "after"])
@pytest.mark.parametrize("method", METHODS)
def test_equal_returns_weigh_the_same(method, expectation):
    config = METHODS[method](expectation=expectation)
    assert bandit_weights([[-7.0, -7.0]] * 5, config) == pytest.approx([0.2] * 5, rel=1e-12)


def test_number_of_elites_is_rounded_and_at_least_one():
    returns = [[float(k)] for k in range(14)]
    # 0.1 x 14 = 1.4, 0.12 x 14 = 1.68, 0.01 x 14 = 0.14.
    for fraction, elites in ((0.1, 1), (0.12, 2), (0.01, 1)):
        weights = bandit_weights(returns, cem(elite_fraction=fraction))
        assert sum(w > 0 for w in weights) == elites


def test_temperature_tells_on_the_threshold_after_the_expectation_only():
    after = cem(expectation="after", elite_fraction=0.5)
    assert bandit_weights(HAND, after) != bandit_weights(HAND, replace(after, temperature=3.0))
    before = cem(elite_fraction=0.5)
    assert bandit_weights(HAND, before) == bandit_weights(HAND, replace(before, temperature=3.0))


quick = settings(max_examples=40, deadline=None)
orders = st.sampled_from(["before", "after"])


# Whole numbers: a strictly monotone function of them keeps exactly the same order and ties.
whole_returns = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=30)


def table_of(returns: list[float]) -> list[list[float]]:
    return [[value] for value in returns]


@quick
@given(
    name=st.sampled_from(sorted(OPTIMALITIES)),
    expectation=orders,
    rows=st.integers(1, 5).flatmap(
        lambda p: st.lists(
            st.lists(st.floats(-1e4, 1e4), min_size=p, max_size=p), min_size=1, max_size=20
        )
    ),
    temperature=st.floats(0.1, 10),
    kappa=st.floats(0, 2),
    fraction=st.floats(0.01, 1),
)
def test_weights_are_a_distribution(name, expectation, rows, temperature, kappa, fraction):
    config = cem(
        optimality=name,
        expectation=expectation,
        temperature=temperature,
        entropy_weight=kappa,
        elite_fraction=fraction,
    )
    weights = bandit_weights(rows, config)
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1, abs=1e-12)


@quick
@given(
    returns=st.lists(st.floats(-20, 20), min_size=1, max_size=20),
    offset=st.floats(-1e5, 1e5),
    temperature=st.floats(0.5, 5),
    expectation=orders,
)
def test_exponential_ignores_offsets(returns, offset, temperature, expectation):
    config = mppi(temperature=temperature, expectation=expectation)
    rows = [[value, value / 2] for value in returns]
    moved = [[left + offset, right + offset] for left, right in rows]
    # An offset of 1e5 costs float64 1e-11 of each return.
    assert bandit_weights(moved, config) == pytest.approx(bandit_weights(rows, config), abs=1e-9)


@quick
@given(
    returns=whole_returns,
    transform=st.sampled_from(
        [
            lambda r: 3 * r - 1000,
            lambda r: r**3,
            lambda r: math.exp(r / 5),
            lambda r: math.atan(r / 10),
        ]
    ),
    fraction=st.floats(0.05, 1),
    kappa=st.sampled_from([0.0, 0.5]),
    optimality=st.sampled_from(["threshold", "rank"]),
)
def test_cem_ignores_monotone_transforms(returns, transform, fraction, kappa, optimality):
    config = cem(elite_fraction=fraction, entropy_weight=kappa, optimality=optimality)
    changed = [transform(value) for value in returns]
    weights = bandit_weights(table_of(returns), config)
    assert bandit_weights(table_of(changed), config) == weights


# "after" with ranks is left out: among N x P pooled returns, P equal ones share one rank and the
# next is P lower, so that the logarithm of the rank is another curve than among N.
@quick
@given(
    returns=st.lists(st.integers(-50, 50).map(float), min_size=20, max_size=20),
    particles=st.integers(2, 6),
    setting=st.sampled_from(
        [(name, "before") for name in sorted(OPTIMALITIES)]
        + [(name, "after") for name in ("exponential", "proportional", "threshold")]
    ),
)
def test_identical_particles_are_one(returns, particles, setting):
    # 0.1 x 20 is whole: the rounded number of elites is the same share of N and of N x P.
    config = cem(optimality=setting[0], expectation=setting[1], elite_fraction=0.1)
    one = bandit_weights(table_of(returns), config)
    many = bandit_weights([[value] * particles for value in returns], config)
    assert many == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("expectation", ["before", "after"])
@pytest.mark.parametrize("name", sorted(OPTIMALITIES))
def test_bad_candidates_get_no_weight_and_are_counted(name, expectation):
    finite = [[-900.0, -901.0], [-1e6, -1e6], [-3.0, -4.0], [-8.0, -2.0], [-700.0, -5.0]]
    bad = [[NAN, NAN], [INF, 1.0], [-INF, -1.0], [NAN, 5.0]]
    config = cem(optimality=name, expectation=expectation, elite_fraction=0.6)
    table = torch.tensor(finite[:2] + bad + finite[2:], dtype=DOUBLE)
    noises = draw_noises(3, 1, len(table), 1, 1, seed=0)
    fitted, seen = optimise(Table(table), unit_gaussian(), noises, wide_bounds(), config)
    assert seen.num_rejected.tolist() == [3 * len(bad)]
    assert seen.num_dead_particles.tolist() == [0]
    assert seen.weights[0, 2:6].tolist() == [0, 0, 0, 0]
    assert torch.isfinite(fitted.mean).all()
    assert torch.isfinite(fitted.std).all()
    # The others are weighed as if the bad ones had not been there.
    others = seen.weights[0, [0, 1, 6, 7, 8]].tolist()
    assert others == pytest.approx(bandit_weights(finite, config), abs=1e-12)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_not_finite_never_ranks_above_a_finite_negative_return(bad):
    assert bandit_weights([[-1e6], [bad], [-5.0], [bad]], cem()) == [0, 0, 1, 0]


@pytest.mark.parametrize("expectation", ["before", "after"])
@pytest.mark.parametrize("name", sorted(OPTIMALITIES))
def test_a_dead_particle_is_ignored(name, expectation):
    """The plan is that of the ensemble without it."""
    config = cem(optimality=name, expectation=expectation, elite_fraction=0.5)
    living = [[4.0, 0.0], [1.0, 2.0], [0.0, 1.0], [3.0, 3.0], [2.5, -6.0], [-1.0, 0.5]]
    with_dead = [[row[0], NAN, row[1]] for row in living]
    expected = bandit_weights(living, config)
    assert bandit_weights(with_dead, config) == pytest.approx(expected, abs=1e-12)
