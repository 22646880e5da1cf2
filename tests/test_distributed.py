"""Several processes learn as one does: real processes, and the parts that they are made of."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import planet_bayes
from assertions import assert_same_run, newest_weights
from distributed_runs import (
    CASES,
    OVERLAP,
    SMALL_NORM,
    SMOOTH,
    environment,
    free_port,
    learn,
    short_episodes,
)
from model_building import VECTOR, seeded
from planet_bayes import runs
from planet_bayes.data.replay import Replay
from planet_bayes.data.rows import read_metrics
from planet_bayes.errors import ConfigError
from planet_bayes.models import losses, noise
from planet_bayes.models.noise import PartGenerator
from planet_bayes.training import distributed, learner
from planet_bayes.training.distributed import Processes

HERE = Path(__file__).parent
SCRIPT = str(HERE / "distributed_runs.py")
PATHS = {"PYTHONPATH": os.pathsep.join([str(HERE), str(Path(planet_bayes.__file__).parents[1])])}
TIMEOUT = 300


def start_two(name: str, folder: Path) -> list[tuple[int, str]]:
    """Let two processes do their work, and return their exit codes and what they printed."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, name, str(folder)],
            env=os.environ | PATHS | environment(rank, 2, port),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        printed = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(one.returncode, text) for one, text in zip(processes, printed, strict=True)]


