"""Conformal bands: coverage, ranks by hand, tracking's exact balance, and the alarm's rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planet_bayes.confidence.conformal import (
    MIN_POINTS,
    RECENT_STEPS,
    Bands,
    Forecasts,
    alarms_raised,
    calibrate,
    recent_errors,
    threshold,
    untracked,
)
from planet_bayes.errors import ConfigError


def skewed(rng: np.random.Generator, points: int) -> Forecasts:
    """Return forecasts ``[points, 2, 3]`` with biased errors of varying size."""
    mean = rng.normal(size=(points, 2, 3))
    std = rng.gamma(2.0, 0.5, (points, 2, 3))
    error = (rng.exponential(1.0, (points, 2, 3)) - 0.3) * (0.2 + std) * np.array([1, 5, 0.1])
    return Forecasts(mean + error, mean, std)


def untracked_interval(bands: Bands, one: Forecasts) -> tuple[np.ndarray, np.ndarray]:
    errors = bands.errors(one.truth, one.mean, one.std)
    scale = bands.scale(one.std, recent_errors(errors, bands.usual))
    return bands.interval(one.mean, scale, untracked(one.mean.shape[1:]))


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_bands_contain_the_set_share_of_new_truths(level: float) -> None:
    rng = np.random.default_rng(0)
    bands = calibrate([skewed(rng, 400) for _ in range(10)], level)
    later = skewed(rng, 20000)
    low, high = untracked_interval(bands, later)
    for beyond in (later.truth < low, later.truth > high):
        np.testing.assert_allclose(beyond.mean(0), (1 - level) / 2, atol=0.015)


@pytest.mark.parametrize(("level", "needed"), [(0.9, 40), (0.95, 40), (0.99, 199), (0.999, 1999)])
def test_an_edge_needs_as_many_points_as_its_rank(level: float, needed: int) -> None:
    """With one point less, ⌈(n + 1) (1 + level) / 2⌉ is beyond the last known score."""
    rng = np.random.default_rng(0)
    one = skewed(rng, needed + 3)
    one.truth[needed:] = np.nan
    assert np.isfinite(calibrate([one], level).above).all()
    one.truth[needed - 1] = np.nan
    with pytest.raises(ConfigError, match=f"needs {needed} .* got {needed - 1}"):
        calibrate([one], level)


def test_recent_errors_by_hand() -> None:
    """One step ahead the errors of steps 0, 1, … are known at 1, 2, …; two ahead one step later."""
    errors = np.array([[[2.0], [-4.0]], [[0.0], [np.nan]], [[1.0], [0.0]]])
    usual = np.array([[1.0], [2.0]])
    found = recent_errors(errors, usual)[..., 0]
    share = 1 / RECENT_STEPS
    first = 1 + share * (2 - 1)
    np.testing.assert_allclose(found[:, 0], [1, first, first + share * (0 - first)])
    np.testing.assert_allclose(found[:, 1], [1, 1, 1 + share * (4 / 2 - 1)])
    one = np.ones((2, 1))
    bands = Bands(one, usual, 0 * one, one, one)
    after = bands.after(found[1][:, None], np.array([[0.0], [-4.0]]))
    np.testing.assert_allclose(after[:, 0], found[2])


def test_bands_follow_the_size_of_recent_errors() -> None:
    """Noise that is ten times as large in every second episode: each kind is covered."""
    rng = np.random.default_rng(5)

    def episode(size: float) -> Forecasts:
        zero = np.zeros((200, 1, 1))
        return Forecasts(size * rng.normal(size=(200, 1, 1)), zero, zero)

    bands = calibrate([episode(size) for size in (1.0, 10.0) * 20], 0.9)
    for size in (1.0, 10.0, 50.0):  # the last one was never seen
        shares = []
        for _ in range(40):
            one = episode(size)
            low, high = untracked_interval(bands, one)
            shares.append(((one.truth >= low) & (one.truth <= high))[3 * RECENT_STEPS :].mean())
        assert np.mean(shares) == pytest.approx(0.9, abs=0.04)


def test_edges_are_order_statistics() -> None:
    """With std 0 the edges are ranks ⌊(n+1) 5 %⌋ and ⌈(n+1) 95 %⌉ of the errors.

    Each error is an episode of its own, so that there are no recent ones.
    """
    errors = np.random.default_rng(1).normal(size=99)
    zero = np.zeros((1, 1, 1))
    bands = calibrate([Forecasts(np.full((1, 1, 1), one), zero, zero) for one in errors], 0.9)
    scale = bands.scale(zero[0], np.ones((1, 1)))
    low, high = bands.interval(zero[0], scale, untracked((1, 1)))
    ordered = np.sort(errors)
    assert low.item() == pytest.approx(ordered[5 - 1])
    assert high.item() == pytest.approx(ordered[95 - 1])


def test_unknown_truths_do_not_count_and_few_are_refused() -> None:
    rng = np.random.default_rng(2)
    one = skewed(rng, 200)
    missing = np.full((50, 2, 3), np.nan)
    longer = Forecasts(
        *(np.concatenate([part, missing]) for part in (one.truth, one.mean, one.std))
    )
    for left, right in zip(
        vars(calibrate([one], 0.9)).values(), vars(calibrate([longer], 0.9)).values(), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    one.truth[MIN_POINTS - 1 :, 1, 2] = np.nan
    with pytest.raises(ConfigError, match=f"needs {MIN_POINTS} .* got {MIN_POINTS - 1}"):
        calibrate([one], 0.9)


def test_a_constant_quantity_has_a_narrow_band_that_can_grow() -> None:
    ones = np.ones((100, 1, 1))
    bands = calibrate([Forecasts(ones, ones, 0 * ones)], 0.9)
    tracked, recent = untracked((1, 1)), np.ones((1, 1))
    scale = bands.scale(0 * ones[0], recent)
    low, high = bands.interval(ones[0], scale, tracked)
    assert 0 < (high - low).item() < 1e-4
    for _ in range(200):
        scores = bands.scores(ones[0] + 1e-3, ones[0], scale)
        tracked = tracked.moved(scores, bands, 0.9)
        recent = bands.after(recent, bands.errors(ones[0] + 1e-3, ones[0], 0 * ones[0]))
        scale = bands.scale(0 * ones[0], recent)
    low, high = bands.interval(ones[0], scale, tracked)
    assert (high - low).item() > 1e-3


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=300), st.sampled_from([0.5, 0.9]))
def test_misses_balance_the_movement_of_the_edges(values: list[float], level: float) -> None:
    """An independent count: share of misses = target + (last - first log factor) / (gain · T)."""
    one = np.ones((8, 1))
    bands = Bands(one, one, 0 * one, one, 2 * one)
    tracked, low, high = untracked((8, 1)), np.zeros((8, 1)), np.zeros((8, 1))
    for value in values:
        scores = np.full((8, 1), value)
        low += scores < -np.exp(tracked.below)
        high += scores > 2 * np.exp(tracked.above)
        tracked = tracked.moved(scores, bands, level)
    gain = np.array([[0.2, 0.2, 0.2, 0.2, 0.2, 1 / 6, 1 / 7, 1 / 8]]).T
    expected = gain * (np.stack([low, high]) - len(values) * (1 - level) / 2)
    np.testing.assert_allclose(np.stack([tracked.below, tracked.above]), expected, atol=1e-9)


def test_tracking_follows_a_change_and_ignores_unknown_scores() -> None:
    rng = np.random.default_rng(3)
    one = np.ones((1, 1))
    bands = Bands(one, one, 0 * one, 1.64 * one, 1.64 * one)
    tracked, inside = untracked((1, 1)), []
    for _ in range(600):
        score = 8 * rng.normal(size=(1, 1))
        low = -1.64 * np.exp(tracked.below)
        inside.append(bool(low <= score <= 1.64 * np.exp(tracked.above)))
        tracked = tracked.moved(score, bands, 0.9)
    assert np.mean(inside[:10]) < 0.5
    assert 0.85 < np.mean(inside[100:]) < 0.95
    still = tracked.moved(np.full((1, 1), np.nan), bands, 0.9)
    assert (still.below == tracked.below).all()
    assert (still.above == tracked.above).all()


def test_the_threshold_counts_excursions_by_hand() -> None:
    scores = np.array([0.0, 3, 3, 0, 2, 0, 1, 1, 1, 0])
    assert alarms_raised(scores > 0.5) == 3
    assert alarms_raised(scores > 3) == 0
    assert alarms_raised(np.array([True, False, True])) == 2
    # 10 steps: one alarm is allowed at a rate of 0.1, three at 0.3, none at 0.05.
    assert threshold([scores], 0.1) == 2
    assert threshold([scores], 0.3) == 0
    assert threshold([scores], 0.05) == 3
    # Two episodes: an excursion does not go on in the next one.
    assert threshold([np.array([0.0, 1]), np.array([1.0, 0])], 0.3) == 1
    with pytest.raises(ConfigError, match="got none"):
        threshold([np.zeros(0)], 0.1)


def test_the_rate_holds_on_new_steps() -> None:
    rng = np.random.default_rng(4)
    level = threshold([rng.normal(size=500) for _ in range(40)], 0.005)
    later = [alarms_raised(rng.normal(size=500) > level) for _ in range(40)]
    assert sum(later) / 20000 == pytest.approx(0.005, rel=0.5)
