"""Whole runs with each posterior: they train, resume to the bit, overlap, export and evaluate."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from assertions import assert_same_run
from planet_bayes import runs
from planet_bayes.config import Config, LearnConfig
from planet_bayes.data.rows import read_metrics
from planet_bayes.errors import ConfigError, NumericalError
from planet_bayes.models import ModelConfig
from planet_bayes.training import Trainer, checkpoint, weights
from planet_bayes.training.learner import Learner
from test_train import stop_after
from tiny_run import TINY, filled_replay, replaced

NAMES = ("dropout", "sgmcmc")


def settings(name: str, **groups: object) -> Config:
    """Return the tiny run with a posterior. Cycles end inside and at the end of iterations."""
    config = replaced(TINY, model={"posterior": name}, learn={"cycle_updates": 3})
    return replaced(config, **groups)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were never stopped, by posterior; not to be written to."""
    folder = tmp_path_factory.mktemp("finished")
    return {name: runs.train(settings(name), folder / name)[0] for name in NAMES}


# Looks happen 2 times in seeding, 4 per update phase, 12 per episode, 12 per evaluation.
@pytest.mark.parametrize("calls", [0, 3, 4, 5, 21, 24, 55])
@pytest.mark.parametrize("name", NAMES)
def test_resume_is_bit_identical(
    finished: dict[str, Path], name: str, calls: int, tmp_path: Path
) -> None:
    path = tmp_path / "stopped"
    _, ended = runs.train(settings(name), path, should_stop=stop_after(calls))
    assert not ended
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended
    assert_same_run(finished[name], path)


@pytest.mark.parametrize("name", NAMES)
def test_resume_without_averaging_is_bit_identical(name: str, tmp_path: Path) -> None:
    config = settings(name, learn={"ema_decay": 0.0})
    whole, _ = runs.train(config, tmp_path / "whole")
    path, ended = runs.train(config, tmp_path / "stopped", should_stop=stop_after(22))
    assert not ended
    runs.train(runs.resume_config(path), path, resume=True)
    assert_same_run(whole, path)


@pytest.mark.parametrize("name", NAMES)
def test_overlap_repeats_itself_and_resumes(name: str, tmp_path: Path) -> None:
    config = settings(name, collect={"overlap": True})
    before = torch.get_num_threads()
    try:
        whole, ended = runs.train(config, tmp_path / "whole")
        assert ended
        path, ended = runs.train(config, tmp_path / "stopped", should_stop=stop_after(7))
        assert not ended
        runs.train(runs.resume_config(path), path, resume=True)
    finally:
        torch.set_num_threads(before)
    assert_same_run(whole, path)


@pytest.mark.parametrize("name", NAMES)
def test_an_export_acts_as_its_run(finished: dict[str, Path], name: str, tmp_path: Path) -> None:
    path = finished[name]
    assert all(np.isfinite(row["loss_total"]) for row in read_metrics(path / "metrics.jsonl"))
    run = runs.load_run(path, device="cpu")
    stored = load_file(checkpoint.latest(path) / "model.safetensors")
    loaded = weights.model_tensors(run.agent.model)
    assert stored.keys() == loaded.keys()
    assert all(torch.equal(stored[key], loaded[key]) for key in stored)
    exported = runs.load_run(runs.export(path, tmp_path / "agent"), device="cpu")
    returns = runs.evaluate(run, 2)
    assert returns == runs.evaluate(exported, 2)
    assert np.isfinite(returns).all()


def test_masks_and_snapshots_are_in_the_checkpoint(finished: dict[str, Path]) -> None:
    """16 updates in cycles of 3 take 5 snapshots; the run's masks are those of its seed."""
    stored = {
        name: load_file(checkpoint.latest(path) / "model.safetensors")
        for name, path in finished.items()
    }
    assert int(stored["sgmcmc"]["posterior.taken"]) == 5
    gates = stored["sgmcmc"]["posterior.kept.gates.weight"]
    assert gates.shape[0] == 2
    assert not torch.equal(gates[0], gates[1])
    with Trainer(settings("dropout"), finished["dropout"].parent / "again").session() as session:
        first = session.agent.model.posterior.get_buffer("mask_gates")
    assert torch.equal(first, stored["dropout"]["posterior.mask_gates"])


def test_a_skipped_update_moves_neither_chain_nor_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Trainer(settings("sgmcmc"), tmp_path / "run").session() as session:
        learner: Learner = session.learner
        replay = filled_replay(tmp_path / "replay")
        for number in range(2):
            learner.update(replay, number)
        before = weights.model_tensors(learner.model) | weights.learning_tensors(learner)
        loss = learner.model.loss
        monkeypatch.setattr(
            learner.model,
            "loss",
            lambda *given: {name: value * float("nan") for name, value in loss(*given).items()},
        )
        with pytest.raises(NumericalError, match="update 2"):
            learner.update(replay, 2)
        after = weights.model_tensors(learner.model) | weights.learning_tensors(learner)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        (ModelConfig, "dropout_rate", 1.0, r"model\.dropout_rate must be in \[0, 1\), got 1\.0"),
        (LearnConfig, "cycle_updates", 1, r"learn\.cycle_updates must be at least 2, got 1"),
        (LearnConfig, "posterior_temperature", -1.0, r"posterior_temperature must be finite"),
        (LearnConfig, "posterior_temperature", float("nan"), "must be finite and at least 0"),
        (LearnConfig, "posterior_temperature", float("inf"), "must be finite and at least 0"),
    ],
)
def test_wrong_settings_are_refused(kind: type, name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**{name: value})


def test_a_misspelt_posterior_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no posterior 'dropot'; did you mean 'dropout'"):
        runs.train(settings("dropot"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
