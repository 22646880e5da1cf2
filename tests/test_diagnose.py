"""Foresight: predictions are compared with the rewards that really came."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.diagnostics.foresight import Foresight, diagnose, foresee
from planet_bayes.errors import ConfigError
from planet_bayes.models import Image, Modality, ModelConfig, Vector, WorldModel
from planet_bayes.types import Episode
from tiny_run import replaced

TINY = ModelConfig(
    num_members=2, deter=6, stoch=3, hidden=6, dense_units=6, reward_units=6, reward_layers=1
)


def build(config: ModelConfig = TINY) -> WorldModel:
    return WorldModel({"sensors": Vector(2)}, 1, config, torch.Generator().manual_seed(0))


def test_points_and_steps_are_lined_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows the actions' effect on the reward foresees it exactly, at every step."""
    model = build()
    steps = 20
    action = np.random.default_rng(0).uniform(-1, 1, (steps, 1)).astype(np.float32)
    nothing = np.zeros((steps, 2), np.float32)
    never = np.zeros(steps, np.bool_)
    episode = Episode({"sensors": nothing}, action, 3 * action[:, 0], never)

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
        {"sensors": rng.normal(size=(20, 2)).astype(np.float32)},
        rng.uniform(-1, 1, (20, 1)).astype(np.float32),
        rng.normal(size=20).astype(np.float32),
        np.zeros(20, np.bool_),
    )
    for belief in ("sample", "mean"):
        config = dataclasses.replace(TINY, belief=belief, latent_noise="mean")
        model = build(config)
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


def test_several_observations_are_filtered_together() -> None:
    modalities: dict[str, Modality] = {"camera": Image(32), "joints": Vector(2)}
    config = dataclasses.replace(TINY, image_depth=2, belief="mean", latent_noise="mean")
    model = WorldModel(modalities, 1, config, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    camera = rng.integers(0, 256, (9, 32, 32, 3)).astype(np.uint8)
    joints = rng.normal(size=(9, 2)).astype(np.float32)
    action, reward = np.zeros((9, 1), np.float32), np.zeros(9, np.float32)

    def predicted(camera: np.ndarray, joints: np.ndarray) -> np.ndarray:
        observation = {"camera": camera, "joints": joints}
        episode = Episode(observation, action, reward, np.zeros(9, np.bool_))
        return foresee(model, episode, 4, 2, torch.Generator().manual_seed(0)).predicted

    plain = predicted(camera, joints)
    assert plain.shape == (3, 4)
    assert not np.allclose(plain, predicted(camera, joints + 1))
    assert not np.allclose(plain, predicted(255 - camera, joints))


def test_a_run_is_diagnosed(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run")
    words = ["diagnose", str(path), "--episodes", "1"]
    assert cli.main([*words, "--horizon", "4"]) == 0
    assert "error of reward" in capsys.readouterr().out
    run = pb.load_run(path)
    assert diagnose(run, 1, 4).real.shape == (2, 4)  # points 0 and 5 of 12
    for wrong in ({"episodes": 0}, {"horizon": 0}, {"every": 0}):
        (name,) = wrong
        with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
            diagnose(run, **wrong)
    with pytest.raises(ConfigError, match="12 steps is shorter than the horizon, 13"):
        diagnose(run, horizon=13)
    assert cli.main([*words, "--horizon", "13"]) == 2
    assert "shorter than the horizon" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["diagnose", "nowhere"], ["film", "film.gif", "nowhere"], ["replan", "nowhere"]],
)
def test_a_wrong_folder_is_told_in_one_sentence(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    message = "error: nowhere is not a folder; runs are made by `planet-bayes train`."
    assert capsys.readouterr().err.strip() == message
