"""Sampling: every function against a plain form of the same."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planet_bayes.data.sampling import (
    MAX_ONSET_OVERSAMPLING,
    ONSET_QUIET_STEPS,
    draw_episodes,
    draw_onsets,
    draw_sequences,
    num_starts,
    onsets,
)

REWARDS = st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0]), max_size=40)


@settings(deadline=None, max_examples=200)
@given(reward=REWARDS)
def test_onsets_are_rewards_after_quiet_steps(reward: list[float]) -> None:
    expected = [
        step
        for step in range(ONSET_QUIET_STEPS, len(reward))
        if reward[step] and not any(reward[step - ONSET_QUIET_STEPS : step])
    ]
    assert onsets(np.array(reward, np.float32)).tolist() == expected


def test_onsets_of_some_episodes() -> None:
    def sparse(length: int, *rewarded: int) -> np.ndarray:
        return np.isin(np.arange(length), rewarded).astype(np.float32)

    assert onsets(sparse(20, 3, 8, 9, 12, 17)).tolist() == [8, 17]  # 3 is too early
    assert onsets(-sparse(20, 4, 9)).tolist() == [4, 9]
    assert onsets(np.ones(20, np.float32)).tolist() == []
    assert onsets(np.zeros(3, np.float32)).tolist() == []


@settings(deadline=None, max_examples=100)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), length=st.integers(1, 12))
def test_the_number_of_starts(lengths: list[int], length: int) -> None:
    expected = [max(1, sum(start + length <= one for start in range(one))) for one in lengths]
    assert num_starts(lengths, length).tolist() == expected


class Points(np.random.Generator):
    """A generator whose `random` is evenly spaced: exact shares, without chance."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, size: int) -> np.ndarray:  # type: ignore[override]
        return (np.arange(size) + 0.5) / size


SOME_LOST = st.lists(st.sampled_from([0, 5, 9]), max_size=4)
ONE_PRESENT = st.builds(lambda before, after: [*before, 5, *after], SOME_LOST, SOME_LOST)
"""Lengths of episodes of which at least one is not lost: without, all have the same weight."""


@settings(deadline=None, max_examples=100)
@given(early=ONE_PRESENT, late=ONE_PRESENT, weight=st.sampled_from([0.5, 2.0, 3.0, 10.0]))
def test_episodes_are_drawn_by_weight(early: list[int], late: list[int], weight: float) -> None:
    lengths, seed_episodes = [*early, *late], len(early)
    present = [index for index, length in enumerate(lengths) if length]
    seeds = [index for index in present if index < seed_episodes]
    masses = {
        index: Fraction(1) if index in seeds else Fraction(weight).limit_denominator()
        for index in present
    }
    whole = sum(masses.values())
    total = int(2 * whole) * 50
    drawn = draw_episodes(Points(), lengths, total, seed_episodes, weight)
    counts = Counter(drawn.tolist())
    assert set(counts) == set(present)
    for index in present:
        assert counts[index] / total == pytest.approx(float(masses[index] / whole), abs=2 / total)


@pytest.mark.parametrize(
    ("seed_episodes", "weight"), [(0, 3.0), (6, 3.0), (9, 3.0), (4, 1.0), (4, 5.0)]
)
def test_lost_episodes_are_never_drawn(seed_episodes: int, weight: float) -> None:
    lengths = [0, 6, 7, 0, 9, 10]
    drawn = draw_episodes(np.random.default_rng(0), lengths, 500, seed_episodes, weight)
    assert set(drawn.tolist()) == {1, 2, 4, 5}


@pytest.mark.parametrize(("seed_episodes", "weight"), [(0, 3.0), (6, 3.0), (9, 3.0), (4, 1.0)])
def test_one_kind_of_episodes_is_drawn_uniformly(seed_episodes: int, weight: float) -> None:
    lengths = [5] * 6
    drawn = draw_episodes(np.random.default_rng(0), lengths, 600, seed_episodes, weight)
    assert np.array_equal(drawn, np.random.default_rng(0).integers(6, size=600))


# --- onsets


