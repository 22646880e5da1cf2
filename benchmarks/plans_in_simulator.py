"""What a proposal with several plans costs in return, with the simulator itself as the model.

Every method controls the same starts and imagines the same number of trajectories with the task's
own physics, so no error of a learned model hides the planner. Episodes are short, since every
candidate is simulated. For each task the table has:

- return: mean over starts of the return of the closed loop.
- minus cem: mean of the paired differences to `cem`, with its 95 % interval (Student's t).
- distinct: `Diagnostics.distinct_plans`, mean over control steps and starts. It simulates the means
  of the components once more; the planner does not see these values.

Random and zero actions control the same starts for equally many steps. `member_portfolio` is left
out: it needs several members, and the simulator is one.

Run:  python benchmarks/plans_in_simulator.py            # a quarter of an hour of one core
      python benchmarks/plans_in_simulator.py --read results/plans/simulator.jsonl
"""

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from rollout_model import RolloutModel
from scipy import stats

from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.planner import (
    Bounds,
    PlannerConfig,
    Proposal,
    cem,
    cma_es,
    mppi,
    paets,
    plan,
    portfolio,
)
from planet_bayes.rng import integer_seed, numpy_stream, torch_stream

ROOT = Path(__file__).parent.parent
REFERENCE = "cem"
"""The method that the others are compared with."""
BASELINES = ("random", "zero")
"""Policies that do not plan."""

AnyEnv = gymnasium.Env[Any, Any]
Row = dict[str, Any]
"""The result of one episode."""


@dataclass(frozen=True)
class Size:
    """How much of a task is measured."""

    steps: int
    """Control steps of an episode."""
    starts: int
    """Episodes of each method."""


SIZES = {"cheetah_run": Size(25, 8), "finger_spin": Size(15, 8), "cup_catch": Size(25, 4)}
"""A candidate of `cup_catch` costs four times one of `cheetah_run`, hence fewer starts."""


@dataclass(frozen=True)
class Options:
    """What is measured."""

    tasks: tuple[str, ...] = tuple(SIZES)
    """Tasks of the control suite."""
    first_start: int = 3000
    """Number of the first start; it determines the state at reset and the planner's noise."""
    candidates: int = 60
    """Candidates in each iteration."""
    iterations: int = 5
    """Iterations of a plan."""
    horizon: int = 12
    """Steps that are planned ahead."""
    write: Path = ROOT / "results" / "plans" / "simulator.jsonl"
    """Where each finished episode is added. An episode that is there already is not repeated."""
    read: Path | None = None
    """Only make the tables of this file."""


