"""The benchmark of what methods cost writes a file that tables and figures read."""

import runpy
import sys
from pathlib import Path

import pytest

from planet_bayes.results.curves import Cost, read_costs
from sweeping import METHODS, declare_methods

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "method_costs.py"


def measure(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["method_costs.py", str(path), "--rounds", "2"])
    runpy.run_path(str(BENCHMARK), run_name="__main__")


def test_every_method_and_task_has_its_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = declare_methods(tmp_path)
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
    path = declare_methods(tmp_path)
    path.write_text(METHODS + "\n[variants.one]\n[variants.two]\nmodel.deter = 9\n")
    with pytest.raises(SystemExit):
        measure(monkeypatch, path)
    assert "compares variants" in capsys.readouterr().err
