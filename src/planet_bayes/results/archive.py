"""Copy finished runs' curves, settings and commits to ``results/``; measure simple policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planet_bayes.data import files
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.rows import read_metrics
from planet_bayes.results.curves import BASELINES, RunName

if TYPE_CHECKING:
    from planet_bayes.config import Config

BASELINE_EPISODES = 50


def has_ended(run: RunFolder, config: Config) -> bool:
    """Return whether a run with these settings has all rows of its metrics."""
    rows = read_metrics(run.metrics)
    return bool(rows) and rows[-1]["episode"] == config.collect.episodes


def collect(folder: Path, runs: list[Path]) -> list[str]:
    """Copy the curves, settings and commits of finished runs.

    Returns:
        A sentence for each run that was left out, or that replaced one of other settings.
    """
    from planet_bayes import config as configuration  # late: it imports PyTorch

    messages = []
    for path in runs:
        run = RunFolder(path)
        config = configuration.load(run.config)
        if not has_ended(run, config):
            messages.append(f"{path} has not ended: left out")
            continue
        name = RunName(config.method, config.task, config.env.label, config.seed)
        settings = folder / name.path.with_name(f"{name.path.name}.json")
        settings.parent.mkdir(parents=True, exist_ok=True)
        if settings.is_file():
            changed = configuration.differences(configuration.load(settings), config)
            if changed:
                messages.append(
                    f"{path} replaces a run of other settings: {', '.join(sorted(changed))}"
                )
        files.write(settings, run.config.read_bytes())
        if run.commits.is_file():
            files.write(settings.with_suffix(".commits.json"), run.commits.read_bytes())
        # Last, and whole or not at all: a run whose curve is there has been archived.
        files.write(settings.with_suffix(".csv"), run.table.read_bytes())
    return messages


def baselines(folder: Path, tasks: list[str], episodes: int = BASELINE_EPISODES) -> Path:
    """Write mean and std of the returns of random and of zero actions."""
    from planet_bayes.envs import EnvConfig, Policy, random_return  # late: it imports PyTorch

    policies: tuple[Policy, ...] = ("random", "zero")
    levels: dict[str, dict[str, dict[str, float]]] = {}
    for task in tasks:
        levels[task] = {}
        for policy in policies:
            config = EnvConfig(observation=("state",))
            returns = random_return(task, config, episodes, 0, policy)
            levels[task][policy] = {
                "mean": float(np.mean(returns)),
                "std": float(np.std(returns)),
                "episodes": len(returns),
            }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / BASELINES
    path.write_text(json.dumps(levels, indent=2) + "\n")
    return path
