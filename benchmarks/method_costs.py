"""What the methods of a declared experiment cost: a step and an update of each, on one machine.

The runs of an experiment are often made on several machines, whose hours do not compare. Here all
methods and tasks take turns in one process, on one thread, so that a slow phase of the machine
slows all. The weights are random, which changes no amount of work where the number of iterations is
fixed. Times are processor time, medians over rounds. `planet-bayes table` and `figures` then give
hours at these costs.

Run:  python benchmarks/method_costs.py experiments/NAME.toml    # writes costs.json to its results
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from planet_bayes.agent import Carry, Prepared
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.replay import Replay
from planet_bayes.envs import make_env
from planet_bayes.machine import keep_freed_memory, processor
from planet_bayes.models.kernels import native
from planet_bayes.results.curves import COSTS, Group
from planet_bayes.results.experiment import PlannedRun, read_experiment
from planet_bayes.rng import torch_stream
from planet_bayes.training.build import build_agent, build_model
from planet_bayes.training.collect import collect_random
from planet_bayes.training.learner import Learner

STEPS = 5
"""Steps of the agent, and random ones, in a round."""
EPISODES = 5
"""Random episodes that updates learn from."""
PARTS = ("random_step", "step", "update")


class Measured:
    """One method on one task.

    Args:
        config: The settings of one of its runs.
        folder: Where its episodes are written.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        self.env = make_env(config.task, config.env)
        self.signature = self.env.signature
        model = build_model(config, self.signature, "cpu")
        self.agent = build_agent(config, model, self.signature)
        self.learner = Learner(model, config)
        self.replay = Replay(folder, int(config.run.replay_ram * 1e9))
        for number in range(EPISODES):
            self.replay.add(collect_random(config, self.env, self.signature, number))
        self.config, self.updates, self.generator = config, 0, torch_stream(0, "costs")
        self.times: dict[str, list[float]] = {name: [] for name in PARTS}
        self._begin()

    def _begin(self) -> None:
        self.carry: Carry = self.agent.initial()
        self.seen: Prepared = self.signature.prepare(self.env.reset(seed=0)[0])

    def _step(self, action: np.ndarray) -> None:
        raw, _, terminated, truncated, _ = self.env.step(action)
        self.seen = self.signature.prepare(raw)
        if terminated or truncated:
            self._begin()

    def random_step(self) -> None:
        """Take a random action."""
        self._step(self.signature.action.random(np.random.default_rng(0)))

    def step(self) -> None:
        """Take an action of the agent, with exploration noise."""
        action, self.carry, _ = self.agent.act_on_prepared(
            self.carry, [self.seen], self.generator, self.config.collect.exploration
        )
        self._step(action[0])

    def update(self) -> None:
        """Learn from one batch."""
        self.updates += 1
        self.learner.update(self.replay, self.updates)

    def round(self) -> None:
        """Time each part once."""
        for name, count in zip(PARTS, (STEPS, STEPS, 1), strict=True):
            part: Callable[[], None] = getattr(self, name)
            began = time.process_time()
            for _ in range(count):
                part()
            self.times[name].append((time.process_time() - began) / count)

    def medians(self) -> dict[str, float]:
        """Return seconds by part, without the first round, which is a warm-up."""
        return {name: round(statistics.median(self.times[name][1:]), 6) for name in PARTS}


def measure(runs: dict[Group, PlannedRun], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return seconds by method, task and observation, and part."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="planet-bayes-")))
        works = {
            group: Measured(run.config(), folder / str(number))
            for number, (group, run) in enumerate(runs.items())
        }
        for work in works.values():
            stack.callback(work.env.close)
        for _ in range(rounds + 1):
            for work in works.values():
                work.round()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (method, task, observation), work in works.items():
        found.setdefault(method, {})[f"{task}-{observation}"] = work.medians()
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    experiment = read_experiment(options.experiment)
    if experiment.variants != [""]:
        parser.error(f"{options.experiment} compares variants, and not methods")
    runs: dict[Group, PlannedRun] = {}
    for run in experiment.runs:
        runs.setdefault(run.name.group, run)
    facts = {
        "machine": f"{processor()}; kernel: {native.chosen()}; one thread",
        "rounds": options.rounds,
        "seconds": measure(runs, options.rounds),
    }
    path = experiment.results / COSTS
    files.write(path, json.dumps(facts, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
