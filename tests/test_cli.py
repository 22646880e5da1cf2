"""The command line, as a person uses it: in a process of its own."""

import dataclasses
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from comparing import assert_same_run
from planet_bayes import cli, runs
from planet_bayes.config import PRESETS, Config
from planet_bayes.training import Event, checkpoint
from planet_bayes.watch import Watcher

TINY = shlex.split(
    "--task toy_reach --env.max-steps 12 --threads 1 --num-members 2 --num-trajectories 24 "
    "--model.deter 8 --model.stoch 4 --model.hidden 8 --model.vector-units 8 "
    "--model.reward-units 8 --model.reward-layers 1 --planner.horizon 4 "
    "--planner.num-iterations 2 --train.seed-episodes 2 --train.batch-size 4 "
    "--train.sequence-length 6 --train.first-updates 0 --train.evaluation-episodes 2"
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


def test_train_stop_resume_evaluate(tmp_path: Path) -> None:
    """Ctrl-C while it learns, go on, and end as a run that was never stopped."""
    words = ["train", *TINY, "--train.episodes", "2", "--train.updates-per-episode", "150"]
    whole = start(*words, "--run", "whole", cwd=tmp_path)
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
    assert checkpoint.load_progress(checkpoint.latest(tmp_path / "stopped")).episodes < 4
    code, output = finish(start("train", "--resume", "stopped", cwd=tmp_path))
    assert code == 0, output
    code, output = finish(whole)
    assert code == 0, output
    assert "done." in output
    assert "metrics.csv" in output
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")

    code, output = finish(start("train", "--resume", "whole", cwd=tmp_path))
    assert code == 0, output
    assert "whole was finished before" in output
    assert "done." not in output

    code, output = finish(start("evaluate", "whole", "--episodes", "2", cwd=tmp_path))
    assert code == 0, output
    assert "random actions" in output
    result = json.loads((tmp_path / "whole" / "evaluation.json").read_text())
    assert len(result["returns"]) == 2
    assert (tmp_path / "whole" / "evaluation.mp4").stat().st_size > 500


def test_termination_checkpoints_and_says_so(tmp_path: Path) -> None:
    process = start("train", *TINY, "--run", "run", cwd=tmp_path)
    while not list(tmp_path.glob("run/checkpoints/*/progress.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 143, output
    checkpoint.load_progress(checkpoint.latest(tmp_path / "run"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--task", "cartpole_swngup"], "did you mean 'cartpole_swingup'"),
        (["train", "--preset", "laptp"], "did you mean 'laptop'"),
        (["train", "--preset", "fast"], "unknown preset 'fast'. There are quick, laptop, paper."),
        (["train", "--preset", "quick", "--resume", "nowhere"], "exclude each other"),
        (["train", "--task", "examples/own_env.py:make"], "folder/file.py is the module"),
        (["train", "--resume", "nowhere"], "not a folder"),
        (["train", "--resume", "."], "not a run folder"),
        (["train", "--planner.proposal", "mixtur"], "did you mean 'mixture'"),
        (["train", "--planner.horizon", "0"], "error: horizon must be at least 1"),
        (["train", "--task", "toy_reach", "--device", "cuda:99"], "cannot be used"),
        (["train", "--task", "CartPole-v1"], "Discrete"),
        (["evaluate", "nowhere"], "not a folder"),
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
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))  # a run that could not begin leaves no folder


def test_a_misspelt_option_is_refused_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--train.epsodes", "3"])
    assert "--train.episodes" in capsys.readouterr().err


def test_the_time_left_leaves_out_the_first_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has many more updates than the others, so its pace says nothing of theirs."""
    now = 0.0
    monkeypatch.setattr("planet_bayes.watch.time.monotonic", lambda: now)
    train = dataclasses.replace(PRESETS["quick"].train, episodes=10)
    config = dataclasses.replace(PRESETS["quick"], train=train)
    watcher = Watcher(Console(file=io.StringIO()), config)
    shown = []
    for episode in range(3):
        for done in (50, 100):
            now += 1000.0 if episode == 0 else 30.0
            watcher(Event("update", {"episode": episode, "done": done, "of": 100}))
            shown.append(watcher.bar.tasks[0].fields["left"])
        watcher(Event("row", {"episode": episode}))
        shown.append(watcher.bar.tasks[0].fields["left"])
    # Eleven iterations, of a minute each but for the first.
    assert shown[:3] == ["", "", ""]
    assert shown[5] == "about 9 min left"
    assert shown[8] == "about 8 min left"


def test_tasks_are_listed(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["tasks"]) == 0
    output = capsys.readouterr().out
    for name in ("cup_catch", "finger_spin", "cheetah_run", "walker_run", "toy_reach"):
        assert name in output


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
        said = capsys.readouterr()
        assert "progress.json cannot be read" in (said.err if code else said.out)
    assert not list(tmp_path.glob("other*"))
