"""Results are copied from runs that have ended, under names that their settings give."""

import json
from pathlib import Path

import pytest

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.results.archive import baselines, collect
from tiny_run import replaced


def test_runs_that_have_ended_are_kept(tiny: Config, tmp_path: Path) -> None:
    short = replaced(tiny, collect={"episodes": 0})
    ended, _ = pb.train(short, tmp_path / "ended")
    begun, _ = pb.train(short, tmp_path / "begun")
    text = (begun / "config.json").read_text().replace('"episodes": 0', '"episodes": 9')
    (begun / "config.json").write_text(text)
    messages = collect(tmp_path / "kept", [ended, begun])
    kept = tmp_path / "kept" / "planet_bayes" / "toy_reach-sensors"
    assert sorted(path.name for path in kept.iterdir()) == [
        *("seed-3.commits.json", "seed-3.csv", "seed-3.json")
    ]
    assert (kept / "seed-3.csv").read_text() == (ended / "metrics.csv").read_text()
    assert (kept / "seed-3.json").read_text() == (ended / "config.json").read_text()
    assert (kept / "seed-3.commits.json").read_text() == (ended / "commits.json").read_text()
    assert messages == [f"{begun} has not ended: left out"]
    assert collect(tmp_path / "kept", [ended]) == []
    text = (ended / "config.json").read_text().replace('"horizon": ', '"horizon": 1')
    (ended / "config.json").write_text(text)
    assert collect(tmp_path / "kept", [ended]) == [
        f"{ended} replaces a run of other settings: planner.horizon"
    ]


def test_baselines_are_of_both_policies(tmp_path: Path) -> None:
    path = baselines(tmp_path / "new", ["toy_reach"], episodes=3)
    assert path == tmp_path / "new" / "baselines.json"
    levels = json.loads(path.read_text())["toy_reach"]
    assert levels.keys() == {"random", "zero"}
    assert levels["random"]["episodes"] == 3
    assert levels["random"]["mean"] != levels["zero"]["mean"]


def test_runs_are_archived_by_name(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run")
    target = tmp_path / "results"
    words = [str(target), str(run), "--baselines", "--tasks", "toy_reach"]
    assert cli.main(["archive", *words]) == 0
    assert capsys.readouterr().out == f"{target / 'baselines.json'}\n"
    assert (
        json.loads((target / "baselines.json").read_text())["toy_reach"]["zero"]["episodes"] == 50
    )
    assert cli.main(["table", str(target)]) == 0
    assert "| `toy_reach` | sensors |" in capsys.readouterr().out
    assert cli.main(["archive", str(target), str(run), "--baselines"]) == 2
    assert "name the tasks" in capsys.readouterr().err


def test_a_declared_experiment_knows_its_runs(
    tiny: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("experiments") / "some.toml"
    file.parent.mkdir()
    file.write_text(
        """
        folder = "some"
        preset = "quick"
        tasks = ["toy_reach"]
        observations = ["sensors"]
        seeds = [3, 4]
        [variants.baseline]
        [variants.other]
        """
    )
    short = replaced(tiny, collect={"episodes": 0})
    pb.train(short, "runs/some/baseline/planet_bayes/toy_reach-sensors/seed-3")
    pb.train(short, "runs/some/other/planet_bayes/toy_reach-sensors/seed-3")
    assert cli.main(["archive", str(file)]) == 0
    found = sorted(path.as_posix() for path in Path("results").rglob("*.csv"))
    assert found == [
        f"results/some/{variant}/planet_bayes/toy_reach-sensors/seed-3.csv"
        for variant in ("baseline", "other")
    ]
    capsys.readouterr()
    assert cli.main(["table", str(file)]) == 0
    assert capsys.readouterr().out.startswith("| variant | `toy_reach` |")
    assert cli.main(["table", str(file), "--missing"]) == 0
    missing = capsys.readouterr().out.splitlines()
    assert len(missing) == 2
    assert all("--seed 4" in line for line in missing)
    assert cli.main(["archive", str(file), "runs/some"]) == 2
    assert "declares its runs" in capsys.readouterr().err
