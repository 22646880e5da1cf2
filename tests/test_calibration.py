"""Calibration: each figure against a plain reference, and where its answer is known.

For each figure there is a case in which it must not be high because the thing is absent.
"""

import math

import numpy as np
import pytest
from scipy import stats

from planet_bayes.diagnostics.calibration import (
    Comparison,
    auroc,
    calibrated,
    compare,
    joined,
    rank_correlation,
    sampling_share,
)

Array = np.ndarray


def drawn(points: int, members: int, horizon: int = 2, seed: int = 0) -> tuple[Array, Array]:
    """Return predictions and truths that are exchangeable; scale and place differ by point."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(points, members + 1, horizon))
    values *= rng.uniform(0.2, 3, (points, 1, horizon))
    values += 10 * rng.normal(size=(points, 1, horizon))
    return values[:, :members], values[:, members]


def figures(compared: Comparison) -> list[Array]:
    return [
        compared.rmse(),
        compared.disagreement(),
        compared.ratio(),
        compared.coverage(),
        compared.rank_correlation(),
        compared.error_correlation(),
    ]


def reference(predicted: Array, real: Array) -> list[list[float]]:
    """Return the six figures step by step, with loops over points and entries."""
    points, members, horizon, entries = predicted.shape
    rows = []
    for step in range(horizon):
        error = [
            [float(np.mean(predicted[n, :, step, d])) - real[n, step, d] for d in range(entries)]
            for n in range(points)
        ]
        std = [
            [math.sqrt(stats.tvar(predicted[n, :, step, d])) for d in range(entries)]
            for n in range(points)
        ]
        sizes = [math.sqrt(sum(e * e for e in row) / entries) for row in error]
        stds = [math.sqrt(sum(s * s for s in row) / entries) for row in std]
        rmse, spread = np.sqrt(np.mean(np.square(error))), np.sqrt(np.mean(np.square(std)))
        hits = [
            abs(e) <= 2 * s
            for left, right in zip(error, std, strict=True)
            for e, s in zip(left, right, strict=True)
        ]
        each = [(predicted[:, m, step] - real[:, step]).ravel() for m in range(members)]
        pairs = [
            stats.pearsonr(each[i], each[j]).statistic for i in range(members) for j in range(i)
        ]
        rank = stats.spearmanr(sizes, stds).statistic
        rows.append([rmse, spread, rmse / spread, np.mean(hits), rank, np.mean(pairs)])
    return np.array(rows).T.tolist()


@pytest.mark.parametrize("entries", [1, 3])
@pytest.mark.parametrize("members", [2, 5])
def test_the_figures_are_those_of_a_reference(entries: int, members: int) -> None:
    rng = np.random.default_rng(members)
    real = rng.normal(size=(30, 4, entries))
    scale = rng.uniform(0.1, 2, (30, 1, 4, entries))
    predicted = real[:, None] + scale * rng.normal(size=(30, members, 4, entries))
    predicted += rng.normal(size=(30, 1, 4, entries)) + 0.3
    expected = reference(predicted, real)
    shaped = predicted.reshape(30, members, 4, *(() if entries == 1 else (entries, 1)))
    compared = compare(shaped, real.reshape(30, 4, *shaped.shape[3:]))
    for found, values in zip(figures(compared), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-9)
    parts = [
        compare(shaped[some], real.reshape(30, 4, *shaped.shape[3:])[some])
        for some in (slice(0, 7), slice(7, 30))
    ]
    for found, values in zip(figures(joined(parts)), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-9)


@pytest.mark.parametrize("members", [2, 3, 5, 20])
def test_calibrated_members_have_the_figures_of_theory(members: int) -> None:
    """The truth is exchangeable with the members, whatever their scale at a point."""
    points = 40_000
    predicted, real = drawn(points, members)
    compared, expected = compare(predicted, real), calibrated(members)
    noise = math.sqrt(expected.coverage * (1 - expected.coverage) / points)
    np.testing.assert_allclose(compared.coverage(), expected.coverage, atol=4 * noise)
    np.testing.assert_allclose(compared.ratio(), expected.ratio, rtol=0.03)
    np.testing.assert_allclose(compared.error_correlation(), 0.5, atol=0.03)


def test_the_coverage_of_theory_is_an_integral_of_the_density() -> None:
    """Of Student's t with P - 1 degrees of freedom, here by the trapezium rule."""
    for members in (2, 5, 30):
        freedom = members - 1
        bound = 2 / math.sqrt(1 + 1 / members)
        x = np.linspace(-bound, bound, 20_001)
        log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
        peak = math.exp(log_scale) / math.sqrt(freedom * math.pi)
        density = peak * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
        assert calibrated(members).coverage == pytest.approx(np.trapezoid(density, x), abs=1e-7)
    assert calibrated(5).coverage == pytest.approx(0.858, abs=1e-3)
    assert calibrated(100_000).coverage == pytest.approx(0.9545, abs=1e-4)  # the normal one
    assert calibrated(5).ratio == pytest.approx(math.sqrt(1.2))