def test_two_processes_learn_what_one_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradient, losses and weights, where the parts of a batch have unlike numbers of entries."""
    monkeypatch.setattr(learner, "MAX_GRADIENT_NORM", learner.MAX_GRADIENT_NORM)  # `learn` sets it
    for code, printed in start_two("learners", tmp_path):
        assert code == 0, printed
    for case in CASES:
        first, second = (load_file(tmp_path / f"rank-{r}" / f"{case}.safetensors") for r in (0, 1))
        assert all(torch.equal(first[name], second[name]) for name in first), case
        if case == "half of the frames":
            continue  # one process picks other frames; they are compared in expectation below
        alone = learn(case, tmp_path / "alone", None)
        assert first.keys() == alone.keys()
        for name, value in alone.items():
            # Entries that are small by cancellation have the rounding of the large ones.
            rounding = 1e-5 * max(1.0, float(value.abs().max()))
            near = torch.allclose(first[name], value, rtol=1e-4, atol=rounding)
            assert near, (case, name, first[name], value)
        if case == "clipped":
            assert alone["loss.0.gradient_norm"] > SMALL_NORM


def test_whole_runs_with_torchrun(tmp_path: Path) -> None:
    """Runs that end, are stopped, killed, refused or collect beside, as in a single process."""
    (code, _), (other, printed) = start_two("killed", tmp_path)
    assert code == -9
    assert other == 1
    assert "another process of the run has ended" in printed
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", SCRIPT, "whole_runs", str(tmp_path)),
        ],
        env=os.environ | PATHS,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert result.returncode == 0, result.stderr
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    ended = {"plain": True, "overlap": True, "half": False, "stopped": True, "killed": True}
    assert [one["ended"] for one in found] == [ended, ended]
    assert "5 sequences cannot be divided among 2 processes" in found[0]["error"]
    assert "another process of the run has ended" in found[1]["error"]
    assert not (tmp_path / "odd").exists()
    for name in ("stopped", "killed"):
        assert_same_run(tmp_path / "plain", tmp_path / name)
    for name, config in (("plain", SMOOTH), ("overlap", OVERLAP)):
        alone, _ = runs.train(config, tmp_path / f"{name}-alone")
        assert_near(alone, tmp_path / name)


def assert_near(left: Path, right: Path) -> None:
    """Metrics, actions, weights and moments of two runs differ by rounding only."""
    rows = [read_metrics(run / "metrics.jsonl") for run in (left, right)]
    assert [row.keys() for row in rows[0]] == [row.keys() for row in rows[1]]
    for one, other in zip(*rows, strict=True):
        for name in one.keys() - {"minutes", "cpu_minutes"}:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-3, atol=1e-4, err_msg=name)
    weights, others = newest_weights(left), newest_weights(right)
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, rtol=1e-3, atol=1e-4)
    names = sorted(path.name for path in (left / "episodes").glob("*.npz"))
    assert names == sorted(path.name for path in (right / "episodes").glob("*.npz"))
    for name in names:
        with np.load(left / "episodes" / name) as a, np.load(right / "episodes" / name) as b:
            np.testing.assert_allclose(b["action"], a["action"], atol=1e-4)


@pytest.mark.parametrize("draw", [noise.uniform, noise.normal])
def test_parts_have_the_noise_of_the_whole(draw: Any) -> None:
    whole = draw((3, 6, 5), seeded(1), 1)
    parts = [PartGenerator.of(seeded(1), part, 3) for part in range(3)]
    assert torch.equal(torch.cat([draw((3, 2, 5), part, 1) for part in parts], 1), whole)
    states = [part.get_state() for part in parts]
    assert torch.equal(states[0], states[1])  # in step for what is drawn next


def test_noise_without_parts_is_pytorchs() -> None:
    assert torch.equal(noise.uniform((2, 3), seeded(1), 0), torch.rand(2, 3, generator=seeded(1)))
    assert torch.equal(noise.normal((2, 3), seeded(1), 0), torch.randn(2, 3, generator=seeded(1)))


def test_frames_that_parts_decode_weigh_as_those_of_the_whole_on_average() -> None:
    """With shares of the real entries, which `Processes.loss` multiplies by."""
    mask = torch.ones(2, 4, 5)
    mask[0, 1:3, 2:] = mask[1, 3, 1:] = 0
    whole = torch.zeros(2, 20)
    count = 3000
    for part in range(2):
        own = mask[:, 2 * part : 2 * part + 2]
        share = own.sum((1, 2)) / mask.sum((1, 2))
        generator = PartGenerator.of(seeded(0), part, 2)
        for _ in range(count):
            index, weight = losses.decoded_frames(own, 2, 0.3, generator)
            whole.scatter_add_(1, index + 10 * part, weight * share.unsqueeze(-1) / count)
    expected = mask.flatten(1) / mask.sum((1, 2)).unsqueeze(-1)
    torch.testing.assert_close(whole, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("groups", [1, 3])
def test_rows_of_a_batch_are_those_of_the_whole(tmp_path: Path, groups: int) -> None:
    replay = short_episodes(tmp_path, VECTOR)

    def drawn(rows: slice) -> dict[str, Any]:
        batch = replay.sample(
            np.random.default_rng(2), groups, 6, 7, onset_share=0.5, agent_weight=2.0, rows=rows
        )
        values = dataclasses.asdict(batch)
        return values | values.pop("observation")

    whole, part = drawn(slice(None)), drawn(slice(2, 4))
    for name, value in whole.items():
        assert torch.equal(part[name], value[:, 2:4]), name


def test_a_replay_that_follows_another_holds_the_same(tmp_path: Path) -> None:
    first = short_episodes(tmp_path, VECTOR)
    first.restore(5, lost=[1])
    listing = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    second = Replay(tmp_path)
    second.follow(first.digests()[:3])
    second.follow(first.digests(3))
    assert second.lengths == first.lengths == [2, 0, 5, 8, 12]
    assert second.digests() == first.digests()
    assert first.digests()[1] is None
    for name, one in first.moments().items():
        assert torch.equal(one.mean, second.moments()[name].mean)
        assert torch.equal(one.std, second.moments()[name].std)
    assert listing == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def one_of(count: int, rank: int) -> Processes:
    """Return processes that have nothing to say to each other."""
    found = object.__new__(Processes)
    found.rank, found.count = rank, count
    return found


def test_parts_cover_a_batch_or_are_refused() -> None:
    parts = [one_of(3, rank).rows(12) for rank in range(3)]
    assert [index for part in parts for index in range(12)[part]] == list(range(12))
    with pytest.raises(ConfigError, match="50 sequences cannot be divided among 3 processes"):
        one_of(3, 0).rows(50)


@pytest.fixture
def two_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(1, 2, 0).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("two_of_a_machine")
def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert distributed.own_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert distributed.own_device(torch.device("cuda")) == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"run\.device is cuda:0, one GPU for 2 processes"):
        distributed.own_device(torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 processes need as many GPUs, and this machine has 1"):
        distributed.own_device(torch.device("cuda"))


def test_one_process_of_torchrun_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(0, 1, 0).items():
        monkeypatch.setenv(name, value)
    with distributed.joined(torch.device("cpu")) as processes:
        assert processes is None
    assert distributed.own_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert not distributed.is_follower()
