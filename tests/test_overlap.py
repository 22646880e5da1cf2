"""Collecting beside learning: the same to the bit whatever happens, and nothing left behind."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import contextlib
import dataclasses
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from assertions import assert_same_run
from planet_bayes import config as configuration
from planet_bayes import runs
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.training import Event, Trainer, checkpoint, loop, overlap
from planet_bayes.training.build import build_model
from planet_bayes.training.collect import Collected, collect_episode
from planet_bayes.training.events import Evaluating, IterationDone, SeedEpisode, Updated
from planet_bayes.training.progress import load_progress
from planet_bayes.training.weights import load_model
from test_cli import TINY
from tiny_run import replaced


@pytest.fixture(scope="module")
def plain(tiny: Config) -> Config:
    """Actions that depend on every weight; few updates often change none that elites give."""
    return replaced(tiny, planner={"optimality": "exponential"}, run={"keep_checkpoints": 10})


@pytest.fixture(scope="module")
def config(plain: Config) -> Config:
    return replaced(plain, collect={"overlap": True})


@pytest.fixture(scope="module")
def finished(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, in a process as it should be; not to be written to."""
    path = tmp_path_factory.mktemp("finished") / "run"
    with Trainer(config, path).session() as run:
        assert run.collector is not None
        pid = run.collector.pid
        assert pid in [child.pid for child in multiprocessing.active_children()]
        loop.seed(run)
        while not run.finished:
            loop.iterate(run)
    assert not Path(f"/proc/{pid}").exists()
    return path


class Thread(threading.Thread):
    """The collecting process as a thread of this one: starts at once, and computes the same."""

    pid = exitcode = None

    def __init__(self, connection: Connection, config: Config, signature, device) -> None:
        super().__init__(daemon=True)
        ours = Connection(os.dup(connection.fileno()))
        self.work = (ours, config, signature.to_json(), device)
        self.start()

    def run(self) -> None:
        with self.work[0], contextlib.suppress(SystemExit):
            overlap.serve(*self.work)

    def terminate(self) -> None:
        raise AssertionError("it should have ended by itself")

    kill = terminate


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "spawn", Thread)


class StopAt:
    """Asks to stop once an event has come for the n-th time."""

    def __init__(self, kind: type[Event], count: int) -> None:
        self.kind, self.left = kind, count

    def report(self, event: Event) -> None:
        self.left -= isinstance(event, self.kind)

    def should_stop(self) -> bool:
        return self.left <= 0


def train(config: Config, path: Path, stop: StopAt | None = None, **options) -> bool:
    looks: dict[str, Any] = {}
    if stop is not None:
        looks = {"report": stop.report, "should_stop": stop.should_stop}
    return Trainer(config, path, **looks, **options).train()


def test_two_runs_are_the_same_though_ctrl_c_reaches_the_process(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    def report(event: Event) -> None:
        if isinstance(event, SeedEpisode | Updated):
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGINT)

    path, ended = runs.train(config, tmp_path / "run", report=report)
    assert ended
    assert_same_run(finished, path)
    rows = read_metrics(path / "metrics.jsonl")
    assert ["train_return" in row for row in rows] == [True, True, True, False]


def by_hand(run: Path, weights: Path, number: int) -> np.ndarray:
    """Return the actions of an episode that is collected here with a checkpoint's weights."""
    config = configuration.load(run / "config.json")
    env = make_env(config.task, config.env)
    model = build_model(config, env.signature, "cpu")
    load_model(weights, model)
    agent = Agent(model, env.signature, config.planner)
    return collect_episode(config, env, agent, number).episode.action