def test_equal_members_cover_nothing() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(50, 1, 3)) * 0.1 + 0.7
    compared = compare(np.repeat(one, 5, 1), np.zeros((50, 3)))
    assert (compared.std == 0).all()  # exactly: no rounding of a mean of five
    np.testing.assert_array_equal(compared.coverage(), 0)
    np.testing.assert_array_equal(compared.ratio(), np.inf)
    assert np.isnan(compared.rank_correlation()).all()  # nothing to rank by
    np.testing.assert_allclose(compared.error_correlation(), 1)


def test_equal_members_that_are_right_cover_everything() -> None:
    real = np.random.default_rng(0).normal(size=(20, 3))
    compared = compare(np.repeat(real[:, None], 4, 1), real)
    np.testing.assert_array_equal(compared.coverage(), 1)
    assert np.isnan(compared.ratio()).all()
    assert np.isnan(compared.error_correlation()).all()  # no errors to correlate


def test_one_member_has_an_error_and_nothing_else() -> None:
    predicted, real = drawn(30, 1)
    rmse, *others = figures(compare(predicted, real))
    np.testing.assert_allclose(rmse, np.sqrt(np.square(predicted[:, 0] - real).mean(0)))
    for values in others:
        assert np.isnan(values).all()


def test_one_point_has_no_correlations() -> None:
    compared = compare(*drawn(1, 3))
    assert np.isfinite(compared.ratio()).all()
    assert np.isnan(compared.rank_correlation()).all()
    assert np.isnan(compared.error_correlation()).all()


def test_errors_in_common_are_correlated() -> None:
    rng = np.random.default_rng(1)
    real, common = rng.normal(size=(2, 3000, 2))
    predicted = (real + 3 * common)[:, None] + 0.1 * rng.normal(size=(3000, 5, 2))
    compared = compare(predicted, real)
    assert (compared.error_correlation() > 0.99).all()
    assert (compared.ratio() > 20).all()
    assert (compared.coverage() < 0.1).all()


def test_errors_of_their_own_are_not_correlated() -> None:
    """Though the predictions themselves are: they follow the truth."""
    rng = np.random.default_rng(2)
    real = 10 * rng.normal(size=(20_000, 2))
    predicted = real[:, None] + rng.normal(size=(20_000, 5, 2))
    assert np.corrcoef(predicted[:, 0, 0], predicted[:, 1, 0])[0, 1] > 0.98
    compared = compare(predicted, real)
    np.testing.assert_allclose(compared.error_correlation(), 0, atol=0.02)
    np.testing.assert_allclose(compared.ratio(), math.sqrt(1 / 5), rtol=0.03)


def test_an_error_that_is_the_same_everywhere_shows_in_the_ratio_only() -> None:
    """Pearson's correlation removes it, also where it is large."""
    rng = np.random.default_rng(3)
    real = rng.normal(size=(20_000, 1))
    predicted = real[:, None] + rng.normal(size=(20_000, 5, 1)) + 1000
    compared = compare(predicted, real)
    np.testing.assert_allclose(compared.error_correlation(), 0, atol=0.02)
    assert compared.ratio() > 900
    constant = compare(np.full((20, 3, 1), 1.1), np.full((20, 1), 0.3))
    assert np.isnan(constant.error_correlation()).all()  # and not what rounding leaves


def test_a_member_of_constant_errors_is_left_out() -> None:
    rng = np.random.default_rng(4)
    predicted, real = rng.normal(size=(50, 3, 1)), np.zeros((50, 1))
    expected = np.corrcoef(predicted[:, 0, 0], predicted[:, 1, 0])[0, 1]
    predicted[:, 2] = 0.7
    np.testing.assert_allclose(compare(predicted, real).error_correlation(), expected)


