"""Copy the curves and settings of finished runs to ``results/``, and measure simple policies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from planet_bayes.data.folder import RunFolder
from planet_bayes.data.rows import read_metrics
from planet_bayes.results.curves import BASELINES, RunName

BASELINE_EPISODES = 50


def collect(folder: Path, runs: list[Path]) -> list[str]:
    """Copy the curves and settings of finished runs.

    Returns:
        A sentence for each run that was left out, or that replaced one of other settings.
    """
    from planet_bayes import config as configuration  # late: it imports PyTorch

    messages = []
    for path in runs:
        run = RunFolder(path)
        config = configuration.load(run.config)
        rows = read_metrics(run.metrics)
        if not rows or rows[-1]["episode"] != config.collect.episodes:
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
        shutil.copyfile(run.table, settings.with_suffix(".csv"))
        shutil.copyfile(run.config, settings)
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
