"""Invalid inputs: each is handled, or refused with an error of this package."""

import contextlib
import copy
import dataclasses
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from planet_bayes import cli, runs
from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config
from planet_bayes.config.migrations import FORMAT
from planet_bayes.data import files
from planet_bayes.data.episode import read_episode, unpack
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig, gl, make_env
from planet_bayes.errors import EnvError, PlanetBayesError
from planet_bayes.planner import Bounds, PlannerConfig, PlannerError, plan
from planet_bayes.training import checkpoint
from planet_bayes.training.collect import collect_random
from planet_bayes.training.events import IterationDone
from planet_bayes.training.progress import load_progress
from tiny_run import replaced

NAN, INF = float("nan"), float("inf")
WORDS = st.sampled_from(["", "mean", "threshold", "auto", "cup_catch", "pixels", "\0", "é" * 50])
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([10**30, -(10**30), 2**63, 0.5, 1e-320, 1e300, NAN, INF, -INF, -0.0]),
    st.floats(),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


def attempt(call: Callable[[], Any], *ours: type[Exception]) -> tuple[Any, str]:
    """Return what a call returns, or the words of an error that is one of ours."""
    try:
        return call(), ""
    except ours as error:
        return None, str(error) or "nothing said"


# --- settings


def leaves(data: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in data.items():
        here = (*above, key)
        found += [here, *leaves(value, here)] if isinstance(value, dict) else [here]
    return found


QUICK = dataclasses.asdict(PRESETS["quick"])


@settings(deadline=None, max_examples=400)
@given(where=st.lists(st.sampled_from(leaves(QUICK)), min_size=1, max_size=3), value=JSON)
def test_settings_are_taken_or_refused(where: list[tuple[str, ...]], value: Any) -> None:
    data: Any = copy.deepcopy(QUICK)
    for *path, name in where:
        table = data
        for key in path:
            table = table[key] if isinstance(table, dict) and key in table else {}
        if isinstance(table, dict):
            table[name] = value
    config, refusal = attempt(lambda: configuration.from_dict(Config, data), PlanetBayesError)
    if refusal:
        assert refusal != "nothing said"
        return
    for setting in leaves(dataclasses.asdict(config)):
        found: Any = dataclasses.asdict(config)
        for key in setting:
            found = found[key]
        assert not isinstance(found, float) or not math.isnan(found), setting
    saved = json.loads(configuration.to_json(config))
    assert saved.pop("format") == FORMAT
    assert configuration.from_dict(Config, saved) == config
    assert config.planner.num_trajectories >= config.model.num_members


@settings(deadline=None, max_examples=200)
@given(text=st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_a_settings_file_of_anything(text: bytes, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_bytes(text)
    with pytest.raises(PlanetBayesError) if text != b"{}" else pytest.MonkeyPatch.context():
        configuration.load(path)


# --- files


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=400))
def test_an_episode_file_of_anything(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(data)


@settings(deadline=None, max_examples=100)
@given(text=st.one_of(st.binary(max_size=300), JSON.map(lambda v: json.dumps(v).encode() + b"\n")))
def test_lists_of_sums_progress_and_metrics_of_anything(text: bytes, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "anything"
    folder.mkdir(exist_ok=True)
    for name in (files.SUMS, "progress.json", "metrics.jsonl"):
        (folder / name).write_bytes(text)
    for name in files.read_sums(folder):
        assert (folder / name).parent == folder
    with pytest.raises(PlanetBayesError):
        files.check_folder(folder)
    with pytest.raises(PlanetBayesError):
        load_progress(folder / "progress.json")
    assert all(isinstance(row, dict) for row in read_metrics(folder / "metrics.jsonl"))


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", "..", "."])
def test_a_list_of_sums_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / files.SUMS).write_text(files.sum_line("0" * 64, name) + "\n")
    assert files.read_sums(tmp_path) == {}


# --- the planner


class Says:
    """Answers with whatever the test wants."""

    def __init__(self, answer: Callable[[torch.Tensor], Any]) -> None:
        self.answer = answer

    def imagine(self, state: Any, actions: torch.Tensor, generator: torch.Generator) -> Any:
        return self.answer(actions)


def ask(answer: Callable[[torch.Tensor], Any], **changes: Any) -> Any:
    config = PlannerConfig(horizon=3, num_trajectories=12, num_iterations=2, **changes)
    generator = torch.Generator().manual_seed(0)
    return plan(Says(answer), None, Bounds.symmetric(2), config, generator)


@settings(deadline=None, max_examples=100)
@given(
    shape=st.lists(st.integers(0, 13), max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]),
    fill=st.sampled_from([0.0, NAN, INF, -INF, 1e38]),
)
def test_predictions_of_any_shape_type_and_value(
    shape: list[int], dtype: torch.dtype, fill: float
) -> None:
    whole = dtype in (torch.int64, torch.bool)
    answer = torch.full(shape, 0.0 if whole else fill).to(dtype)
    result, refusal = attempt(lambda: ask(lambda actions: answer), PlannerError)
    assert refusal or torch.isfinite(result.action).all()


@pytest.mark.parametrize("members", [1, 4])
def test_members_that_predict_nan_are_left_out_and_all_of_them_is_an_error(members: int) -> None:
    def rewards(actions: torch.Tensor) -> torch.Tensor:
        good = -(actions**2).sum(-1)[:, :, None].expand(-1, -1, 5, -1).clone()
        good[:, :, :members] = NAN
        return good

    result = ask(rewards)
    assert torch.isfinite(result.action).all()
    assert result.diagnostics.num_dead_particles.item() >= members
    with pytest.raises(PlannerError, match="finite"):
        ask(lambda actions: rewards(actions) * NAN)


@settings(deadline=None, max_examples=200)
@given(
    low=st.lists(st.floats(width=32), max_size=3),
    high=st.lists(st.floats(width=32), max_size=3),
)
def test_bounds_are_taken_or_refused(low: list[float], high: list[float]) -> None:
    bounds, refusal = attempt(lambda: Bounds(torch.tensor(low), torch.tensor(high)), PlannerError)
    if refusal:
        assert refusal.startswith("Bounds: ")
        return
    assert len(low) == len(high) > 0
    assert bool((bounds.low < bounds.high).all())


# --- environments


class Odd(gymnasium.Env[Any, Any]):
    """Does what the test says at a step of its choice."""

    faults: tuple[str, ...] = ()
    at = 2

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._result()[0], {}

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward, terminated = self._result()
        if self.count == self.at and "four" in self.faults:
            return observation, reward, terminated, {}
        return observation, reward, terminated, self.count >= 6, {}

    def close(self) -> None:
        if "close" in self.faults:
            raise RuntimeError("jammed")

    def _result(self) -> tuple[Any, Any, Any]:
        observation: Any = np.zeros(3, np.float32)
        reward: Any = 1.0
        terminated: Any = False
        if self.count != self.at:
            return observation, reward, terminated
        for fault in self.faults:
            if fault == "raise":
                raise RuntimeError("unplugged")
            if fault == "exit":
                raise SystemExit(7)
            if fault == "sleep":
                time.sleep(60)
            if fault == "retry":
                for _ in range(100):
                    with contextlib.suppress(Exception):
                        time.sleep(0.6)
            if fault == "end":
                terminated = True
            if fault == "ends":
                terminated = np.array([True, False])
            if fault == "space":
                self.observation_space = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
                observation = np.zeros(5, np.float32)
            if fault.startswith("see"):
                observation = SEEN[fault]
            if fault.startswith("reward"):
                reward = REWARDS[fault]
        return observation, reward, terminated


SEEN: dict[str, Any] = {
    "see none": None,
    "see nan": np.array([0, NAN, 0], np.float32),
    "see inf": np.array([0, INF, 0]),
    "see huge": np.array([0, 1e300, 0]),
    "see short": np.zeros(2, np.float32),
    "see empty": np.zeros(0, np.float32),
    "see words": "hello",
    "see list": [0.0, 0.0, 0.0],
    "see objects": np.array([object()] * 3),
    "see matrix": np.zeros((3, 3), np.float32),
    "see ragged": [[0.0], [0.0, 1.0]],
    "see complex": np.zeros(3, complex),
}
REWARDS: dict[str, Any] = {
    "reward none": None,
    "reward nan": NAN,
    "reward inf": -INF,
    "reward huge": 1e300,
    "reward ragged": [[1.0], [1.0, 2.0]],
    "reward word": "much",
    "reward vector": np.zeros(2),
    "reward one": np.ones(1),
    "reward numpy": np.float64(2),
}
FAULTS = ["raise", "exit", "end", "ends", "space", "four", *SEEN, *REWARDS]


@settings(deadline=None, max_examples=150)
@given(faults=st.lists(st.sampled_from(FAULTS), max_size=3), at=st.integers(0, 7))
def test_environments_are_recorded_or_named(faults: list[str], at: int) -> None:
    Odd.faults, Odd.at = tuple(faults), at
    env = make_env(f"{__name__}:Odd", EnvConfig(observation=("state",)))
    episode, refusal = attempt(lambda: collect_random(Config(), env, env.signature, 0), EnvError)
    env.close()
    if refusal:
        assert "Odd" in refusal
        assert "step" in refusal or "reset()" in refusal
        return
    assert len(episode) >= 2
    assert np.isfinite(episode.observation["state"]).all()
    assert np.isfinite(episode.reward).all()


def odd_run(tiny: Config, **env: Any) -> Config:
    return dataclasses.replace(
        tiny, task=f"{__name__}:Odd", env=EnvConfig(observation=("state",), **env)
    )


@pytest.mark.parametrize(
    "fault", ["sleep", "retry", "raise", "exit", "space", "see nan", "reward huge", "ends", "four"]
)
def test_what_was_collected_before_a_fault_is_kept(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(Odd, "faults", ())
    config, run = odd_run(tiny, timeout=0.3), tmp_path / "run"

    def report(event: Any) -> None:
        if isinstance(event, IterationDone) and event.row["episode"] == 1:
            monkeypatch.setattr(Odd, "faults", (fault,))

    monkeypatch.setattr(Odd, "at", 2)
    began = time.monotonic()
    with pytest.raises(EnvError, match="hangs" if fault in ("sleep", "retry") else r"step|reset"):
        runs.train(config, run, report=report)
    assert time.monotonic() - began < 30
    progress = checkpoint.newest_sound(run).progress
    assert progress.episodes == 4
    for number in range(4):
        assert len(read_episode(run / "episodes" / f"{number:06d}.npz")) == 7
    monkeypatch.setattr(Odd, "faults", ())
    assert runs.train(runs.resume_config(run), run, resume=True)[1]


def inner_limit() -> gymnasium.Env[Any, Any]:
    """An environment of ours inside one of ours, as a function of a user may return it."""
    return make_env(f"{__name__}:Odd", EnvConfig(observation=("state",), timeout=50))


def test_an_inner_limit_does_not_lift_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "faults", ("sleep",))
    monkeypatch.setattr(Odd, "at", 2)
    env = make_env(f"{__name__}:inner_limit", EnvConfig(observation=("state",), timeout=0.3))
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    began = time.monotonic()
    with pytest.raises(EnvError, match="hangs"):
        env.step(np.zeros(2, np.float32))
    assert time.monotonic() - began < 10
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_fault_on_closing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "faults", ("close",))
    env = make_env(f"{__name__}:Odd", EnvConfig(observation=("state",)))
    with pytest.raises(EnvError, match=r"close\(\) raised RuntimeError: jammed"):
        env.close()


