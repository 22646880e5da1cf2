"""Do bands hold, and does the alarm ring? Figures of watched episodes, as records and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from planet_bayes.agent import Agent
from planet_bayes.confidence.calibration import Calibration, columns
from planet_bayes.confidence.conformal import Array, alarms_raised
from planet_bayes.confidence.monitor import WARM_UP_STEPS
from planet_bayes.diagnostics.calibration import auroc, rank_correlation
from planet_bayes.diagnostics.changes import CHANGES
from planet_bayes.diagnostics.conditions import NotApplicable
from planet_bayes.diagnostics.logged import refuse_known, watch_log
from planet_bayes.diagnostics.watching import Watched, calibration_of, check_rates, watch_run
from planet_bayes.errors import ConfigError
from planet_bayes.runs import Run
from planet_bayes.training.offline import logged_paths
from planet_bayes.training.weights import digest

NOTICE_STEPS = 50
"""Steps after a change within which an alarm counts."""
SETTLING_STEPS, SETTLED_STEPS = 30, 100
"""Steps after a change before bands are judged, and the last steps of an episode over which they
are. A truth 15 steps ahead is known only 15 steps after the change. In short episodes bands are
judged over the second half of what follows the change."""
START_SHARE = 1 / 3
"""When a change begins, as a share of the median length of the clean episodes."""


@dataclass(frozen=True)
class Held:
    """How the bands of one quantity held on unchanged episodes, each ``[H]``."""

    calibrated: Array
    """Coverage of the calibrated bands, without tracking."""
    adapted: Array
    """Coverage of the bands while acting, whose edges track misses."""
    width: Array
    """Mean width of the bands while acting."""
    rank_correlation: Array
    """Spearman's correlation of the members' std and the error."""


@dataclass(frozen=True)
class Noticed:
    """What a change did to the agent, its bands and its alarm."""

    total: float
    """Mean return of the episodes."""
    auroc: float
    """Of the largest surprise within `NOTICE_STEPS`, against the same steps of clean episodes."""
    alarms: float
    """Share of the episodes with an alarm within `NOTICE_STEPS`."""
    calibrated: dict[str, float]
    """Coverage without tracking, from `SETTLING_STEPS` after the change on, by quantity, mean over
    steps ahead."""
    adapted: dict[str, float]
    """The same of the bands while acting."""


@dataclass(frozen=True)
class Judgement:
    """All figures of one agent."""

    calibration: Calibration
    held: dict[str, Held]
    """By quantity."""
    false_alarms: float
    """Alarms a step of unchanged episodes. An alarm that lasts counts once."""
    steps: int
    """How many these are."""
    total: float
    """Mean return of the unchanged episodes."""
    start: int
    """The step at which changes begin."""
    noticed: dict[str, Noticed] = field(default_factory=dict)
    """By change."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a change is missing."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures; those that are not finite are None."""
        plain = {key: value for key, value in vars(self).items() if key != "calibration"}
        return _plain({**plain, "level": self.calibration.level})


def calibrate_run(
    run: Run,
    episodes: int,
    test_episodes: int,
    changed_episodes: int,
    level: float,
    rate: float,
    report: Callable[[str], None] = lambda title: None,
    seed: int = 0,
) -> Judgement:
    """Calibrate a run's agent on fresh episodes, and judge it on others.

    Args:
        run: The run, on the CPU.
        episodes: Episodes to calibrate with.
        test_episodes: Other unchanged episodes.
        changed_episodes: Episodes for each change.
        level: Share of truths that a band contains.
        rate: False alarms a step.
        report: Called with what begins.
        seed: Of all episodes.
    """
    check_rates(level, rate)
    counts = {"episodes": (episodes, 1), "test_episodes": (test_episodes, 1)}
    counts |= {"changed_episodes": (changed_episodes, 0), "seed": (seed, 0)}
    for name, (count, least) in counts.items():
        if count < least:
            raise ConfigError(f"{name} must be at least {least}, got {count}.")
    report("held-out episodes")
    plain = run.agent.watched()
    held_out = watch_run(run, plain, "held-out", episodes, seed=seed)
    known = calibration_of(held_out, plain, level, rate, digest(run.agent.model))
    agent = run.agent.watched(known)
    report("later episodes")
    clean = watch_run(run, agent, "later", test_episodes, seed=seed)
    start = start_of_changes(clean)
    noticed, skipped = {}, {}
    for name, change in CHANGES.items() if changed_episodes else ():
        report(change.title)
        try:
            made = watch_changed(run, agent, name, changed_episodes, held_out, start, seed)
            noticed[name] = judge_change(made, clean, known, start)
        except NotApplicable as error:
            skipped[name] = str(error)
    return judge(known, clean, start, noticed, skipped)


def start_of_changes(clean: Sequence[Watched]) -> int:
    """Return the step at which changes begin."""
    return int(START_SHARE * np.median([len(one) for one in clean]))


def calibrate_log(run: Run, folder: Path, level: float, rate: float) -> Judgement:
    """Calibrate a run's agent on every second episode of a log, and judge it on the others.

    Args:
        run: The run, on the CPU.
        folder: Episodes of this agent (see `planet_bayes.diagnostics.logged`).
        level: Share of truths that a band contains.
        rate: False alarms a step.
    """
    check_rates(level, rate)
    count = len(logged_paths(folder))
    if count < 2:
        raise ConfigError(f"{folder} has one episode, and one more is needed to judge the bands.")
    refuse_known(run, folder)
    plain = run.agent.watched()
    held_out = watch_log(run, plain, folder, "held-out", range(0, count, 2))
    known = calibration_of(held_out, plain, level, rate, digest(run.agent.model))
    later = watch_log(run, run.agent.watched(known), folder, "later", range(1, count, 2))
    return judge(known, later, 0, {}, {})


def judge(
    known: Calibration,
    clean: Sequence[Watched],
    start: int,
    noticed: dict[str, Noticed],
    skipped: dict[str, str],
) -> Judgement:
    """Return all figures of an agent.

    Args:
        known: Its calibration.
        clean: Unchanged episodes that the calibration was not made from.
        start: The step at which changes begin.
        noticed: What changes did, by name.
        skipped: Why a change is missing, by name.
    """
    alarms = [one.alarm[WARM_UP_STEPS:] for one in clean if one.alarm is not None]
    steps = sum(map(len, alarms))
    return Judgement(
        calibration=known,
        held=judge_bands(clean, known),
        false_alarms=sum(map(alarms_raised, alarms)) / max(1, steps),
        steps=steps,
        total=float(np.mean([one.total for one in clean])),
        start=start,
        noticed=noticed,
        skipped=skipped,
    )


def watch_changed(
    run: Run,
    agent: Agent,
    name: str,
    episodes: int,
    clean: Sequence[Watched],
    start: int,
    seed: int,
) -> list[Watched]:
    """Play episodes in which something changes at step ``start``.

    Args:
        run: The run, on the CPU.
        agent: Its agent with a calibrated monitor.
        name: The change.
        episodes: How many.
        clean: Unchanged episodes, which give the scales of the sensors.
        start: When the change begins.
        seed: Of all episodes.
    """
    where = columns(agent.signature.vector_sizes())
    now = np.concatenate([one.truth[:-1, 0, 2:] for one in clean])  # sensors, one step ahead
    scales = {key: np.nanstd(now[:, part], axis=0) for key, part in where.items()}
    return watch_run(run, agent, name, episodes, name, scales, start, seed)


def judge_bands(clean: Sequence[Watched], known: Calibration) -> dict[str, Held]:
    """Return how the bands held, by quantity."""
    truth, mean, std = (
        np.concatenate([getattr(one, name) for one in clean]) for name in ("truth", "mean", "std")
    )
    fixed = np.concatenate([one.inside_untracked(known.bands) for one in clean])
    moving = np.concatenate([one.inside() for one in clean])
    width = np.concatenate([one.width() for one in clean])
    found = {}
    for name, where in columns(known.entries).items():
        found[name] = Held(
            calibrated=np.nanmean(fixed[..., where], (0, 2)),
            adapted=np.nanmean(moving[..., where], (0, 2)),
            width=width[..., where].mean((0, 2)),
            rank_correlation=_ranks(truth[..., where], mean[..., where], std[..., where]),
        )
    return found


def _ranks(truth: Array, mean: Array, std: Array) -> Array:
    """Return the rank correlation of error and std at each step ahead, ``[H]``."""
    found = []
    for ahead in range(truth.shape[1]):
        known = np.isfinite(truth[:, ahead]).all(-1)
        error = np.sqrt(np.square(truth[known, ahead] - mean[known, ahead]).mean(-1))
        spread = np.sqrt(np.square(std[known, ahead]).mean(-1))
        found.append(rank_correlation(error[:, None], spread[:, None])[0])
    return np.array(found)


def judge_change(
    changed: Sequence[Watched], clean: Sequence[Watched], known: Calibration, start: int
) -> Noticed:
    """Return what a change that begins at ``start`` did, in episodes that last longer.

    Those are also the clean episodes that it is compared with.
    """
    changed, clean = ([one for one in part if len(one) > start] for part in (changed, clean))
    if not changed:
        raise NotApplicable(f"every episode ended before it began, at step {start}.")
    window = slice(start, start + NOTICE_STEPS)
    scores = [
        np.array([[one.surprise[window].max()] for one in part if one.surprise is not None])
        for part in (changed, clean)
    ]
    alarms = [one.alarm[window].any() for one in changed if one.alarm is not None]
    fixed, moving = [], []
    for one in changed:
        settling = min(SETTLING_STEPS, (len(one) - start) // 2)
        after = slice(max(start + settling, len(one) - SETTLED_STEPS), None)
        fixed.append(one.inside_untracked(known.bands)[after])
        moving.append(one.inside()[after])
    by_name = columns(known.entries)
    return Noticed(
        total=float(np.mean([one.total for one in changed])),
        auroc=float(auroc(*scores)[0]),
        alarms=float(np.mean(alarms)),
        calibrated={key: _mean(fixed, where) for key, where in by_name.items()},
        adapted={key: _mean(moving, where) for key, where in by_name.items()},
    )


def _mean(parts: Sequence[Array], where: slice) -> float:
    return float(np.nanmean(np.concatenate([part[..., where] for part in parts])))


def _plain(value: Any) -> Any:
    """Return numbers, lists and tables that JSON knows."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Held | Noticed):
        return _plain(vars(value))
    if isinstance(value, np.ndarray):
        return [_plain(float(part)) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
