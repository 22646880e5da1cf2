"""What is kept of runs under results/: their curves and settings, and the level of no policy.

``python -m planet_bayes.experiments.archive collect results/NAME runs/A runs/B`` copies metrics and
settings of each run that has ended to ``results/NAME/<method>/<task>-<observation>/seed-<n>``, and
``… archive baselines results/NAME TASK …`` writes what random and zero actions return to
``baselines.json``.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from planet_bayes import config as configuration
from planet_bayes.envs import EnvConfig, Policy, random_return
from planet_bayes.training.metrics import read_metrics

POLICIES: tuple[Policy, ...] = ("random", "zero")


def collect(folder: Path, runs: list[Path]) -> None:
    """Copy the curves and settings of the runs that have ended."""
    for run in runs:
        config = configuration.load(run / "config.json")
        rows = read_metrics(run / "metrics.jsonl")
        if not rows or rows[-1]["episode"] != config.train.episodes:
            print(f"{run} has not ended: left out")
            continue
        target = folder / config.method / f"{config.task}-{config.env.observation}"
        target.mkdir(parents=True, exist_ok=True)
        settings = target / f"seed-{config.seed}.json"
        if settings.is_file():
            changed = configuration.differences(configuration.load(settings), config)
            if changed:
                print(f"{run} replaces one of other settings: {', '.join(sorted(changed))}")
        shutil.copyfile(run / "metrics.csv", settings.with_suffix(".csv"))
        shutil.copyfile(run / "config.json", settings)


def baselines(folder: Path, tasks: list[str], episodes: int = 50) -> None:
    """Write mean and std of the returns of random and of zero actions."""
    levels: dict[str, dict[str, dict[str, float]]] = {}
    for task in tasks:
        levels[task] = {}
        for policy in POLICIES:
            returns = random_return(task, EnvConfig("state"), episodes, 0, policy)
            levels[task][policy] = {
                "mean": float(np.mean(returns)),
                "std": float(np.std(returns)),
                "episodes": len(returns),
            }
    (folder / "baselines.json").write_text(json.dumps(levels, indent=2) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", folder, *found]:
            collect(Path(folder), [Path(run) for run in found])
        case ["baselines", folder, *tasks]:
            baselines(Path(folder), tasks)
        case _:
            raise SystemExit(__doc__)
