"""Watch an agent while it acts: predict what its plan leads to, and compare with what happens.

At each step the monitor imagines the plan that the agent has chosen, by each member: rewards,
returns and vector observations 1 to H steps ahead. These are predictions of what will *happen*,
so their errors contain those of the model and what later planning changes. Images are not
predicted: decoding them takes longer than planning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.confidence.calibration import RETURN, REWARD, Calibration, columns
from planet_bayes.confidence.conformal import Array, Tracked, untracked
from planet_bayes.confidence.prediction import Prediction, predict
from planet_bayes.errors import ConfigError, ObservationError
from planet_bayes.models import Normal, WorldModel
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.losses import kl_divergence
from planet_bayes.types import Belief

WARM_UP_STEPS = 5
"""First steps of an episode that have no alarm: the filter starts from a zero belief."""
SMOOTHING_STEPS = 5
"""Time constant of the exponential moving average of the surprise."""


@dataclass(frozen=True)
class Band:
    """A prediction 1 to H steps ahead: ``[B, H]``, or ``[B, H, D]`` for an observation."""

    low: Array
    mean: Array
    """The mean over members."""
    high: Array


@dataclass(frozen=True)
class Confidence:
    """How sure the agent is of what comes next, in each of B environments."""

    bands: dict[str, Band]
    """By quantity: ``reward`` at each step ahead, ``return`` up to it, and vector observations by
    name."""
    disagreement: Array
    """Members' std of the return over the horizon, ``[B]``; 0 with one member."""
    surprise: Array
    """How unexpected the last observations were, ``[B]``: the log KL of posterior and prior, in
    stds from its mean in held-out episodes, averaged over some steps."""
    still: Array
    """How long a sensor has kept exactly its value, as a share of the time allowed, ``[B]``; the
    largest over sensors. A sensor that has failed often repeats its last value."""
    alarm: NDArray[np.bool_]
    """Whether the surprise is above its threshold, or a sensor still for too long, or no member
    predicts finite numbers, ``[B]``."""


@dataclass(frozen=True)
class Memory:
    """What a monitor remembers of an episode. A new episode begins with a new one."""

    predictions: tuple[Prediction, ...] = ()
    """Of the last H steps, the newest first."""
    scales: tuple[Array, ...] = ()
    """Their units of scores, ``[B, H, K]``; none without a calibration."""
    rewards: tuple[Array, ...] = ()
    """Rewards ``[B]`` of the last H steps, the newest first; NaN: unknown."""
    recent: Array | None = None
    """The size of recent errors, ``[B, H, K]``."""
    tracked: Tracked | None = None
    """How far misses have moved the edges of the bands."""
    log_kl: Array | None = None
    """The log KL of posterior and prior at the last step, mean over members, ``[B]``."""
    surprise: Array | None = None
    """The averaged, standardised one."""
    seen: Array | None = None
    """The last vector observations, ``[B, D]``."""
    still: Array | None = None
    """Steps in a row that each of them has kept its value, ``[B, D]``."""
    steps: int = 0
    confidence: Confidence | None = None
    """Of the last step; None without a calibration."""

    def without(self, dropped: NDArray[np.bool_]) -> Memory:
        """Return it without predictions in the environments ``[B]`` where another controller acts.

        They were made for the agent's plan, so what happens says nothing about them.
        """
        gone = dropped[:, None, None]
        return dataclasses.replace(
            self,
            predictions=tuple(
                dataclasses.replace(one, mean=np.where(gone, np.nan, one.mean))
                for one in self.predictions
            ),
        )


