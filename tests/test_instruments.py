"""The benchmark that measures why a method is better."""

import json
import math
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planet_bayes as pb
from planet_bayes.results.experiment import read_experiment
from planet_bayes.types import Episode
from sweeping import declare_methods

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "instruments.py"
INSTRUMENTS = runpy.run_path(str(BENCHMARK))


def walk(*positions: float) -> Episode:
    values = np.array([[one, 7.0] for one in positions], np.float32)
    count = len(values)
    return Episode(
        {"sensors": values},
        np.zeros((count, 1), np.float32),
        np.zeros(count, np.float32),
        np.zeros(count, np.bool_),
    )


def test_the_distance_is_to_the_nearest_step_of_another_episode_in_stds_of_seed_episodes() -> None:
    seed = [walk(0.0, 4.0)]  # std 2; the second sensor never moves
    own = [walk(0.0, 0.1), walk(1.0, 9.0)]
    nearest = np.array([1.0, 0.9, 0.9, 8.9]) / 2
    found = INSTRUMENTS["distance"](seed, own)
    assert found == pytest.approx(float(np.exp(np.log(nearest).mean())), rel=1e-5)


def test_more_diverse_episodes_have_a_larger_distance() -> None:
    rng = np.random.default_rng(0)
    seed = [walk(*rng.normal(size=50))]
    narrow, wide = ([walk(*scale * rng.normal(size=50)) for _ in range(4)] for scale in (0.3, 3))
    assert 5 * INSTRUMENTS["distance"](seed, narrow) < INSTRUMENTS["distance"](seed, wide)


def test_an_error_is_relative_to_the_std_of_the_truth() -> None:
    assert INSTRUMENTS["relative"](3.0, 2.0) == 1.5
    assert math.isnan(INSTRUMENTS["relative"](3.0, 0.0))


def measure(monkeypatch: pytest.MonkeyPatch, path: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["instruments.py", str(path), *words])
    runpy.run_path(str(BENCHMARK), run_name="__main__")


def test_runs_that_have_ended_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = declare_methods(tmp_path)
    with pytest.raises(SystemExit):
        measure(monkeypatch, path)
    assert "no run has been measured" in capsys.readouterr().err
    for planned in read_experiment(path).runs:
        if planned.name.seed == 0:
            folder, _ = pb.train(planned.config(), tmp_path / planned.folder)
            planned.result.parent.mkdir(parents=True)
            shutil.copy(folder / "metrics.csv", planned.result)
    measure(monkeypatch, path)
    printed = capsys.readouterr().out
    rows: dict[str, dict[str, Any]] = {}
    for line in (tmp_path / "results" / "toy" / "instruments.jsonl").read_text().splitlines():
        rows[json.loads(line)["method"]] = json.loads(line)
    assert set(rows) == {"planet_bayes", "planet"}
    for one in rows.values():
        assert one["seed"] == 0
        assert one["error"] > 0
        assert one["distance"] > 0
        assert abs(one["bias"]) < 10
        evaluations = mean_evaluation(tmp_path / "results" / "toy" / one["method"])
        assert one["evaluated"] == pytest.approx(evaluations)
    assert rows["planet_bayes"]["ratio"] > 0
    assert rows["planet"]["ratio"] is None  # one member
    assert "| `toy_reach` | `planet` | 0 |" in printed
    shutil.rmtree(tmp_path / "runs")  # the file is enough from now on
    measure(monkeypatch, path)
    assert capsys.readouterr().out == printed
    measure(monkeypatch, path, "--read")
    assert capsys.readouterr().out == printed


def mean_evaluation(folder: Path) -> float:
    lines = (folder / "toy_reach-sensors" / "seed-0.csv").read_text().splitlines()
    column = lines[0].split(",").index("evaluation_return")
    values = [line.split(",")[column] for line in lines[1:]]
    return float(np.mean([float(value) for value in values if value]))
