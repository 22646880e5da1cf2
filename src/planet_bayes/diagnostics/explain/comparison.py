"""Several agents on the same starts, side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from planet_bayes.data.folder import labels
from planet_bayes.diagnostics.explain.document import (
    Plain,
    baseline_facts,
    episode_facts,
    summary,
)
from planet_bayes.diagnostics.explain.outlook import outlook
from planet_bayes.diagnostics.explain.source import play_start
from planet_bayes.errors import ConfigError
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.collect import play

MIN_RUNS, MAX_RUNS = 2, 4
SEED = 0
"""Root of the starts, whatever the seeds of the runs are."""
STARTS = "compare"
SAME = ("original", "action_repeat", "max_steps")
"""Settings of the environment in which runs must agree."""


def check(runs: Sequence[Run]) -> None:
    """Refuse runs that cannot be compared."""
    first = runs[0].config
    for run in runs[1:]:
        if run.config.task != first.task:
            raise ConfigError(
                f"{runs[0].path} was trained on {first.task} and {run.path} on {run.config.task}; "
                "compare runs of one task."
            )
        for name in SAME:
            left, right = getattr(first.env, name), getattr(run.config.env, name)
            if left != right:
                raise ConfigError(
                    f"env.{name} is {left} in {runs[0].path} and {right} in {run.path}; compare "
                    "runs of one environment."
                )


def compared(
    runs: Sequence[Run],
    episodes: int,
    command: str,
    report: Callable[[str], None] = lambda title: None,
) -> Plain:
    """Return the figures of a page: the first start in full, and the returns of all.

    Args:
        runs: Runs of one task, on the CPU.
        episodes: Starts.
        command: The command that makes the page.
        report: Called with what is played.
    """
    check(runs)
    names = labels([run.path for run in runs])
    facts, returns = [], []
    for run, name in zip(runs, names, strict=True):
        report(name)
        scene = play_start(run, 0, STARTS, SEED)
        known = episode_facts(run, scene, outlook(run.agent, scene.recording))
        facts.append({**known, "run": name, "method": run.config.method})
        returns.append(start_returns(run, episodes))
    return {
        "task": runs[0].config.task,
        "baselines": baseline_facts(runs[0], played=True),
        "runs": facts,
        "returns": [
            {**summary(values), "values": values, "low": min(values), "high": max(values)}
            for values in returns
        ],
        "command": command,
    }


def start_returns(run: Run, episodes: int) -> list[float]:
    """Return the returns of noise-free episodes from the starts."""
    values = []
    with contextlib.closing(run.make_env()) as env:
        for start in range(episodes):
            seed = integer_seed(SEED, f"{STARTS}-environment", start)
            values += play([env], run.agent, [seed], torch_stream(SEED, f"{STARTS}-agent", start))
    return [float(value) for value in np.asarray(values)]
