"""Watched episodes: what an agent predicted at every step, and what happened.

From unchanged ones the bands and the alarm are calibrated. With further ones they are judged.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planet_bayes.agent import Agent, Prepared
from planet_bayes.confidence.calibration import Calibration, Surprise
from planet_bayes.confidence.conformal import (
    Array,
    Bands,
    Forecasts,
    calibrate,
    recent_errors,
    threshold,
    untracked,
)
from planet_bayes.confidence.monitor import WARM_UP_STEPS, Memory, smooth
from planet_bayes.diagnostics.changes import CHANGES, Disturbance
from planet_bayes.diagnostics.conditions import AnyEnv
from planet_bayes.errors import ConfigError
from planet_bayes.rng import numpy_stream
from planet_bayes.runs import Run
from planet_bayes.training.collect import Streams, episode_streams

STILL_FACTOR, STILL_STEPS = 2, 5
"""A sensor may keep its value for this many times its longest time in held-out episodes, and this
many steps more."""
NEVER_STILL = 10**9
"""The limit of a sensor that was constant: no episode is as long."""


@dataclass(frozen=True)
class Watched:
    """One episode of T steps, as the agent saw it. K counts the entries of all quantities."""

    mean: Array
    """Predicted, ``[T, H, K]``."""
    std: Array
    """Members' std, ``[T, H, K]``."""
    truth: Array
    """What happened, ``[T, H, K]``; NaN after the episode's end."""
    log_kl: Array
    """``[T]``."""
    total: float
    """Return of the episode."""
    longest_still: Array
    """Most steps in a row that each entry of the vector observations kept its value, ``[D]``."""
    low: Array | None = None
    """Lower edges of the bands while acting, ``[T, H, K]``; None: not calibrated."""
    high: Array | None = None
    """Upper edges."""
    surprise: Array | None = None
    """As `Confidence.surprise`, ``[T]``; infinite where a sensor has been still for too long."""
    alarm: NDArray[np.bool_] | None = None
    """``[T]``."""

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def forecasts(self) -> Forecasts:
        """What calibration needs."""
        return Forecasts(self.truth, self.mean, self.std)

    def inside_untracked(self, bands: Bands) -> Array:
        """Return as `inside` does for bands that misses do not move."""
        errors = bands.errors(self.truth, self.mean, self.std)
        scale = bands.scale(self.std, recent_errors(errors, bands.usual))
        low, high = bands.interval(self.mean, scale, untracked(self.mean.shape[1:]))
        return _within(self.truth, low, high)

    def inside(self) -> Array:
        """Return 1 where the truth was in the band, 0 where not, NaN where unknown."""
        assert self.low is not None
        assert self.high is not None
        return _within(self.truth, self.low, self.high)

    def width(self) -> Array:
        """Return the width of the bands while acting, ``[T, H, K]``."""
        assert self.low is not None
        assert self.high is not None
        return self.high - self.low


def _within(truth: Array, low: Array, high: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(truth), (truth >= low) & (truth <= high), np.nan)


def watch(
    env: AnyEnv, agent: Agent, streams: Streams, disturbance: Disturbance | None = None
) -> Watched:
    """Play one noise-free episode with an agent that has a monitor."""
    raw, _ = env.reset(seed=streams.env_seed)
    carry = agent.initial()
    rewards: list[float] = []
    seen: list[Prepared] = []
    made: list[Memory] = []
    reward: float | None = None
    done = False
    while not done:
        step = len(made)
        observation: Prepared = agent.signature.prepare(raw)
        if disturbance is not None:
            disturbance.begin(step, env)
            observation = disturbance.sense(step, observation)
        given = None if reward is None else [reward]
        action, carry, _ = agent.act_on_prepared(carry, [observation], streams.agent, rewards=given)
        assert carry.memory is not None
        made.append(carry.memory)
        rewards.append(0.0 if reward is None else reward)
        seen.append(observation)
        raw, earned, terminated, truncated, _ = env.step(action[0])
        reward, done = float(earned), terminated or truncated
    return watched(agent, made, seen, np.array(rewards), sum(rewards) + (reward or 0.0))


def watched(
    agent: Agent,
    made: Sequence[Memory],
    seen: Sequence[Prepared],
    rewards: Array,
    total: float,
) -> Watched:
    """Return an episode from what the monitor remembered at each of its steps.

    Args:
        agent: The agent with a monitor.
        made: What the monitor remembered, at each step.
        seen: What the agent saw.
        rewards: The rewards ``[T]`` that came with that.
        total: Return of the episode.
    """
    assert agent.monitor is not None
    names = agent.signature.vector_sizes()
    predictions = [memory.predictions[0] for memory in made]
    mean = np.concatenate([one.mean for one in predictions])
    vectors = [np.stack([one[name] for one in seen]) for name in names]  # each [T, D]
    log_kl = np.concatenate([memory.log_kl for memory in made if memory.log_kl is not None])
    plain = Watched(
        mean=mean,
        std=np.concatenate([one.std for one in predictions]),
        truth=realised(rewards, vectors, mean.shape[1]),
        log_kl=log_kl,
        total=total,
        longest_still=np.max([one.still[0] for one in made if one.still is not None], 0),
    )
    sure = [memory.confidence for memory in made if memory.confidence is not None]
    if not sure:
        return plain
    return dataclasses.replace(
        plain,
        low=np.concatenate([_joined(band.low for band in one.bands.values()) for one in sure]),
        high=np.concatenate([_joined(band.high for band in one.bands.values()) for one in sure]),
        surprise=np.concatenate([np.where(one.still > 1, np.inf, one.surprise) for one in sure]),
        alarm=np.concatenate([one.alarm for one in sure]),
    )


