"""Return and seconds per step of a trained agent that plans in less time.

    python benchmarks/control_quality.py runs/NAME

Every setting controls the same noise-free episodes, one at a time, as a robot would.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

import planet_bayes as pb
from planet_bayes.agent import Agent
from planet_bayes.planner import Deadline
from planet_bayes.training.evaluation import evaluate_agent


@dataclass(frozen=True)
class Options:
    """Return beside speed."""

    run: tyro.conf.Positional[Path]
    """The trained run's folder."""
    episodes: int = 5
    """Episodes for each setting."""
    only: str = ""
    """Settings whose name contains this; all by default."""
    threads: int = 1
    """CPU threads."""


@dataclass(frozen=True)
class Setting:
    """A way of planning."""

    name: str
    planner: dict[str, Any] = dataclasses.field(default_factory=dict)
    time_budget: float | None = None


SETTINGS = (
    Setting("as trained"),
    Setting("candidate_decay 0.7", {"candidate_decay": 0.7}),
    Setting("candidate_decay 0.5", {"candidate_decay": 0.5}),
    Setting("3 iterations", {"num_iterations": 3}),
    *(
        Setting(f"time_budget {milliseconds} ms", time_budget=milliseconds / 1000)
        for milliseconds in (50, 20, 10)
    ),
    # A budget for several iterations needs smaller ones: with 150 trajectories there are two or
    # three in 20 ms where 300 leave room for one.
    Setting("150 trajectories, 20 ms", {"num_trajectories": 150}, time_budget=0.02),
    Setting("75 trajectories, 20 ms", {"num_trajectories": 75}, time_budget=0.02),
    Setting("75 trajectories, 10 ms", {"num_trajectories": 75}, time_budget=0.01),
)


class Timed(Agent):
    """An agent that records the time and the iterations of each step."""

    budget: float | None = None

    def act_on_prepared(self, *args: Any, **kwargs: Any) -> Any:
        """Act within the budget."""
        began = time.perf_counter()
        deadline = None if self.budget is None else Deadline(self.budget)
        result = super().act_on_prepared(*args, **kwargs, deadline=deadline)
        self.seconds.append(time.perf_counter() - began)
        self.iterations.append(result[2].num_iterations)
        return result

    seconds: list[float]
    iterations: list[int]


def main(options: Options) -> None:
    """Control with each setting and print the table."""
    torch.set_num_threads(options.threads)
    run = pb.load_run(options.run)
    gc.collect()
    gc.freeze()  # as in a control loop: what is there now is never looked at again
    console = Console(width=100)
    table = Table(
        "planner",
        "mean return",
        "std",
        "ms per step",
        "slowest 1 %",
        "late",
        "iterations",
        box=None,
    )
    for setting in SETTINGS:
        if options.only not in setting.name:
            continue
        planner = dataclasses.replace(run.agent.planner, **setting.planner)
        agent = Timed(run.agent.model, run.agent.signature, planner, run.agent.belief_filter)
        agent.budget, agent.seconds, agent.iterations = setting.time_budget, [], []
        returns = [
            total
            for number in range(options.episodes)
            for total in evaluate_agent(run.config, agent, 1, number)
        ]
        times = sorted(1000 * seconds for seconds in agent.seconds)
        table.add_row(
            setting.name,
            f"{statistics.mean(returns):.0f}",
            f"{statistics.pstdev(returns):.0f}",
            f"{statistics.median(times):.0f}",
            f"{times[int(0.99 * len(times))]:.0f}",
            _late(agent),
            f"{statistics.mean(agent.iterations):.1f}",
        )
        console.print(f"{setting.name}: {[round(value) for value in returns]}")
    console.print(table)


def _late(agent: Timed) -> str:
    """Return the share of steps that took longer than the budget."""
    if agent.budget is None:
        return ""
    late = sum(seconds > agent.budget for seconds in agent.seconds)
    return f"{100 * late / len(agent.seconds):.1f} %"


if __name__ == "__main__":
    main(tyro.cli(Options))
