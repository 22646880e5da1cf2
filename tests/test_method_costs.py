"""The benchmark of what methods cost writes a file that tables and figures read."""

import runpy
import sys
from pathlib import Path

import pytest

from planet_bayes.results.curves import Cost, read_costs

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "method_costs.py"
EXPERIMENT = """
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
planner.num_trajectories = 40
planner.num_iterations = 2
env.max_steps = 12
"""


def measure(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["method_costs.py", str(path), "--rounds", "2"])
    runpy.run_path(str(BENCHMARK), run_name="__main__")


def test_every_method_and_task_has_its_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "experiments" / "toy.toml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT)
    (tmp_path / "results" / "toy").mkdir(parents=True)
    measure(monkeypatch, path)
    found = read_costs(tmp_path / "results" / "toy")
    assert set(found) == {(name, "toy_reach", "sensors") for name in ("planet_bayes", "planet")}
    for cost in found.values():
        assert isinstance(cost, Cost)
        assert 0 < cost.random_step < cost.step  # a plan is more work than a random action
        assert cost.update > 0


def test_variants_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "experiments" / "toy.toml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT + "\n[variants.one]\n[variants.two]\nmodel.deter = 9\n")
    with pytest.raises(SystemExit):
        measure(monkeypatch, path)
    assert "compares variants" in capsys.readouterr().err
