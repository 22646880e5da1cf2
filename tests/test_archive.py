"""Results are copied from runs that have ended, under names that their settings give."""

import dataclasses
import json
from pathlib import Path

import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.experiments import changes
from planet_bayes.experiments.archive import baselines, collect


def test_runs_that_have_ended_are_kept(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, episodes=0))
    ended, _ = pb.train(short, tmp_path / "ended")
    begun, _ = pb.train(short, tmp_path / "begun")
    text = (begun / "config.json").read_text().replace('"episodes": 0', '"episodes": 9')
    (begun / "config.json").write_text(text)
    collect(tmp_path / "kept", [ended, begun])
    kept = tmp_path / "kept" / "planet_bayes" / "toy_reach-sensors"
    assert sorted(path.name for path in kept.iterdir()) == ["seed-3.csv", "seed-3.json"]
    assert (kept / "seed-3.csv").read_text() == (ended / "metrics.csv").read_text()
    assert (kept / "seed-3.json").read_text() == (ended / "config.json").read_text()
    assert capsys.readouterr().out == f"{begun} has not ended: left out\n"
    collect(tmp_path / "kept", [ended])
    assert capsys.readouterr().out == ""
    text = (ended / "config.json").read_text().replace('"horizon": ', '"horizon": 1')
    (ended / "config.json").write_text(text)
    collect(tmp_path / "kept", [ended])
    assert capsys.readouterr().out == f"{ended} replaces one of other settings: planner.horizon\n"


def test_baselines_are_of_both_policies(tmp_path: Path) -> None:
    baselines(tmp_path, ["toy_reach"], episodes=3)
    levels = json.loads((tmp_path / "baselines.json").read_text())["toy_reach"]
    assert levels.keys() == {"random", "zero"}
    assert levels["random"]["episodes"] == 3
    assert levels["random"]["mean"] != levels["zero"]["mean"]


def test_changes_are_rows_and_tasks_columns(tmp_path: Path) -> None:
    def write(change: str, task: str, seed: int, *returns: str) -> None:
        folder = tmp_path / change / "planet_bayes" / f"{task}-sensors"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [f"{number},1,{value},0.5" for number, value in enumerate(returns)]
        text = "episode,train_return,evaluation_return,cpu_minutes\n" + "\n".join(rows) + "\n"
        (folder / f"seed-{seed}.csv").write_text(text)

    write("averaging", "cup_catch", 0, "10", "", "20.4")
    write("nothing", "cartpole_swingup", 0, "30", "40")
    write("nothing", "cartpole_swingup", 1, "50", "")
    write("nothing", "cup_catch", 0, "", "")
    assert changes.table(tmp_path).splitlines() == [
        "| without | `cartpole_swingup` | `cup_catch` |",
        "|---|---|---|",
        "| nothing | 40, 50 | nan |",
        "| averaging |  | 20 |",
    ]
