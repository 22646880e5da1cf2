"""The diagnosis of a model: what it counts as foreseen is what was really ahead."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.diagnose import Foresight, Options, foresee, main
from planet_bayes.models import ModelConfig, WorldModel
from planet_bayes.types import Episode

TINY = ModelConfig(deter=6, stoch=3, hidden=6, vector_units=6, reward_units=6, reward_layers=1)


def test_points_and_steps_are_lined_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows the actions' effect on the reward foresees it exactly, at every step."""
    model = WorldModel((2,), 1, 2, TINY, torch.Generator().manual_seed(0))
    steps = 20
    action = np.random.default_rng(0).uniform(-1, 1, (steps, 1)).astype(np.float32)
    episode = Episode(np.zeros((steps, 2), np.float32), action, 3 * action[:, 0])

    def knows(state: object, actions: torch.Tensor, generator: object) -> torch.Tensor:
        return 3 * actions[..., 0].unsqueeze(2).expand(-1, -1, 2, -1)

    monkeypatch.setattr(model, "imagine", knows)
    found = foresee(model, episode, 4, 3, torch.Generator().manual_seed(1))
    assert found.real.shape == (6, 4)  # points 0, 3, ..., 15
    np.testing.assert_allclose(found.real[1], episode.reward[4:8])
    np.testing.assert_allclose(found.error(), 0, atol=1e-6)
    np.testing.assert_allclose(found.correlation(), 1)
    np.testing.assert_allclose(found.disagreement, 0, atol=1e-6)


def test_the_future_is_foreseen_from_what_the_agent_plans_from() -> None:
    """From samples of the posterior, or, as the setting says, from its mean."""
    rng = np.random.default_rng(0)
    episode = Episode(
        rng.normal(size=(20, 2)).astype(np.float32),
        rng.uniform(-1, 1, (20, 1)).astype(np.float32),
        rng.normal(size=20).astype(np.float32),
    )
    for belief in ("sample", "mean"):
        config = dataclasses.replace(TINY, belief=belief, latent_noise="mean")
        model = WorldModel((2,), 1, 2, config, torch.Generator().manual_seed(0))
        one, other = (
            foresee(model, episode, 4, 3, torch.Generator().manual_seed(seed)).predicted
            for seed in (1, 2)
        )
        assert np.array_equal(one, other) == (belief == "mean")


def test_errors_and_correlations_are_by_step() -> None:
    real = np.array([[1.0, 2.0], [3.0, 0.0]])
    found = Foresight(real + np.array([0.0, 0.5]), real, np.zeros((2, 2)))
    np.testing.assert_allclose(found.error(), [0, 0.5])
    opposite = Foresight(-real, real, np.zeros((2, 2)))
    np.testing.assert_allclose(opposite.correlation()[0], -1)


def test_a_run_is_diagnosed(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = dataclasses.replace(tiny.train, episodes=0)
    path, _ = pb.train(dataclasses.replace(tiny, train=train), tmp_path / "run")
    main(Options(path, episodes=1, horizon=4))
    assert "error of reward" in capsys.readouterr().out
    for wrong in ({"episodes": 0}, {"horizon": 0}, {"every": 0}):
        (name,) = wrong
        with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
            main(Options(path, **wrong))
    with pytest.raises(ConfigError, match="12 steps is shorter than the horizon, 13"):
        main(Options(path, horizon=13))


@pytest.mark.parametrize(
    "words", [["diagnose", "nowhere"], ["montage", "film.gif", "nowhere"], ["replan", "nowhere"]]
)
def test_a_wrong_folder_is_told_in_one_sentence(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"planet_bayes.experiments.{words[0]}", *words[1:]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    told = "error: nowhere is not a folder; runs are made by `planet-bayes train`."
    assert result.stderr.strip() == told
