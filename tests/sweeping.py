"""A declared experiment of tiny runs in a task that can be slow, for tests of sweeps."""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SLOW = "slow"
"""While a file of this name is in the folder, runs are slow from their second row on."""

TASK = f'''
import time
from pathlib import Path

import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    """A point that moves by its action and by noise."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.normal(size=2), 0
        rows = [path.read_text().count("\\n") for path in Path("runs").rglob("metrics.jsonl")]
        self.delay = 1.0 if Path("{SLOW}").exists() and max(rows) > 1 else 0.0
        return self.position.astype(np.float32), {{}}

    def step(self, action):
        time.sleep(self.delay)
        self.position[0] += action[0] + 0.1 * self.np_random.normal()
        self.steps += 1
        observation = self.position.clip(-9, 9).astype(np.float32)
        return observation, -abs(float(self.position[0])), False, self.steps == 8, {{}}


make = Walk


def broken():
    raise RuntimeError("this task is broken")
'''

EXPERIMENT = """
folder = "toy"
preset = "quick"
tasks = ["walk:make", "walk:broken"]
observations = ["state"]
seeds = [0]

[settings]
model.num_members = 2
model.deter = 8
model.stoch = 4
model.hidden = 8
model.dense_units = 8
model.reward_units = 8
planner.horizon = 4
planner.num_trajectories = 24
planner.num_iterations = 2
collect.episodes = 5
collect.seed_episodes = 2
learn.first_updates = 0
learn.updates_per_episode = 2
learn.batch_size = 4
learn.sequence_length = 6
run.evaluate_every = 2
run.evaluation_episodes = 1
run.video_every = 0
"""

METHODS = """
folder = "toy"
preset = "small"
methods = ["planet_bayes", "planet"]
tasks = ["toy_reach"]
observations = ["sensors"]
seeds = [0, 1]

[settings]
model.deter = 8
model.stoch = 4
learn.batch_size = 4
learn.sequence_length = 6
learn.updates_per_episode = 4
planner.horizon = 4
planner.num_trajectories = 40
planner.num_iterations = 2
env.max_steps = 12
collect.episodes = 2
run.evaluate_every = 1
run.evaluation_episodes = 2
"""
"""Another one: two methods in the toy task, with the paper's algorithm."""

RUN = Path("planet_bayes/walk:make-state/seed-0")
"""The run that does not fail, within the folders of runs and of results."""


def declare(folder: Path) -> Path:
    """Write the experiment and its task to a folder, and return the folder."""
    (folder / "experiments").mkdir(parents=True)
    (folder / "experiments" / "toy.toml").write_text(EXPERIMENT)
    (folder / "walk.py").write_text(TASK)
    return folder


def declare_methods(folder: Path) -> Path:
    """Write `METHODS` to a folder, and return its file."""
    path = folder / "experiments" / "toy.toml"
    path.parent.mkdir()
    path.write_text(METHODS)
    return path


def start_sweep(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Start a sweep of the experiment in a folder."""
    command = ["--import", "walk", "sweep", "experiments/toy.toml", *words]
    return subprocess.Popen(
        [sys.executable, "-m", "planet_bayes.cli", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def curve(folder: Path) -> list[dict[str, str]]:
    """Return the archived curve of the run, without the time."""
    with open(folder / "results" / "toy" / RUN.with_suffix(".csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if "minutes" not in k} for row in rows]


def num_rows(folder: Path) -> int:
    """Return how many episodes of the run are recorded."""
    path = folder / "runs" / "toy" / RUN / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def log(folder: Path) -> str:
    """Return what the run has printed."""
    return (folder / "runs" / "toy" / RUN.with_suffix(".log")).read_text()


def commits(folder: Path) -> list[dict[str, object]]:
    """Return the archived commits of the run."""
    path = folder / "results" / "toy" / RUN.with_suffix(".commits.json")
    return json.loads(path.read_text())


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait until a condition is met, but not for ever."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