@dataclass(frozen=True)
class Episode:
    """What determines one episode, and so its row."""

    task: str
    method: str
    start: int
    steps: int
    candidates: int
    iterations: int
    horizon: int

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether ``row`` is the result of this episode."""
        return all(row[key] == value for key, value in vars(self).items())


def methods(options: Options) -> dict[str, PlannerConfig]:
    """Return the methods by name."""
    base = {
        "horizon": options.horizon,
        "num_trajectories": options.candidates,
        "num_iterations": options.iterations,
        "execute": "mean",
    }
    return {
        REFERENCE: cem(**base),
        "official PlaNet": cem(initial_std=1.0, warm_start=False, **base),
        "mppi": mppi(temperature=0.3, **base),
        "cma_es": cma_es(**base),
        "paets": paets(**base),
        "portfolio": portfolio(**base),
        "portfolio, M = 1": portfolio(num_components=1, **base),
    }


def episodes(options: Options, names: Sequence[str]) -> Iterator[Episode]:
    """Return the episodes, one start of all tasks and methods after another.

    A run that is stopped has complete pairs up to its last start.
    """
    for index in range(max(SIZES[task].starts for task in options.tasks)):
        for task in options.tasks:
            # A task with half as many starts takes part in every second round.
            every = max(size.starts for size in SIZES.values()) // SIZES[task].starts
            if index % every:
                continue
            for name in names:
                yield Episode(
                    task=task,
                    method=name,
                    start=options.first_start + index // every,
                    steps=SIZES[task].steps,
                    candidates=options.candidates,
                    iterations=options.iterations,
                    horizon=options.horizon,
                )


def control(
    env: AnyEnv, model: RolloutModel, episode: Episode, config: PlannerConfig | None
) -> Row:
    """Control one episode and return its row; without ``config`` a baseline controls it."""
    shape = env.action_space.shape
    assert shape is not None
    env.reset(seed=integer_seed(episode.start, "env"))
    generator = torch_stream(episode.start, "planner")
    random = numpy_stream(episode.start, "random-actions")
    previous: Proposal | None = None
    total, ended, distinct, info = 0.0, False, [], {}
    began = time.process_time()
    while not ended:
        if config is None:
            uniform = episode.method == "random"
            action = random.uniform(-1, 1, shape) if uniform else np.zeros(shape)
        else:
            bounds = Bounds.symmetric(shape[0])
            result = plan(model, env, bounds, config, generator, previous=previous)
            distinct.append(int(result.diagnostics.distinct_plans))
            previous, action = result.proposal, result.action[0].numpy()
        _, reward, terminated, truncated, info = env.step(action.astype(np.float32))
        total += float(reward)
        ended = terminated or truncated
    return {
        **vars(episode),
        "return": total,
        "distinct": statistics.mean(distinct) if distinct else None,
        "diverged": "diverged" in info,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def measure(options: Options, rows: list[Row]) -> None:
    """Control the episodes that ``rows`` does not have, and add each to the file."""
    configs = methods(options)
    for episode in episodes(options, [*BASELINES, *configs]):
        if any(episode.is_in(row) for row in rows):
            continue
        model = RolloutModel(episode.task)
        env_config = EnvConfig(observation=("state",), max_steps=episode.steps)
        with closing(make_env(episode.task, env_config)) as env:
            rows.append(control(env, model, episode, configs.get(episode.method)))
        with options.write.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")


def differences(rows: Iterable[Row], method: str) -> list[float]:
    """Return a method's returns minus those of `cem`, for the starts that both have."""
    returns = {(row["method"], row["start"]): row["return"] for row in rows}
    starts = sorted(start for name, start in returns if name == method)
    return [
        returns[method, start] - returns[REFERENCE, start]
        for start in starts
        if (REFERENCE, start) in returns
    ]


def with_interval(values: Sequence[float]) -> str:
    """Return a mean and its 95 % interval as text; of fewer than two values there is none."""
    if len(values) < 2:
        return "-"
    width = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{statistics.mean(values):.1f} ± {width:.1f}"


def complete(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the starts that all methods have controlled."""
    names = {row["method"] for row in rows}
    done: dict[int, set[str]] = {}
    for row in rows:
        done.setdefault(row["start"], set()).add(row["method"])
    return [row for row in rows if done[row["start"]] == names]


def summary(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a line for each method: its name, return, difference, plans, starts."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        plans = [row["distinct"] for row in own if row["distinct"] is not None]
        lines.append(
            (
                method,
                f"{statistics.mean(row['return'] for row in own):.1f}",
                "" if method == REFERENCE else with_interval(differences(rows, method)),
                f"{statistics.mean(plans):.2f}" if plans else "",
                str(len(own)),
            )
        )
    return lines


def show(rows: Sequence[Row]) -> None:
    """Print a table for each task and set of sizes, of the starts that are complete."""
    console = Console(width=110)
    sizes = ("task", "steps", "candidates", "iterations", "horizon")
    for key in dict.fromkeys(tuple(row[name] for name in sizes) for row in rows):
        chosen = complete([row for row in rows if tuple(row[name] for name in sizes) == key])
        title = "{}, {} steps; {} candidates × {} iterations, horizon {}".format(*key)
        table = Table("method", "return", "minus cem", "distinct", "starts", title=title)
        for line in summary(chosen):
            table.add_row(*line)
        console.print(table)
        diverged = sum(row["diverged"] for row in chosen)
        minutes = sum(row["cpu_seconds"] for row in chosen) / 60
        console.print(f"diverged: {diverged} episodes; {minutes:.1f} minutes of one core")


def main(options: Options) -> None:
    """Measure what is missing and print the tables."""
    torch.set_num_threads(1)
    path = options.read or options.write
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if options.read is None:
        measure(options, rows)
    show(rows)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
