"""The parts of a sweep: its choice of runs, its refusals, its estimates and its table."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from planet_bayes import cli
from planet_bayes import config as configuration
from planet_bayes.cli._board import report, table
from planet_bayes.data import files
from planet_bayes.data.commits import Commit, record_commits
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.results.experiment import Experiment, PlannedRun, read_experiment
from planet_bayes.sweep import worker
from planet_bayes.sweep.backend import Ended
from planet_bayes.sweep.board import Board
from planet_bayes.sweep.jobs import Job, make_jobs, select
from planet_bayes.sweep.loop import archived
from planet_bayes.sweep.process import last_lines
from planet_bayes.sweep.standing import Standing, standing
from tiny_run import replaced

TEXT = """
folder = "some"
preset = "quick"
methods = ["planet", "planet_bayes"]
tasks = ["toy_reach", "cup_catch"]
observations = ["sensors", ["pixels", "sensors"]]
seeds = [0, 10]
settings.collect.episodes = 4
[variants.plain]
[variants.other]
learn.ema_decay = 0.5
"""
NOW = Commit("a" * 40)


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(tmp_path)
    path = Path("experiments") / "some.toml"
    path.parent.mkdir()
    path.write_text(TEXT)
    return read_experiment(path)


@pytest.fixture
def jobs(experiment: Experiment) -> list[Job]:
    return make_jobs(experiment.runs, NOW)


def begin(job: Job, rows: list[dict[str, float]], commit: Commit = NOW) -> None:
    """Write the files of a run that has these rows."""
    job.folder.path.mkdir(parents=True)
    configuration.save(job.config, job.folder.config)
    record_commits(job.folder.path, [commit])
    job.folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


# --- which runs


def test_any_subset_can_be_chosen(experiment: Experiment) -> None:
    whole = select(experiment.runs, {"methods": (), "seeds": ()})
    assert set(run.folder for run in whole) == set(run.folder for run in experiment.runs)
    chosen = select(
        experiment.runs,
        {
            "methods": ("planet",),
            "tasks": ("toy_reach", "cup_catch"),
            "seeds": (10,),
            "observations": ("pixels+sensors",),
            "variants": ("other",),
        },
    )
    assert [run.name.path.as_posix() for run in chosen] == [
        "planet/toy_reach-pixels+sensors/seed-10",
        "planet/cup_catch-pixels+sensors/seed-10",
    ]
    assert {run.variant for run in chosen} == {"other"}


def test_runs_of_a_seed_come_together_and_otherwise_as_declared(experiment: Experiment) -> None:
    chosen = select(experiment.runs, {})
    assert [run.name.seed for run in chosen] == sorted(run.name.seed for run in experiment.runs)
    assert len({run.name.seed for run in chosen}) == 2
    for seed in (0, 10):
        declared = [run for run in experiment.runs if run.name.seed == seed]
        assert [run for run in chosen if run.name.seed == seed] == declared


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        ("methods", "planetbayes", "--methods.*'planetbayes'; did you mean 'planet_bayes'"),
        ("tasks", "cup_cach", "--tasks.*did you mean 'cup_catch'"),
        ("observations", "sensor", "--observations.*did you mean 'sensors'"),
        ("variants", "othr", "--variants.*did you mean 'other'"),
        ("seeds", 1, r"--seeds: the experiment has no '1'.* There are: 0, 10\."),
    ],
)
def test_unknown_names_are_told_with_the_nearest(
    experiment: Experiment, axis: str, value: str | int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        select(experiment.runs, {axis: (value,)})


def test_a_choice_without_runs_is_told(experiment: Experiment) -> None:
    runs = [run for run in experiment.runs if (run.variant, run.name.seed) != ("other", 10)]
    with pytest.raises(ConfigError, match="no run with all"):
        select(runs, {"variants": ("other",), "seeds": (10,)})


def test_options_of_the_other_backend_are_refused(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        (("--jobs", "2", "--backend", "ray"), "--jobs is for --backend local"),
        (("--address", "here:1"), "--address is for --backend ray"),
        (("--jobs", "0"), "--jobs must be at least 1"),
    ):
        assert cli.main(["sweep", str(experiment.path), *words]) == 2
        assert message in capsys.readouterr().err


# --- jobs


def test_a_job_has_one_thread_unless_more_are_declared(experiment: Experiment) -> None:
    run = experiment.runs[0]

    def job(**settings: object) -> Job:
        return make_jobs([dataclasses.replace(run, settings=settings)], NOW)[0]

    assert job(**{"run.threads": 0}).config.run.threads == 1
    assert job(**{"run.threads": 0}).run.config() == job(**{"run.threads": 0}).config
    assert job(**{"run.threads": 3}).cores == 3
    assert job(**{"run.threads": 3, "collect.overlap": True}).cores == 4
    assert len({one.name for one in make_jobs(experiment.runs, NOW)}) == len(experiment.runs)


def test_settings_that_make_another_method_are_told(experiment: Experiment) -> None:
    run = dataclasses.replace(experiment.runs[0], settings={"model.num_members": 2})
    with pytest.raises(ConfigError, match="method planet is e_only"):
        make_jobs([run], NOW)


def test_a_run_that_is_declared_twice_is_told(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"declares plain/planet/toy_reach-sensors/seed-0 more"):
        make_jobs([*experiment.runs, experiment.runs[0]], NOW)


def test_a_run_of_another_commit_is_not_continued(jobs: list[Job]) -> None:
    job, other = jobs[0], Commit("b" * 40)
    begin(job, [{"episode": 0, "minutes": 1.0}], other)
    with pytest.raises(ConfigError, match=r"seed-0 is of commit bbbbbbbbbbbb, and .*--any-commit"):
        make_jobs([job.run], NOW)
    assert make_jobs([job.run], NOW, any_commit=True) == [job]
    assert make_jobs([job.run], other)
    with pytest.raises(ConfigError, match="bbbb, and the code is of bbbbbbbbbbbb with uncommitted"):
        make_jobs([job.run], dataclasses.replace(other, modified=True))
    job.folder.metrics.write_text('{"episode": 4}\n')  # it has ended: there is nothing to continue
    assert make_jobs([job.run], NOW) == [job]


def test_a_run_of_other_settings_is_not_continued(jobs: list[Job]) -> None:
    job = jobs[0]
    other = replaced(job.config, model={"deter": 9}, run={"keep_checkpoints": 9})
    begin(dataclasses.replace(job, config=other), [])
    with pytest.raises(ConfigError, match=r"other values than declared of model.deter\. Move"):
        make_jobs([job.run], NOW, any_commit=True)
    job.folder.config.write_text("damaged")  # resuming repairs it
    assert make_jobs([job.run], NOW) == [job]


# --- the process of a job


def test_a_worker_waits_for_the_lock_of_a_run(tmp_path: Path) -> None:
    worker.wait_for_lock(tmp_path / "new", seconds=0)  # there is none
    worker.wait_for_lock(tmp_path, seconds=0)
    with files.lock(tmp_path), pytest.raises(RunError, match="in use by another process"):
        worker.wait_for_lock(tmp_path, seconds=0.3)


def test_a_worker_becomes_the_command_that_fits_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: made.append(words))
    monkeypatch.setattr(worker, "end_with", lambda parent: None)
    monkeypatch.setattr(worker, "current_commit", lambda: NOW)
    order = worker.Order(0, str(tmp_path), dataclasses.asdict(NOW), ["begin"], ["resume"])
    worker.main(order)
    (tmp_path / "config.json").touch()
    worker.main(order)
    assert made == [[sys.executable, "-m", "planet_bayes.cli", word] for word in order_words(order)]
    other = dataclasses.replace(order, commit=dataclasses.asdict(Commit("b" * 40)))
    with pytest.raises(RunError, match="the sweep is of commit bbbbbbbbbbbb, and the code here"):
        worker.main(other)


def order_words(order: worker.Order) -> list[str]:
    return [*order.begin, *order.resume]


def test_a_worker_without_its_parent_does_not_begin() -> None:
    child = os.fork()
    if not child:
        try:
            worker.end_with(1 << 30)
        except RunError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_last_lines_are_those_of_the_last_process(jobs: list[Job]) -> None:
    job = jobs[0]
    assert last_lines(job, 3) == []
    job.log.parent.mkdir(parents=True)
    job.log.write_text("--- one\na\nb\nc\n--- two\nd\n")
    assert last_lines(job, 3) == ["d"]
    job.log.write_text("--- one\na\nb\nc\nd\n")
    assert last_lines(job, 3) == ["b", "c", "d"]


def test_the_end_of_a_process_in_words(jobs: list[Job]) -> None:
    job = jobs[0]
    assert Ended.with_code(job, 0).failure is None
    assert Ended.with_code(job, 2).failure == "exit code 2"
    assert Ended.with_code(job, -9).failure == "killed by signal 9"


def test_a_run_that_cannot_be_archived_has_failed(jobs: list[Job]) -> None:
    job = jobs[0]
    assert (archived(Ended(job)).failure or "").startswith("not archived: ")
    begin(job, [{"episode": 3, "minutes": 1.0}])
    assert archived(Ended(job)).failure == f"{job.run.folder} has not ended: left out"
    assert archived(Ended(job, "exit code 2")) == Ended(job, "exit code 2")


# --- how far it is


def test_how_far_a_run_is(jobs: list[Job]) -> None:
    job = jobs[0]
    assert standing(job) == Standing()
    begin(job, [{"episode": 0, "minutes": 5.0, "train_return": 7.0}])
    assert standing(job) == Standing(0, 7.0, None, 5.0, None)
    rows = [
        {"episode": 0, "minutes": 5.0, "train_return": 7.0},
        {"episode": 1, "minutes": 6.0, "train_return": 8.0, "evaluation_return": 9.0},
        {"episode": 2, "minutes": 7.0, "train_return": 8.5},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    job.folder.metrics.write_text(text)
    assert standing(job) == Standing(2, 8.5, 9.0, 7.0, 2.0)  # a minute for each of two episodes
    job.folder.metrics.write_text(text + '{"episode": 3, "min')  # the writer was killed
    assert standing(job) == Standing(2, 8.5, 9.0, 7.0, 2.0)
    last = {"episode": 4, "minutes": 9.0, "evaluation_return": 3.0}
    job.folder.metrics.write_text(text + json.dumps(last) + "\n")
    assert standing(job) == Standing(4, 8.5, 3.0, 9.0, 0.0)
    assert standing(job).total_minutes == 9.0


def two_rows(minutes: float) -> list[dict[str, float]]:
    """Return the rows of a run that is at episode 1 of 4, with so many minutes for each."""
    return [{"episode": number, "minutes": minutes * (number + 1)} for number in range(2)]


def test_the_time_left_is_that_of_runs_alike(jobs: list[Job]) -> None:
    plain = [job for job in jobs if job.run.variant == "plain" and job.run.name.seed == 0]
    sensors = [job for job in plain if job.run.name.observation == "sensors"]
    toy, cup = (
        [job for job in sensors if job.run.name.task == t] for t in ("toy_reach", "cup_catch")
    )
    board = Board([*toy, *cup])
    assert board.minutes_left() is None
    board.begin(toy[0])
    board.look(toy[0])
    assert board.minutes_left() is None
    begin(toy[0], two_rows(1.0))  # 3 minutes left of 5
    board.look(toy[0])
    assert board.minutes_left() == pytest.approx(3 + 5 + 5 + 5)
    board.begin(cup[0])
    begin(cup[0], two_rows(10.0))  # 30 minutes left of 50
    board.look(cup[0])
    assert board.minutes_left() == pytest.approx(max(50, (3 + 30 + 5 + 50) / 2))
    for job in (toy[0], cup[0]):
        board.end(Ended(job))
    for job in (toy[1], cup[1]):
        board.end(Ended(job, "exit code 1"))
    assert board.is_over
    assert board.minutes_left() is None


def test_the_table_shows_counts_returns_and_failures(jobs: list[Job]) -> None:
    board = Board(jobs[:4])
    begin(jobs[0], [{"train_return": 12.25, **row} for row in two_rows(1.0)])
    board.begin(jobs[0])
    board.end(Ended(jobs[1]))
    board.begin(jobs[2])
    jobs[2].log.parent.mkdir(parents=True, exist_ok=True)
    jobs[2].log.write_text("--- one\nerror: no such thing\n")
    board.end(Ended(jobs[2], "exit code 2"))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(board))
    shown = console.export_text()
    assert "1 done, 1 running, 1 waiting, 1 failed; time left: 8 min" in shown
    (running,) = [line for line in shown.splitlines() if jobs[0].name in line]
    assert [cell.strip() for cell in running.split("│")[2:-1]] == ["1/4", "12.2", "-", "3 min"]
    (failed,) = [line for line in shown.splitlines() if jobs[2].name in line]
    assert "failed" in failed
    report(board, console)
    assert console.export_text().split("\n") == [
        "",
        f"{jobs[2].name} failed: exit code 2",
        "  error: no such thing",
        f"  log: {jobs[2].log}",
        "",
    ]


# --- the cluster


@pytest.mark.parametrize(
    ("device", "has_gpus", "expected"),
    [("cpu", True, 0), ("auto", True, 1), ("auto", False, 0), ("cuda", False, 1)],
)
def test_the_gpu_of_a_job(jobs: list[Job], device: str, has_gpus: bool, expected: int) -> None:
    cluster = pytest.importorskip("planet_bayes.sweep.cluster")
    job = dataclasses.replace(jobs[0], config=replaced(jobs[0].config, run={"device": device}))
    assert cluster.num_gpus(job, has_gpus) == expected
    numbered = replaced(jobs[0].config, run={"device": "cuda:1"})
    with pytest.raises(ConfigError, match=r"run\.device is cuda:1.*Ray chooses"):
        cluster.num_gpus(dataclasses.replace(job, config=numbered), has_gpus)


def test_without_ray_the_extra_is_named(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "planet_bayes.sweep.cluster", raising=False)
    assert cli.main(["sweep", str(experiment.path), "--backend", "ray"]) == 2
    assert 'extra [cluster]. From a checkout: pip install ".[cluster]"' in capsys.readouterr().err


def test_a_run_that_is_continued_keeps_its_declared_settings(experiment: Experiment) -> None:
    run: PlannedRun = experiment.runs[-1]
    assert run.resume_words == [
        *("train", "--resume", str(run.folder)),
        *("--collect.episodes", "4", "--learn.ema-decay", "0.5"),
    ]


def test_a_task_of_the_cluster_stops_for_a_file_though_ray_lost_the_cancel(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = pytest.importorskip("planet_bayes.sweep.cluster")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(cluster, "start", lambda job: process)
    monkeypatch.setattr(cluster, "_POLL_SECONDS", 0.01)
    jobs[0].stop.parent.mkdir(parents=True)
    threading.Timer(0.2, jobs[0].stop.touch).start()
    assert cluster._run(jobs[0]) == -signal.SIGTERM
