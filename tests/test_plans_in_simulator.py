"""The benchmark with the simulator as the model: paired differences, and what is left to do."""

import json
import runpy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from planet_bayes.envs import EnvConfig, make_env

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TASKS = ["cheetah_run", "finger_spin", "cup_catch"]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return runpy.run_path(str(BENCHMARKS / "plans_in_simulator.py"))


@pytest.mark.parametrize("task", TASKS)
def test_the_faster_model_has_exactly_the_simulators_rewards(
    task: str, benchmark: dict[str, Any]
) -> None:
    model = benchmark["RolloutModel"](task)
    generator = torch.Generator().manual_seed(0)
    scored = 0.0
    with closing(make_env(task, EnvConfig(observation=("state",)))) as env:
        assert env.action_space.shape is not None
        for seed in (0, 1):  # the ball falls into the cup from the first start
            env.reset(seed=seed)
            for _ in range(2):
                actions = 2 * torch.rand(1, 6, 8, *env.action_space.shape, generator=generator) - 1
                rewards = model.imagine(env, actions, generator)
                assert torch.equal(rewards, model.slow.imagine(env, actions, generator))
                real = [float(env.step(action.numpy())[1]) for action in actions[0, 0]]
                assert rewards[0, 0, 0].tolist() == real
                scored += float(rewards.sum())
    assert scored > 0


def test_a_diverging_candidate_is_rejected(
    benchmark: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(make_env("cheetah_run", EnvConfig(observation=("state",)))) as env:
        env.reset(seed=0)
        native: Any = env.unwrapped
        native.physics.data.qvel[:] = 1e9
        model, actions = benchmark["RolloutModel"]("cheetah_run"), torch.zeros(1, 2, 3, 6)
        assert model.imagine(env, actions, torch.Generator()).isnan().any()


def row(method: str, start: int, total: float) -> dict[str, Any]:
    return {"method": method, "start": start, "return": total, "distinct": 1.0}


def test_differences_are_of_the_same_starts(benchmark: dict[str, Any]) -> None:
    rows = [row("cem", 1, 10.0), row("cem", 0, 4.0), row("paets", 0, 5.0), row("paets", 1, 9.0)]
    rows += [row("paets", 2, 100.0)]  # cem has not controlled this start yet
    assert benchmark["differences"](rows, "paets") == [1.0, -1.0]


def test_tables_are_of_the_starts_that_all_methods_have(benchmark: dict[str, Any]) -> None:
    rows = [row("cem", 0, 4.0), row("paets", 0, 5.0), row("cem", 1, 9.0)]
    assert benchmark["complete"](rows) == rows[:2]


def test_the_interval_is_students(benchmark: dict[str, Any]) -> None:
    assert benchmark["with_interval"]([1.0, 2.0, 3.0]) == "2.0 ± 2.5"  # 4.303 / √3
    assert benchmark["with_interval"]([1.0]) == "-"


def test_a_stopped_run_has_all_methods_of_its_starts(benchmark: dict[str, Any]) -> None:
    names, sizes = ["cem", "paets"], benchmark["SIZES"]
    found = list(benchmark["episodes"](benchmark["Options"](), names))
    assert len(set(found)) == len(found) == 2 * sum(size.starts for size in sizes.values())
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert (first.task, first.start) == (second.task, second.start)
        assert (first.method, second.method) == ("cem", "paets")
    for task, size in sizes.items():
        starts = [one.start for one in found if one.task == task and one.method == "cem"]
        assert starts == list(range(3000, 3000 + size.starts))


def test_an_episode_is_measured_once(benchmark: dict[str, Any], tmp_path: Path) -> None:
    """Zero actions stand for all methods here: they cost nothing."""
    path = tmp_path / "rows.jsonl"
    options = benchmark["Options"](tasks=("finger_spin",), write=path)
    benchmark["measure"].__globals__["methods"] = lambda options: {}
    rows: list[dict[str, Any]] = []
    benchmark["measure"](options, rows)
    assert {one["method"] for one in rows} == {"random", "zero"}
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert saved == rows
    benchmark["measure"](options, saved)
    assert saved == rows
    assert path.read_text().count("\n") == len(rows)