def test_the_lag_is_one_round_of_updates(finished: Path, plain: Config, tmp_path: Path) -> None:
    without = tmp_path / "run"
    assert train(plain, without)
    for run, lag in ((finished, 1), (without, 0)):
        saved = {}  # by the number of rounds that had been learned
        for path in checkpoint.list_checkpoints(run):
            saved[load_progress(path / "progress.json").updates // 4] = path
        for iteration in (0, 1, 2):
            number = plain.collect.seed_episodes + iteration
            with np.load(run / "episodes" / f"{number:06d}.npz") as arrays:
                actual = arrays["action"]
            weights = saved[iteration + 1 - lag]
            assert np.array_equal(by_hand(run, weights, number), actual)
            other = saved[iteration + lag]  # a round later, or earlier where there is no lag
            assert not np.array_equal(by_hand(run, other, number), actual)


def test_without_it_nothing_of_it_is_there(
    plain: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("no process is needed")

    assert not Config().collect.overlap
    monkeypatch.setattr(overlap, "spawn", refuse)
    assert not train(plain, tmp_path / "run", StopAt(Updated, 6))
    with Trainer(plain, tmp_path / "run", resume=True).session() as run:
        assert run.collector is None
        while not run.finished:
            loop.iterate(run)
        assert run.actor is None
    assert not list((tmp_path / "run").rglob("actor.safetensors"))


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (SeedEpisode, 2),
        *((Updated, count) for count in (1, 4, 6, 14)),
        *((IterationDone, count) for count in (1, 3)),
        *((Evaluating, count) for count in (1, 2)),
    ],
)
@pytest.mark.usefixtures("threads")
def test_resume_is_bit_identical(
    finished: Path, config: Config, tmp_path: Path, kind: type[Event], count: int
) -> None:
    path = tmp_path / "run"
    assert not train(config, path, StopAt(kind, count))
    assert train(runs.resume_config(path), path, resume=True)
    assert_same_run(finished, path)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("row", [1, 2])
def test_resume_from_a_stop_between_checkpoints(config: Config, tmp_path: Path, row: int) -> None:
    """Stopped right after a row: the scales of the next updates must not be in what is saved."""
    config = replaced(config, run={"checkpoint_every": 5})
    train(config, tmp_path / "whole")
    path = tmp_path / "stopped"
    assert not train(config, path, StopAt(IterationDone, row))
    assert train(config, path, resume=True)
    assert_same_run(tmp_path / "whole", path)