def with_onset(
    episodes: np.ndarray, starts: np.ndarray, known: list[tuple[int, int]], length: int
) -> float:
    """Return the share of sequences with an onset and the step before it, one by one."""
    found = 0
    for episode, start in zip(episodes.tolist(), starts.tolist(), strict=True):
        steps = range(start + 1, start + length)
        found += any(where == episode and step in steps for where, step in known)
    return found / len(episodes)


def uniform(lengths: list[int], length: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    episodes = rng.integers(len(lengths), size=total)
    starts = (rng.random(total) * num_starts(lengths, length)[episodes]).astype(np.int64)
    return episodes, starts


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_share_of_onsets(share: float, count: int) -> None:
    lengths, length, total = [60] * 40, 10, 20_000
    known = [(episode, 30) for episode in range(count)]
    episodes, starts = uniform(lengths, length, total)
    chance = count * (length - 1) / sum(lengths)
    before = with_onset(episodes, starts, known, length)
    assert before == pytest.approx(count / 40 * 9 / 51, abs=0.01)
    drawn = draw_onsets(np.random.default_rng(0), lengths, known, length, share, episodes, starts)
    wanted = min(share, MAX_ONSET_OVERSAMPLING * chance)
    if wanted <= chance:  # there are enough by chance: nothing changes
        assert np.array_equal(drawn[0], episodes)
        assert np.array_equal(drawn[1], starts)
    else:
        replaced = (wanted - chance) / (1 - chance)
        expected = before + replaced * (1 - before)
        found = with_onset(*drawn, known, length)
        assert found == pytest.approx(expected, abs=0.012)
        assert found == pytest.approx(wanted, abs=0.04)  # `chance` is an estimate


@settings(deadline=None, max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    length=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_drawn_sequences_lie_in_their_episodes(lengths: list[int], length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = [
        (index, step)
        for index, one in enumerate(lengths)
        for step in range(ONSET_QUIET_STEPS, one)
        if rng.random() < 0.05
    ]
    episodes, starts = uniform(lengths, length, 50)
    drawn, first = draw_onsets(rng, lengths, known, length, 1.0, episodes, starts)
    limits = num_starts(lengths, length)[drawn]
    assert ((first >= 0) & (first < limits)).all()
    changed = (drawn != episodes) | (first != starts)
    if not known or length == 1:
        assert not changed.any()
    for episode, start in zip(drawn[changed].tolist(), first[changed].tolist(), strict=True):
        held = range(start, start + length)
        assert any(where == episode and step in held for where, step in known)


def test_without_onsets_nothing_changes() -> None:
    episodes, starts = uniform([60] * 5, 10, 100)
    drawn = draw_onsets(np.random.default_rng(0), [60] * 5, [], 10, 0.9, episodes, starts)
    assert np.array_equal(drawn[0], episodes)
    assert np.array_equal(drawn[1], starts)


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    lost=st.integers(0, 4),
    weight=st.sampled_from([1.0, 3.0]),
)
def test_an_episode_is_drawn_as_often_as_it_is_counted(
    counts: list[int], lost: int, weight: float
) -> None:
    lengths = np.array([5 if index != lost else 0 for index in range(4)])
    shares = [
        (1 if index < 2 else weight) * counts[index] * (lengths[index] > 0) for index in range(4)
    ]
    if not any(shares):
        shares = [(1 if index < 2 else weight) * (lengths[index] > 0) for index in range(4)]
    rng = np.random.default_rng(0)
    drawn = draw_episodes(rng, lengths, 20_000, 2, weight, np.array(counts))
    found = np.bincount(drawn, minlength=4) / 20_000
    np.testing.assert_allclose(found, np.array(shares) / sum(shares), atol=0.02)


def test_onsets_come_from_episodes_that_are_counted() -> None:
    lengths, known = np.full(3, 50), np.array([[0, 20], [1, 20], [2, 20]])
    settings_ = (lengths, known, 2000, 10, 0, 1.0, 1.0)
    rng = np.random.default_rng(0)
    episodes, starts = draw_sequences(rng, *settings_, np.array([1, 0, 2]))
    hit = (starts <= 20) & (starts + 10 > 20)
    assert set(episodes.tolist()) == {0, 2}
    assert hit.mean() > 0.9
    assert 0.6 < (episodes[hit] == 2).mean() < 0.73