@pytest.mark.parametrize("length", [1, 2])
def test_episodes_shorter_than_the_training_sequence(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(Odd, "faults", ("end",))
    monkeypatch.setattr(Odd, "at", length)
    config = replaced(odd_run(tiny), collect={"absorbing_steps": 0})
    run, ended = runs.train(config, tmp_path / "run")
    assert ended
    assert len(read_episode(run / "episodes" / "000000.npz")) == length + 1
    assert all(math.isfinite(row["loss_total"]) for row in read_metrics(run / "metrics.jsonl"))


@pytest.mark.parametrize(
    "words",
    [
        ("--model.deter", str(10**30)),
        ("--model.deter", str(10**5)),
        ("--planner.num-trajectories", str(10**12)),
        ("--learn.batch-size", str(10**12)),
    ],
)
def test_sizes_beyond_any_machine_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    sizes = ("--task", "toy_reach", "--collect.seed-episodes", "1", "--env.max-steps", "2")
    run = ("--run", str(tmp_path / "run"))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    # Whatever the machine has, there is no more than this.
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, hard))
    try:
        assert cli.main(["train", *sizes, "--learn.first-updates", "0", *run, *words]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    said = capsys.readouterr().err
    assert "memory" in said
    assert "Traceback" not in said


class Blind(Odd):
    """Its renderer dies after some frames."""

    render_mode = "rgb_array"
    frames = 0

    def render(self) -> Any:
        Blind.frames += 1
        if 20 < Blind.frames < 1000:
            raise RuntimeError("the context is lost")
        return np.zeros((32, 32, 3), np.uint8)


def test_a_renderer_that_dies_is_reported_and_nothing_is_lost(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "faults", ())
    monkeypatch.setattr(Blind, "frames", 0)
    env = EnvConfig(observation=("pixels",), image_size=32)
    model = dataclasses.replace(tiny.model, image_depth=2)
    config = dataclasses.replace(tiny, task=f"{__name__}:Blind", env=env, model=model)
    run = tmp_path / "run"
    with pytest.raises(EnvError, match=r"render\(\) raised RuntimeError: the context is lost"):
        runs.train(config, run)
    assert checkpoint.newest_sound(run).progress.episodes == 2
    monkeypatch.setattr(Blind, "frames", 1000)
    assert runs.train(runs.resume_config(run), run, resume=True)[1]


# --- nothing is left behind


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not gl.egl_works(), reason="no EGL on this machine")
def test_resets_leave_no_handle_open() -> None:
    config = EnvConfig(observation=("pixels",), max_steps=2, image_size=32)

    def cycle(times: int) -> None:
        env = make_env("cartpole_swingup", config)
        for seed in range(times):
            env.reset(seed=seed)
            env.step(np.zeros(1, np.float32))
        env.close()

    cycle(2)
    before = open_files()
    for _ in range(5):
        cycle(10)
    assert open_files() == before