@pytest.mark.usefixtures("threads")
def test_stopped_while_it_waits_for_the_episode(
    finished: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(config, env, agent, number: int, should_stop: Callable[[], bool]) -> Collected:
        while number == 3 and not should_stop():
            time.sleep(0.01)
        return collect_episode(config, env, agent, number, should_stop)

    monkeypatch.setattr(overlap, "collect_episode", stuck)
    path = tmp_path / "run"
    assert not train(config, path, StopAt(Updated, 8))
    newest = checkpoint.latest(path)
    progress = checkpoint.newest_sound(path).progress
    assert (progress.episodes, progress.updates_since_episode) == (3, 4)
    assert (newest / "actor.safetensors").exists()
    monkeypatch.setattr(overlap, "collect_episode", collect_episode)
    assert train(runs.resume_config(path), path, resume=True)
    assert_same_run(finished, path)


@pytest.mark.usefixtures("threads")
def test_killed_anywhere_and_resumed(finished: Path, config: Config, tmp_path: Path) -> None:
    """Copies of the folder, made as the run goes on, are what a power cut would leave."""
    copies: list[Path] = []

    def report(event: Event) -> None:
        if isinstance(event, IterationDone) or (isinstance(event, Updated) and event.done == 2):
            copies.append(tmp_path / f"copy-{len(copies)}")
            shutil.copytree(tmp_path / "run", copies[-1])

    few = replaced(config, run={"checkpoint_every": 2})
    assert Trainer(few, tmp_path / "run", report=report).train()
    assert_same_run(finished, tmp_path / "run")
    for copy in (copies[1], copies[3], copies[4]):
        assert train(runs.resume_config(copy), copy, resume=True)
        assert_same_run(finished, copy)


@pytest.mark.usefixtures("threads")
def test_a_longer_run_goes_on_from_a_finished_one(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    assert train(replaced(config, collect={"episodes": 1}), path)
    with Trainer(runs.resume_config(path), path, resume=True).session() as run:
        assert run.collector is None  # there is nothing to collect
        assert run.finished
    assert train(runs.resume_config(path, config), path, resume=True)
    assert_same_run(finished, path)


def test_it_is_not_switched_on_in_a_run_that_has_begun(finished: Path, config: Config) -> None:
    with pytest.raises(ConfigError, match=r"collect\.overlap cannot be changed"):
        runs.resume_config(finished, replaced(config, collect={"overlap": False}))


class Fragile(gymnasium.Env):
    """Breaks after a number of steps, in the collecting process only."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)
    count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        self.count += 1
        if self.count > 15 and multiprocessing.parent_process() and "FRAGILE" in os.environ:
            raise RuntimeError("unplugged")
        return np.full(2, 0.1 * self.time, np.float32), 1.0, False, self.time >= 10, {}


def test_a_fault_in_the_process_is_told_and_loses_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replaced(config, run={"evaluate_every": 0})
    config = dataclasses.replace(
        config, task=f"{__name__}:Fragile", env=EnvConfig(observation=("state",))
    )
    monkeypatch.setenv("FRAGILE", "1")
    path = tmp_path / "run"
    with pytest.raises(EnvError, match=r"Fragile: step.* raised RuntimeError: unplugged") as caught:
        train(config, path)
    assert "in step\n" in caught.value.__notes__[0]  # where it was, in the process
    assert not multiprocessing.active_children()
    progress = checkpoint.newest_sound(path).progress
    assert (progress.episodes, progress.updates) == (3, 8)  # 2 seed episodes, 1 with the agent
    monkeypatch.setattr(overlap, "spawn", Thread)
    assert train(runs.resume_config(path), path, resume=True)
    assert train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", path)


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.usefixtures("threads")
def test_a_process_that_ends_without_a_word(
    finished: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopping: bool
) -> None:
    """Killed alone it is an error; by a signal that this process has had too, a stop."""
    path, ended = tmp_path / "run", threading.Event()

    def end(*_: object) -> None:
        ended.set()
        raise SystemExit

    monkeypatch.setattr(overlap, "collect_episode", end)
    trainer = Trainer(config, path, should_stop=lambda: stopping and ended.is_set())
    if stopping:
        assert not trainer.train()
    else:
        with pytest.raises(overlap.CollectorError, match="ended with exit code"):
            trainer.train()
        assert checkpoint.newest_sound(path).progress.updates == 4
    monkeypatch.setattr(overlap, "collect_episode", collect_episode)
    assert train(runs.resume_config(path), path, resume=True)
    assert_same_run(finished, path)


@pytest.mark.usefixtures("threads")
def test_another_fault_in_the_process_is_told_too(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(overlap, "collect_episode", collect)
    with pytest.raises(overlap.CollectorError, match="failed: MemoryError: no room"):
        train(config, tmp_path / "run")


def test_an_environment_that_only_this_process_has_is_refused(
    config: Config, tmp_path: Path
) -> None:
    gymnasium.register("OnlyHere-v0", entry_point=lambda **_: Fragile())
    state = EnvConfig(observation=("state",))
    try:
        with pytest.raises(ConfigError, match="OnlyHere-v0 works here but cannot be made"):
            train(dataclasses.replace(config, task="OnlyHere-v0", env=state), tmp_path / "run")
    finally:
        del gymnasium.registry["OnlyHere-v0"]
    assert not (tmp_path / "run").exists()
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("threads")
def test_a_trainer_that_cannot_begin_ends_the_process(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files, "lock", broken)
    with pytest.raises(OSError, match="disk full"):
        Trainer(config, tmp_path / "run").train()
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Thread)]


def members(group: int) -> list[str]:
    """Return the processes of a group that run; one that nobody has waited for does not."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(owner) == group and state != "Z":
            found.append(path.parent.name)
    return found


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_learner_that_is_killed_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    words = "--collect.episodes 6 --learn.updates-per-episode 10 --collect.overlap --run run"
    process = subprocess.Popen(
        [sys.executable, "-m", "planet_bayes.cli", "train", *TINY, *words.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(read_metrics(path / "metrics.jsonl")) > 0)
    assert len(members(process.pid)) >= 2
    process.kill()
    output, _ = process.communicate(timeout=60)  # until nobody can write to it any more
    assert process.returncode == -signal.SIGKILL, output
    assert "Traceback" not in output
    wait_until(lambda: not members(process.pid))
    config = runs.resume_config(path)
    monkeypatch.setattr(overlap, "spawn", Thread)
    assert train(config, path, resume=True)
    assert train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", path)
