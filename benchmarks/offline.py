"""Learn from a log of mixed quality alone, and plan in the model with more and less caution.

For each seed, a log of `cartpole_swingup` from sensors is made: episodes of random actions, of the
shipped agent with heavy noise on its actions, and a few with less noise. A model is fitted to the
log alone (``planet-bayes train --offline``, settings of `quick`). Its agent then plays noise-free
episodes with each caution β (``planner.caution``): same weights, same starts.

Run:  python benchmarks/offline.py                       # about 3 minutes of one core per seed
      python benchmarks/offline.py --read offline.jsonl  # the table again
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from planet_bayes import runs
from planet_bayes.config import PRESETS, Config
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics.replan import replan
from planet_bayes.envs import EnvConfig, make_env, random_return
from planet_bayes.training.collect import collect_random, collect_with_agent, episode_streams

TASK = "cartpole_swingup"
AGENT = Path(__file__).parents[1] / "agents" / TASK
STARTS = 77
"""Number of the set of starts of the return: not one of training or of `evaluate`."""


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds. Each has a log, a model and starts of its own."""
    random: int = 10
    """Episodes of random actions in a log."""
    noise: tuple[float, ...] = (1.0, 1.0, 1.0, 0.5)
    """Std of the noise on the agent's actions, for each of its episodes in a log."""
    updates: int = 1000
    """Updates of each model."""
    cautions: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, -0.5)
    """β."""
    episodes: int = 4
    """Noise-free episodes for each seed and β."""
    folder: Path = Path("runs/offline")
    """Where logs and runs are; those that are there already are used."""
    write: Path = Path("offline.jsonl")
    """Where each result is added. A result that is there already is not repeated."""
    read: Path | None = None
    """Only make the table of this file."""


def make_log(options: Options, seed: int) -> Path:
    """Return the folder of a log; it is made if it is not there."""
    folder = options.folder / f"log-{seed}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shipped = runs.load_run(AGENT, device="cpu")
    config = dataclasses.replace(shipped.config, seed=seed)
    shutil.rmtree(partial, ignore_errors=True)
    replay = Replay(partial)
    with contextlib.closing(make_env(config.task, config.env)) as env:
        for number in range(options.random):
            replay.add(collect_random(config, env, env.signature, number))
        for number, std in enumerate(options.noise):
            streams = episode_streams(seed, "log", number, "cpu")
            replay.add(collect_with_agent(env, shipped.agent, streams, std).episode)
    return partial.rename(folder)


def log_returns(folder: Path) -> list[float]:
    """Return the return of each episode of a log."""
    replay = Replay(folder)
    replay.restore(len(list(folder.glob("*.npz"))))
    return [float(replay.episode(index).reward.sum()) for index in range(len(replay))]


def settings(options: Options, seed: int) -> Config:
    """Return the settings of the offline run."""
    quick = PRESETS["quick"]
    learn = dataclasses.replace(quick.learn, first_updates=options.updates)
    run = dataclasses.replace(quick.run, evaluation_episodes=1)
    return dataclasses.replace(quick, task=TASK, seed=seed, learn=learn, run=run)


def fit(options: Options, seed: int, log: Path) -> Path:
    """Return the folder of the run that has learned from a log; it is trained if need be."""
    path = options.folder / f"run-{seed}"
    if path.is_dir():
        runs.train(runs.resume_config(path), path, resume=True)
    else:
        runs.train(runs.offline_config(settings(options, seed), log), path)
    return path


def measure(options: Options) -> None:
    """Add the missing results to the file."""
    options.write.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.write) if options.write.is_file() else []
    done = {(row["seed"], row["kind"], row.get("caution")) for row in rows}

    def add(seed: int, kind: str, returns: list[float], **facts: Any) -> None:
        row = {"task": TASK, "seed": seed, "kind": kind, **facts, "returns": returns}
        with options.write.open("a") as file:
            file.write(json.dumps(row) + "\n")

    for seed in options.seeds:
        log = make_log(options, seed)
        if (seed, "log", None) not in done:
            add(seed, "log", log_returns(log), random=options.random, noise=options.noise)
        for policy in ("random", "zero"):
            if (seed, policy, None) not in done:
                state = EnvConfig(observation=("state",))
                add(seed, policy, random_return(TASK, state, 20, seed, policy))
        path = fit(options, seed, log)
        config = runs.resume_config(path)
        for caution in options.cautions:
            if (seed, "agent", caution) in done:
                continue
            planner = dataclasses.replace(config.planner, caution=caution)
            changed = dataclasses.replace(config, planner=planner)
            began = time.process_time()
            returns = replan(path, changed, options.episodes, STARTS)
            add(
                seed,
                "agent",
                returns,
                caution=caution,
                updates=options.updates,
                acting_seconds=round(time.process_time() - began, 1),
            )


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the results of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table: a row for each policy, the mean return of each seed and of all."""
    seeds = sorted({row["seed"] for row in rows})
    named: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        named.setdefault(_name(row), {})[row["seed"]] = row["returns"]
    lines = [
        f"| policy | {' | '.join(f'seed {seed}' for seed in seeds)} | mean | std over seeds | "
        "mean std over episodes | minus β = 0 |",
        "|---" * (len(seeds) + 5) + "|",
    ]
    neutral = named.get("β = 0", {})
    for name, by_seed in named.items():
        means = {seed: statistics.mean(returns) for seed, returns in by_seed.items()}
        cells = [f"{means[seed]:.0f}" if seed in means else "" for seed in seeds]
        inner = statistics.mean(float(np.std(returns)) for returns in by_seed.values())
        cells += [f"{statistics.mean(means.values()):.0f}", _spread(list(means.values()))]
        cells.append(f"{inner:.0f}")
        paired = name.startswith("β") and name != "β = 0" and by_seed.keys() <= neutral.keys()
        cells.append(_difference(by_seed, neutral) if paired else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _name(row: dict[str, Any]) -> str:
    names = {"log": "episodes of the log", "random": "random actions", "zero": "zero actions"}
    return f"β = {row['caution']:g}" if row["kind"] == "agent" else names[row["kind"]]


def _spread(values: list[float]) -> str:
    return f"{statistics.stdev(values):.0f}" if len(values) > 1 else ""


def _difference(left: dict[int, list[float]], right: dict[int, list[float]]) -> str:
    """Return the mean difference from the same starts, and its range over seeds."""
    found = [statistics.mean(left[seed]) - statistics.mean(right[seed]) for seed in left]
    return f"{statistics.mean(found):+.0f} ({min(found):+.0f} to {max(found):+.0f})"


def main(options: Options) -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    if options.read is None:
        measure(options)
    print(table(read_rows(options.read or options.write)))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