def test_a_std_that_is_too_large_covers_all_and_has_a_small_ratio() -> None:
    predicted, real = drawn(2000, 5)
    mean = predicted.mean(1, keepdims=True)
    compared = compare(mean + 20 * (predicted - mean), real)
    assert (compared.coverage() > 0.99).all()
    assert (compared.ratio() < 0.1).all()


def test_a_std_without_information_has_no_rank_correlation() -> None:
    """Neither where it differs by point, nor where it is right and the same everywhere."""
    rng = np.random.default_rng(5)
    real = rng.normal(size=(5000, 1))
    differing = rng.uniform(0.1, 5, (5000, 1, 1)) * np.array([-1.0, 0.0, 1.0])[:, None]
    blind = compare(rng.normal(size=(5000, 1, 1)) + differing, real)
    np.testing.assert_allclose(blind.rank_correlation(), 0, atol=0.05)
    same = compare(rng.normal(size=(5000, 5, 1)), real)
    np.testing.assert_allclose(same.rank_correlation(), 0, atol=0.05)
    np.testing.assert_allclose(same.ratio(), math.sqrt(1.2), rtol=0.03)


def test_a_rank_correlation_ignores_the_size_of_the_std() -> None:
    rng = np.random.default_rng(6)
    size = rng.uniform(0.1, 5, (500, 1))
    spread = 1e-3 * size[:, None] * np.array([-1.0, 0.0, 1.0])[:, None]
    compared = compare(size[:, None] + spread, np.zeros((500, 1)))
    np.testing.assert_allclose(compared.rank_correlation(), 1)
    assert (compared.coverage() == 0).all()
    assert (compared.ratio() > 900).all()


def test_rank_correlations_are_scipys_also_with_ties() -> None:
    rng = np.random.default_rng(7)
    left, right = rng.integers(0, 5, (2, 40, 3)).astype(float)
    expected = [stats.spearmanr(left[:, i], right[:, i]).statistic for i in range(3)]
    np.testing.assert_allclose(rank_correlation(left, right), expected)


def test_auroc_is_scipys_statistic_and_a_count_of_pairs() -> None:
    rng = np.random.default_rng(8)
    other = rng.integers(0, 6, (30, 2)).astype(np.float64)
    clean = rng.integers(0, 4, (20, 2)).astype(np.float64)
    found = auroc(other, clean)
    for step in range(2):
        statistic = stats.mannwhitneyu(other[:, step], clean[:, step]).statistic
        assert found[step] == pytest.approx(statistic / 600)
        larger = [(a > b) + (a == b) / 2 for a in other[:, step] for b in clean[:, step]]
        assert found[step] == pytest.approx(np.mean(larger))


def test_auroc_where_its_answer_is_known() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(size=(4000, 1))
    assert auroc(values, values) == pytest.approx(0.5)
    assert auroc(values, rng.normal(size=(3000, 1))) == pytest.approx(0.5, abs=0.03)
    assert auroc(values + 100, values) == 1
    assert auroc(values - 100, values) == 0
    assert auroc(np.zeros((5, 1)), np.zeros((9, 1))) == 0.5  # members agree everywhere
    assert np.isnan(auroc(np.full((5, 1), np.nan), np.full((9, 1), np.nan)))  # one member
    # Two normal distributions one std apart.
    apart = auroc(values + 1, rng.normal(size=(4000, 1)))
    assert apart == pytest.approx(stats.norm.cdf(1 / math.sqrt(2)), abs=0.03)


def test_the_share_of_drawn_noise() -> None:
    rng = np.random.default_rng(10)
    noise = rng.normal(size=(2, 5000, 5, 2))
    weights = 2 * rng.normal(size=(5000, 5, 2))
    np.testing.assert_allclose(sampling_share(*noise), 1, atol=0.05)  # equal weights
    np.testing.assert_allclose(sampling_share(*(weights + noise)), 1 / 5, atol=0.02)
    np.testing.assert_array_equal(sampling_share(weights, weights), 0)
    assert np.isnan(sampling_share(np.ones((3, 2, 1)), np.ones((3, 2, 1)))).all()


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        compare(np.zeros((4, 2, 3)), np.zeros((3, 4)))
