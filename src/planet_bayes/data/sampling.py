"""Which sequences are drawn from the episodes, as functions of the lengths and a generator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ONSET_QUIET_STEPS = 4
"""Steps without a reward before one that counts as an onset."""
MAX_ONSET_OVERSAMPLING = 20.0
"""How many times as often as by chance an onset is drawn, at most."""

Indices = NDArray[np.int64]
Lengths = Sequence[int] | Indices
"""Entries of each episode. An array is not copied, so that a draw costs the same in a long run."""


def onsets(reward: NDArray[np.float32]) -> Indices:
    """Return the steps at which a reward comes after `ONSET_QUIET_STEPS` steps without one."""
    before = np.concatenate([[0], (reward != 0).cumsum()])  # non-zero rewards before each step
    step = np.arange(ONSET_QUIET_STEPS, len(reward))
    return step[(reward[step] != 0) & (before[step] == before[step - ONSET_QUIET_STEPS])]


def num_starts(lengths: Lengths, length: int) -> Indices:
    """Return how many sequences of ``length`` each episode has, at least one."""
    return np.maximum(0, np.asarray(lengths) - length) + 1


def draw_episodes(
    rng: np.random.Generator,
    lengths: Lengths,
    total: int,
    seed_episodes: int,
    agent_weight: float,
    counts: Indices | None = None,
) -> Indices:
    """Return the numbers of ``total`` episodes.

    Each episode after the first ``seed_episodes`` is drawn ``agent_weight`` times as often as one
    of those. Episodes of length 0 are lost and not drawn. With ``counts`` ``[n]``, an episode is
    drawn that many times as often; if all would be left out, all are drawn alike.
    """
    present = np.flatnonzero(lengths)
    if counts is not None and counts[present].any():
        present = np.repeat(present, counts[present])
    count, early = len(present), int(np.searchsorted(present, seed_episodes))
    if agent_weight == 1 or not 0 < early < count:
        return present[rng.integers(count, size=total)]
    # A point on a line on which an early episode has length 1, a later one `agent_weight`.
    point = rng.random(total) * (early + agent_weight * (count - early))
    late = early + np.floor((point - early) / agent_weight)
    drawn = np.where(point < early, np.floor(point), late).astype(np.int64)
    return present[np.minimum(drawn, count - 1)]  # rounding may reach the end of the line


def draw_onsets(
    rng: np.random.Generator,
    lengths: Lengths,
    known: Sequence[tuple[int, int]] | Indices,
    length: int,
    share: float,
    episodes: Indices,
    starts: Indices,
) -> tuple[Indices, Indices]:
    """Replace some sequences so that a fraction ``share`` of them contains a reward onset.

    ``known`` are the onsets ``[n, 2]``, as episode and step. No onset is drawn more than
    `MAX_ONSET_OVERSAMPLING` times as often as by chance, because a few onsets would be memorised.
    Returns episodes and starts.
    """
    if not len(known):
        return episodes, starts
    chance = min(1.0, len(known) * (length - 1) / int(np.sum(lengths)))
    wanted = min(share, MAX_ONSET_OVERSAMPLING * chance)
    if wanted <= chance:
        return episodes, starts
    replaced = rng.random(len(episodes)) < (wanted - chance) / (1 - chance)
    which = rng.integers(len(known), size=len(episodes))
    before = 1 + np.floor(rng.random(len(episodes)) * (length - 1)).astype(np.int64)
    drawn = np.asarray(known)[which]  # [total, 2]
    latest = num_starts(np.asarray(lengths)[drawn[:, 0]], length) - 1
    return (
        np.where(replaced, drawn[:, 0], episodes),
        np.where(replaced, np.clip(drawn[:, 1] - before, 0, latest), starts),
    )


def draw_sequences(
    rng: np.random.Generator,
    lengths: Indices,
    onsets: Indices,
    total: int,
    length: int,
    seed_episodes: int,
    agent_weight: float,
    onset_share: float,
    counts: Indices | None = None,
) -> tuple[Indices, Indices]:
    """Return the episodes and starts of ``total`` sequences; see `draw_episodes`, `draw_onsets`."""
    episodes = draw_episodes(rng, lengths, total, seed_episodes, agent_weight, counts)
    starts = (rng.random(total) * num_starts(lengths[episodes], length)).astype(np.int64)
    if not onset_share:
        return episodes, starts
    if counts is not None:
        onsets = np.repeat(onsets, counts[onsets[:, 0]], 0)
    return draw_onsets(rng, lengths, onsets, length, onset_share, episodes, starts)