def _joined(parts: Iterable[Array]) -> Array:
    """Return ``[B, H, K]`` of quantities ``[B, H]`` and ``[B, H, D]``."""
    return np.concatenate([part[..., None] if part.ndim == 2 else part for part in parts], -1)


def realised(rewards: Array, vectors: Sequence[NDArray[np.generic]], horizon: int) -> Array:
    """Return what happened 1 to H steps after each step, ``[T, H, K]``; NaN: the episode was over.

    Args:
        rewards: The rewards ``[T]`` that came with the observations.
        vectors: Vector observations, each ``[T, D]``.
        horizon: H.
    """
    steps = len(rewards)
    sums = rewards.cumsum()
    now = np.concatenate([rewards[:, None], sums[:, None], *vectors], -1)  # [T, K]
    truth = np.full((steps, horizon, now.shape[1]), np.nan)
    for ahead in range(1, min(horizon, steps - 1) + 1):
        truth[:-ahead, ahead - 1] = now[ahead:]
        truth[:-ahead, ahead - 1, 1] -= sums[:-ahead]
    return truth


def calibration_of(
    episodes: Sequence[Watched], agent: Agent, level: float, rate: float, weights: str
) -> Calibration:
    """Return the calibration that held-out episodes give.

    Args:
        episodes: Watched episodes that the model was not fitted to.
        agent: The agent that played them.
        level: Share of truths that a band contains.
        rate: False alarms a step.
        weights: Checksum of the agent's weights.
    """
    check_rates(level, rate)
    if not episodes:
        raise ConfigError("there are no held-out episodes, so there is no band; play some first.")
    bands = calibrate([one.forecasts for one in episodes], level)
    usual = np.concatenate([one.log_kl[WARM_UP_STEPS:] for one in episodes])
    if not len(usual):
        raise ConfigError(f"no held-out episode has more than {WARM_UP_STEPS} steps.")
    center, scale = float(usual.mean()), max(float(usual.std()), 1e-6)
    scores = [smoothed_surprise((one.log_kl - center) / scale) for one in episodes]
    judged = [one[WARM_UP_STEPS:] for one in scores]
    longest = np.max([one.longest_still for one in episodes], 0)
    constant = np.any([one.longest_still >= len(one) - 1 for one in episodes], 0)
    assert agent.monitor is not None
    return Calibration(
        level=level,
        entries=agent.monitor.entries,
        bands=bands,
        surprise=Surprise(center, scale, threshold(judged, rate), max(rate, 1 / (len(usual) + 1))),
        # An entry that kept its value for a whole episode, such as a goal, may do so again.
        still=tuple(
            NEVER_STILL if same else int(STILL_FACTOR * most + STILL_STEPS)
            for most, same in zip(longest, constant, strict=True)
        ),
        episodes=len(episodes),
        steps=sum(map(len, episodes)),
        weights=weights,
    )


def check_rates(level: float, rate: float) -> None:
    """Refuse a level of bands or a rate of false alarms that no calibration can have."""
    if not 0.5 <= level < 1:
        raise ConfigError(f"level must be at least 0.5 and less than 1, got {level}.")
    if not 0 < rate < 1:
        raise ConfigError(f"the rate of false alarms must be between 0 and 1, got {rate}.")


def smoothed_surprise(standardised: Array) -> Array:
    """Return the moving average of an episode ``[T]``, as the monitor has it step by step."""
    values, before = [], None
    for step, value in enumerate(standardised):
        before = smooth(before, np.array([value]), step)
        values.append(before)
    return np.concatenate(values) if values else standardised


def watch_run(
    run: Run,
    agent: Agent,
    name: str,
    episodes: int,
    change: str | None = None,
    scales: Mapping[str, NDArray[np.generic]] | None = None,
    start: int = 0,
    seed: int = 0,
) -> list[Watched]:
    """Play watched episodes in fresh environments.

    Args:
        run: The run, on the CPU.
        agent: Its agent with a monitor.
        name: Of the set of starts.
        episodes: How many.
        change: A name in `CHANGES`; None: nothing changes.
        scales: Std of each entry of each vector observation in clean episodes.
        start: The step at which the change begins.
        seed: Of all episodes, whatever the run's own seed is.
    """
    made = []
    for number in range(episodes):
        streams = episode_streams(seed, f"watch-{name}", number, "cpu")
        disturbance = None
        if change is not None:
            rng = numpy_stream(seed, f"watch-{name}-noise", number)
            disturbance = Disturbance(CHANGES[change], start, agent.signature, scales or {}, rng)
        # A fresh environment each time: a change of the physics would stay.
        with contextlib.closing(run.make_env()) as env:
            made.append(watch(env, agent, streams, disturbance))
    return made