class Monitor:
    """Predicts, remembers and judges. It draws no random numbers and changes no action.

    Args:
        model: The world model.
        entries: Names of the vector observations to predict and their sizes.
        calibration: Bands and threshold. None: predictions are remembered and not judged.
    """

    def __init__(
        self,
        model: WorldModel,
        entries: Mapping[str, int],
        calibration: Calibration | None = None,
    ) -> None:
        self.model, self.calibration = model, calibration
        self.entries = {REWARD: 1, RETURN: 1, **entries}
        self._vectors = tuple(entries)
        if calibration is not None and calibration.entries != self.entries:
            raise ConfigError(
                f"the calibration is for {', '.join(calibration.entries)} and the agent predicts "
                f"{', '.join(self.entries)}, or their sizes differ: calibrate this agent."
            )

    def update(
        self,
        memory: Memory,
        belief: Belief,
        posterior: Normal,
        actions: Tensor,
        observation: Mapping[str, Tensor],
        rewards: Sequence[float] | None,
        imagination: Imagination | None = None,
    ) -> Memory:
        """Return the memory after a step, with the confidence in it.

        Args:
            memory: The memory of the step before.
            belief: The members' beliefs ``[P, B, ...]`` after the observation.
            posterior: The distribution that they were drawn from.
            actions: The plan ``[B, H, A]``. Its first action is the one that is executed.
            observation: Prepared observations by name, ``[B, ...]``.
            rewards: What the last actions earned, B numbers; None: unknown.
            imagination: That of the model, if its weights are packed already.
        """
        batch = len(actions)
        earned = np.full(batch, np.nan) if rewards is None else np.asarray(rewards, np.float64)
        if earned.shape != (batch,):
            raise ObservationError(
                f"rewards: expected one number for each of {batch} environments, or None, got "
                f"{rewards!r}."
            )
        prediction = predict(self.model, belief, actions, self._vectors, imagination)
        horizon = prediction.mean.shape[1]
        history = (earned, *memory.rewards)[:horizon]
        log_kl = log_surprise(self.model, belief, posterior)
        parts = [observation[name].numpy(force=True) for name in self._vectors]
        seen = np.concatenate(parts, -1, dtype=np.float64) if parts else np.zeros((batch, 0))
        after = Memory(
            predictions=(prediction, *memory.predictions)[:horizon],
            rewards=history,
            log_kl=log_kl,
            seen=seen,
            still=still_steps(memory.still, memory.seen, seen),
            steps=memory.steps + 1,
        )
        if self.calibration is None:
            return after
        bands = self.calibration.bands
        tracked = memory.tracked or untracked(prediction.mean.shape)
        recent = np.ones_like(prediction.mean) if memory.recent is None else memory.recent
        if memory.predictions:
            misses, scale = self._misses(memory, history, seen)
            recent = bands.after(recent, misses / scale[0])
            scores = misses / scale[1] - bands.center
            tracked = tracked.moved(scores, bands, self.calibration.level)
        scales = bands.scale(prediction.std, recent)
        surprise = smoothed(memory.surprise, log_kl, memory.steps, self.calibration)
        return dataclasses.replace(
            after,
            scales=(scales, *memory.scales)[:horizon],
            recent=recent,
            tracked=tracked,
            surprise=surprise,
            confidence=self._confidence(prediction, scales, tracked, surprise, after),
        )

    def _misses(
        self, memory: Memory, rewards: tuple[Array, ...], seen: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """Return how far all predictions for this moment were off, and the units of that.

        All are ``[B, H, K]``; NaN: there was no prediction. The units are the members' spread, and
        that times the recent errors when the prediction was made.
        """
        assert self.calibration is not None
        count = len(memory.predictions)
        # The prediction of h steps ago, at h steps ahead: the diagonal.
        index = np.arange(count)
        made = [one.mean for one in memory.predictions] + [one.std for one in memory.predictions]
        parts = np.concatenate([*made, *memory.scales])  # [3 · n · B, H, K]
        parts = parts.reshape(3, count, -1, *parts.shape[1:])[:, index, :, index]
        mean, std, scale = parts.swapaxes(0, 1)  # each [n, B, K]
        truth = np.empty_like(mean)
        truth[..., 0] = rewards[0]
        truth[..., 1] = np.cumsum(np.stack(rewards), 0)[:count]
        truth[..., 2:] = seen
        floor = self.calibration.bands.floor
        found = np.full((mean.shape[1], *floor.shape), np.nan)
        found[:, :count] = (truth - mean).swapaxes(0, 1)
        spread, unit = np.ones_like(found), np.ones_like(found)
        spread[:, :count] = (std + floor[:count, None]).swapaxes(0, 1)
        unit[:, :count] = scale.swapaxes(0, 1)
        return found, (spread, unit)

    def _confidence(
        self,
        prediction: Prediction,
        scale: Array,
        tracked: Tracked,
        surprise: Array,
        memory: Memory,
    ) -> Confidence:
        assert self.calibration is not None
        low, high = self.calibration.bands.interval(prediction.mean, scale, tracked)
        bands = {}
        for name, where in columns(self.entries).items():
            scalar = name in (REWARD, RETURN)
            parts = (part[..., where] for part in (low, prediction.mean, high))
            bands[name] = Band(*(part[..., 0] if scalar else part for part in parts))
        assert memory.still is not None
        limits = np.array(self.calibration.still, np.float64)
        still = (memory.still / limits).max(-1, initial=0.0)
        alarm = (surprise > self.calibration.surprise.threshold) | (still > 1)
        alarm &= memory.steps > WARM_UP_STEPS
        return Confidence(
            bands=bands,
            disagreement=prediction.std[:, -1, 1],
            surprise=surprise,
            still=still,
            alarm=alarm | np.isnan(surprise) | np.isnan(prediction.mean).any((1, 2)),
        )


def still_steps(before: Array | None, last: Array | None, seen: Array) -> Array:
    """Return for how many steps in a row each entry of ``[B, D]`` has kept exactly its value."""
    if before is None or last is None:
        return np.zeros_like(seen)
    return np.where(seen == last, before + 1, 0.0)


@torch.no_grad()
def log_surprise(model: WorldModel, belief: Belief, posterior: Normal) -> Array:
    """Return log KL(q(s | h, o) || p(s | h)), the mean over members in nats, ``[B]``."""
    prior = model.rssm.prior(model.weights(), belief.deter)
    nats = kl_divergence(posterior, prior).double().numpy(force=True)  # [P, B]
    finite = np.isfinite(nats)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(finite, nats, 0).sum(0) / finite.sum(0)
    return np.log(np.maximum(mean, 1e-6))  # NaN: all members are dead


def smoothed(before: Array | None, log_kl: Array, steps: int, calibration: Calibration) -> Array:
    """Return the standardised surprise, averaged over some steps (see `smooth`)."""
    reference = calibration.surprise
    return smooth(before, (log_kl - reference.mean) / reference.std, steps)


def smooth(before: Array | None, value: Array, steps: int) -> Array:
    """Return the next value of the moving average, which begins at 0 after the warm-up.

    It is NaN where the value is, and begins anew after that.
    """
    if before is None or steps < WARM_UP_STEPS:
        return np.where(np.isnan(value), np.nan, 0.0)
    before = np.where(np.isnan(before), 0.0, before)
    return before + (value - before) / SMOOTHING_STEPS
