"""Sweeps end to end: with a run that fails, stopped, killed, and on a cluster that loses a node."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

import sweeping
from planet_bayes.data.commits import current_commit
from sweeping import SLOW, curve, declare, log, num_rows, start_sweep, wait_for

ONLY = ("--tasks", "walk:make", "--jobs", "1")


def children(process: "subprocess.Popen[str]") -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()]


def trainers(folder: Path) -> list[int]:
    """The processes that train in a folder, whoever has started them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if b"train" in words and (path / "cwd").resolve() == folder.resolve():
                found.append(int(path.name))
    return found


def stop_in_the_middle(folder: Path, *words: str) -> None:
    """Begin a sweep, and end it with SIGTERM in the middle of its run."""
    process = start_sweep(folder, *words)
    try:
        wait_for(lambda: num_rows(folder) > 1)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert output.endswith("stopped; the same command continues\n")
    # The run has written a checkpoint. The modules that the sweep imports, it has imported too.
    assert "stopped; continue with:  planet-bayes --import walk train --resume" in log(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """The folder, exit code and output of a sweep that nobody disturbed; one of its runs fails."""
    folder = declare(tmp_path_factory.mktemp("whole"))
    process = start_sweep(folder, "--jobs", "2")
    output, _ = process.communicate()
    return folder, process.returncode, output


def test_a_run_that_fails_is_reported_and_the_other_is_archived(
    whole: tuple[Path, int, str],
) -> None:
    folder, code, output = whole
    assert code == 1
    good, bad = (f"planet_bayes/walk:{name}-state/seed-0" for name in ("make", "broken"))
    lines = output.splitlines()
    assert lines[0].startswith("2 runs, 0 of them done before; commit ")
    assert {f"started  {good}", f"started  {bad}"} <= set(lines)
    path = folder / "runs" / "toy" / f"{bad}.log"
    assert f"failed   {bad}: exit code 2; log {path}" in lines
    assert any(line.startswith(f"done     {good}: evaluation ") for line in lines)
    *_, reason, where = lines[lines.index(f"{bad} failed: exit code 2") :]
    assert "this task is broken" in reason
    assert where == f"  log: {path}"
    assert [int(row["episode"]) for row in curve(folder)] == list(range(6))
    now = current_commit()
    assert sweeping.commits(folder) == [{"commit": now.commit, "modified": now.modified}]
    assert not list((folder / "results").rglob("*broken*"))


def test_stopped_and_killed_it_finishes_what_is_missing_and_repeats_nothing(
    whole: tuple[Path, int, str], tmp_path: Path
) -> None:
    folder = declare(tmp_path / "sweep")
    (folder / SLOW).touch()

    stop_in_the_middle(folder, *ONLY)
    second = start_sweep(folder, *ONLY)
    wait_for(lambda: num_rows(folder) > 2)
    (child,) = children(second)
    second.kill()
    second.communicate()
    wait_for(lambda: not Path(f"/proc/{child}").exists(), seconds=30)
    assert 2 < num_rows(folder) < 6

    (folder / SLOW).unlink()
    third = start_sweep(folder, *ONLY)
    output, _ = third.communicate()
    assert third.returncode == 0, output
    assert curve(folder) == curve(whole[0])
    assert log(folder).count("seed episodes are collected") == 1  # the others continued it

    size = len(log(folder))
    fourth = start_sweep(folder, *ONLY)
    output, _ = fourth.communicate()
    assert fourth.returncode == 0
    assert output.startswith("1 runs, 1 of them done before")
    assert len(log(folder)) == size  # nothing was started


def test_on_a_cluster_a_run_whose_node_dies_continues_on_another(
    whole: tuple[Path, int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray lowers the priority by 15
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    folder = declare(tmp_path / "sweep")
    (folder / SLOW).touch()
    small = {"object_store_memory": 80 * 2**20}
    head = {
        **small,
        "num_cpus": 0,
        "include_dashboard": False,
        "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 3},
    }
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    words = ("--tasks", "walk:make", "--backend", "ray", "--address", cluster.address)
    process = None
    try:
        node = cluster.add_node(num_cpus=1, **small)
        stop_in_the_middle(folder, *words)
        process = start_sweep(folder, *words)
        wait_for(lambda: num_rows(folder) > 2)
        (trainer,) = trainers(folder)
        cluster.remove_node(node, allow_graceful=False)
        wait_for(lambda: trainer not in trainers(folder), seconds=30)  # it dies with its worker
        assert num_rows(folder) < 6
        (folder / SLOW).unlink()
        cluster.add_node(num_cpus=1, **small)
        output, _ = process.communicate()
        assert process.returncode == 0, output
    finally:
        if process is not None:
            process.kill()
        cluster.shutdown()
    assert curve(folder) == curve(whole[0])
    assert log(folder).count("--- ") == 3  # the last one on another node
    assert log(folder).count("seed episodes are collected") == 1
    assert os.listdir(folder / "runs" / "toy") == ["planet_bayes"]
