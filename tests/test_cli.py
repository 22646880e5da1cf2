"""The command line, as a person uses it: in a process of its own."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assertions import assert_same_run
from planet_bayes import cli, runs
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.folder import CheckpointFolder
from planet_bayes.training import checkpoint
from planet_bayes.training.progress import Progress, load_progress
from tiny_run import replaced

TINY = shlex.split(
    "--task toy_reach --env.max-steps 12 --run.threads 1 --model.num-members 2 "
    "--planner.num-trajectories 24 --model.deter 8 --model.stoch 4 --model.hidden 8 "
    "--model.dense-units 8 --model.reward-units 8 --model.reward-layers 1 --planner.horizon 4 "
    "--planner.num-iterations 2 --collect.seed-episodes 2 --learn.batch-size 4 "
    "--learn.sequence-length 6 --learn.first-updates 0 --run.evaluation-episodes 2"
)


def start(*words: str, cwd: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "planet_bayes.cli", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def newest_progress(run: Path) -> Progress:
    return load_progress(CheckpointFolder(checkpoint.latest(run)).progress)


def test_train_stop_resume_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while it learns, continue, and end as a run that was never stopped."""
    words = ["train", *TINY, "--collect.episodes", "2", "--learn.updates-per-episode", "80"]
    stopped = start(*words, "--run", "stopped", cwd=tmp_path)
    metrics = tmp_path / "stopped" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (metrics.exists() and metrics.read_text().count("\n")):
        assert time.monotonic() < deadline
        assert stopped.poll() is None
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    code, output = finish(stopped)
    assert code == 130, output
    assert "planet-bayes train --resume stopped" in output
    assert newest_progress(tmp_path / "stopped").episodes < 4

    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--resume", "stopped"]) == 0
    assert cli.main([*words, "--run", "whole"]) == 0
    output = capsys.readouterr().out
    assert "done." in output
    assert "metrics.csv" in output
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")

    assert cli.main(["train", "--resume", "whole"]) == 0
    output = capsys.readouterr().out
    assert "whole was finished before, after 2 episodes" in output
    assert "train --resume whole --collect.episodes 4" in output
    assert "done." not in output

    assert cli.main(["evaluate", "whole", "--episodes", "2"]) == 0
    output = capsys.readouterr().out
    assert "toy_reach, after 2 episodes\n" in output  # seed episodes do not count
    assert "random actions" in output
    result = json.loads((tmp_path / "whole" / "evaluation.json").read_text())
    assert (len(result["returns"]), result["episodes"]) == (2, 2)
    assert (tmp_path / "whole" / "evaluation.mp4").stat().st_size > 500


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--task", "cartpole_swngup"], "did you mean 'cartpole_swingup'"),
        (["train", "--preset", "laptp"], "did you mean 'laptop'"),
        (
            ["train", "--preset", "fast"],
            "unknown preset 'fast'. There are quick, laptop, small, paper.",
        ),
        (["train", "--preset", "quick", "--resume", "nowhere"], "exclude each other"),
        (["train", "--method", "planet", "--resume", "nowhere"], "exclude each other"),
        (["train", "--method", "planett"], "did you mean 'planet'"),
        (["train", "--task", "examples/own_env.py:make"], "folder/file.py is the module"),
        (["train", "--resume", "nowhere"], "not a folder"),
        (["train", "--resume", "."], "not a run folder"),
        (["train", "--planner.proposal", "mixtur"], "did you mean 'mixture'"),
        (["train", "--planner.horizon", "0"], "horizon must be at least 1"),
        (["train", "--task", "toy_reach", "--run.device", "cuda:99"], "cannot be used"),
        (["train", "--task", "CartPole-v1"], "Discrete"),
        (["evaluate", "nowhere"], "not a folder"),
        (["export", "nowhere", "somewhere"], "not a folder"),
        (["diagnose", "nowhere"], "not a folder"),
        (["film", "film.gif", "nowhere"], "not a folder"),
        (["predict", "nowhere"], "not a folder"),
        (["replan", "nowhere"], "not a folder"),
        (["replan", "--episodes", "2"], "name the run's folder first"),
        (["refit", "nowhere"], "not a folder"),
        (["refit"], "name the run's folder first"),
        (["table", "nowhere"], "nowhere has no curves"),
        (["table", "nowhere", "--commands"], "not a declared experiment"),
        (["table", "nowhere.toml"], "not a readable experiment"),
        (["figures", "nowhere"], "nowhere has no curves"),
        (["archive", "results"], "name the runs to archive"),
        (["archive", "results", "nowhere"], "not a readable configuration"),
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["watch"], "unknown command 'watch'"),
    ],
)
def test_mistakes_get_one_sentence(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.glob("runs/*"))  # a run that could not begin leaves no folder


def test_an_unknown_task_is_told_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--task", "cartpole_swngup"]) == 2
    assert capsys.readouterr().out == ""


def test_a_misspelt_option_is_refused_with_the_nearest(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["train", "--collect.epsodes", "3"])
    assert exit_info.value.code == 2
    assert "--collect.episodes" in capsys.readouterr().err


def test_a_run_is_read_once_for_its_settings(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """And once more, behind the lock, to resume from it."""
    short = replaced(tiny, collect={"episodes": 0}, run={"keep_checkpoints": 1})
    path, _ = runs.train(short, tmp_path / "run")
    checked: list[Path] = []
    check_folder = files.check_folder

    def check(folder: Path) -> None:
        checked.append(folder)
        check_folder(folder)

    monkeypatch.setattr(files, "check_folder", check)
    assert cli.main(["train", "--resume", str(path), "--run.threads", "1"]) == 0
    assert len(checked) == 2
    checked.clear()
    assert cli.main(["train", "--resume", str(path), "--model.deter", "9"]) == 2
    assert "model.deter cannot be changed in a run that has begun" in capsys.readouterr().err
    assert len(checked) == 1


def test_tasks_are_listed(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["tasks"]) == 0
    output = capsys.readouterr().out
    for name in ("cup_catch", "finger_spin", "cheetah_run", "walker_run", "toy_reach"):
        assert name in output
    assert "--env.original" in output


def test_an_exported_agent_acts_alike_and_is_small(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = runs.train(tiny, tmp_path / "run")
    target = tmp_path / "agent"
    assert cli.main(["export", str(path), str(target)]) == 0
    assert sorted(file.name for file in target.rglob("*") if file.is_file()) == [
        "SHA256SUMS",
        "config.json",
        "config.json",
        "model.safetensors",
        "progress.json",
        "signature.json",
    ]
    run, agent = runs.load_run(path), runs.load_run(target)
    assert runs.evaluate(run, 1) == runs.evaluate(agent, 1)
    assert cli.main(["export", str(path), str(target)]) == 2  # it is there already
    assert cli.main(["export", str(tmp_path), str(tmp_path / "other")]) == 2  # not a run
    assert cli.main(["train", "--resume", str(target)]) == 2
    assert f"{target} is an exported agent" in capsys.readouterr().err
    for folder, code in (("older", 0), ("oldest", 0), ("none", 2)):
        (checkpoint.latest(path) / "progress.json").unlink()
        assert cli.main(["export", str(path), str(tmp_path / folder)]) == code
        printed = capsys.readouterr()
        assert "progress.json cannot be read" in (printed.err if code else printed.out)
    assert not list(tmp_path.glob("other*"))
