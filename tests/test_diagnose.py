"""Foresight: predictions are compared with the rewards that really came."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.diagnostics import foresight
from planet_bayes.diagnostics.calibration import Comparison, compare
from planet_bayes.diagnostics.foresight import Foresight, diagnose, foresee, foresee_all
from planet_bayes.errors import ConfigError
from planet_bayes.models import Image, Modality, ModelConfig, Vector, WorldModel
from planet_bayes.models.config import LatentNoise
from planet_bayes.types import Episode, Moments
from tiny_run import replaced

TINY = ModelConfig(
    num_members=2, deter=6, stoch=3, hidden=6, dense_units=6, reward_units=6, reward_layers=1
)

REWARD = {"reward": Moments(torch.zeros(()), torch.ones(()))}


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
    np.testing.assert_allclose(found.quantities()["return"].std, 0, atol=1e-6)


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
    found = Foresight((real + np.array([0.0, 0.5]))[:, None], real)
    np.testing.assert_allclose(found.error(), [0, 0.5])
    opposite = Foresight(-real[:, None], real)
    np.testing.assert_allclose(opposite.correlation()[0], -1)
    two = Foresight(np.stack([real, real + 1], 1), real)
    np.testing.assert_allclose(two.error(), [0.5, 0.5])
    returns = two.quantities()["return"]
    np.testing.assert_allclose(returns.rmse(), [0.5, 1])  # errors add up
    np.testing.assert_allclose(returns.disagreement(), np.array([1, 2]) / np.sqrt(2))  # ddof = 1


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


def random_episode(steps: int, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    return Episode(
        {"sensors": rng.normal(size=(steps, 2)).astype(np.float32)},
        rng.uniform(-1, 1, (steps, 1)).astype(np.float32),
        rng.normal(size=steps).astype(np.float32),
        np.zeros(steps, np.bool_),
    )


@pytest.mark.parametrize("normalise", [False, True])
def test_decoded_observations_are_those_of_a_rollout_by_hand(normalise: bool) -> None:
    """Member by member and point by point, in the units of training."""
    config = dataclasses.replace(TINY, belief="mean", latent_noise="mean", normalise=normalise)
    model, episode, seeded = build(config), random_episode(12), torch.Generator()
    scale = torch.tensor([2.0, 0.5])
    model.rescale({name: Moments(scale / 4, scale) for name in ("sensors",)} | REWARD)
    found = foresee(model, episode, 3, 4, seeded, observations=True).observations["sensors"]
    sensors = torch.from_numpy(episode.observation["sensors"])
    real = (sensors - scale / 4) / scale if normalise else sensors
    predicted, weights = np.zeros((3, 2, 3, 2)), model.weights()
    with torch.no_grad():
        for row, point in enumerate((0, 4, 8)):
            belief = model.initial(1)
            for step in range(point + 1):
                action = torch.from_numpy(episode.action[step : step + 1])
                belief = model.filter(belief, action, {"sensors": sensors[step, None]}, seeded)[0]
            for ahead in range(3):
                action = torch.from_numpy(episode.action[point + 1 + ahead])
                action = action.expand(2, 1, -1)
                belief = model.rssm.imagine_step(weights, belief, action, None)
                decoded = model.senses["sensors"].decode(belief.features)  # type: ignore[operator]
                predicted[row, :, ahead] = decoded[:, 0].numpy()
    truth = np.stack([real[point + 1 : point + 4].numpy() for point in (0, 4, 8)])
    expected = compare(predicted, truth)
    for name, values in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), values, atol=1e-5, err_msg=name)


def test_decoding_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, episode = build(), random_episode(20)

    def decoded() -> Comparison:
        generator = torch.Generator().manual_seed(1)
        return foresee(model, episode, 3, 2, generator, observations=True).observations["sensors"]

    whole = decoded()
    monkeypatch.setattr(foresight, "MAX_DECODED_VALUES", 40)
    for name, values in vars(decoded()).items():
        np.testing.assert_allclose(values, getattr(whole, name), atol=1e-6)


def test_rewards_are_the_same_with_and_without_observations() -> None:
    model, episode = build(), random_episode(20)
    with_, without = (
        foresee(model, episode, 3, 2, torch.Generator().manual_seed(1), observations=wanted)
        for wanted in (True, False)
    )
    np.testing.assert_array_equal(with_.members, without.members)
    assert without.observations == {}


@pytest.mark.parametrize("noise", ["mean", "independent"])
def test_members_of_equal_weights_disagree_by_drawn_noise_alone(noise: LatentNoise) -> None:
    """Disagreement is high without uncertainty of the weights, and the share says so."""
    config = dataclasses.replace(TINY, num_members=4, belief="mean", latent_noise=noise)
    model = build(config)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    found = foresee_all(model, [random_episode(400)], 5, 1, 0)
    returns, share = found.quantities()["return"], found.sampling_share()
    if noise == "mean":
        assert share is None
        np.testing.assert_array_equal(returns.std, 0)
    else:
        assert share is not None
        assert (returns.disagreement() > 1e-2).all()
        np.testing.assert_allclose(share, 1, atol=0.15)


def test_one_member_that_draws_has_no_share() -> None:
    found = foresee_all(
        build(dataclasses.replace(TINY, num_members=1)), [random_episode(9)], 3, 1, 0
    )
    assert found.redrawn is not None
    assert found.sampling_share() is None


def test_a_run_is_diagnosed(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run")
    words = ["diagnose", str(path), "--episodes", "1"]
    assert cli.main([*words, "--horizon", "4"]) == 0
    printed = capsys.readouterr().out
    assert "error of reward" in printed
    assert "Uncertainty of 2 members, return up to the step" in printed
    assert "Uncertainty of 2 members, sensors at the step" in printed
    assert "Drawn latent states, not weights, make" in printed
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


def test_one_member_has_nothing_to_compare(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = replaced(tiny, collect={"episodes": 0}, model={"num_members": 1})
    path, _ = pb.train(alone, tmp_path / "run")
    file = tmp_path / "figures.json"
    words = ["diagnose", str(path), "--episodes", "1", "--horizon", "4", "--json", str(file)]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "error of reward" in printed
    assert "The model has one member: there is no disagreement to compare." in printed
    data = json.loads(file.read_text())
    assert data["calibrated"] is None
    returns = data["conditions"]["noise"]["quantities"]["return"]
    assert all(value > 0 for value in returns["rmse"])
    assert returns["ratio"] == [None] * 4
    assert cli.main([*words[:-2], "--conditions"]) == 0
    row, _ = [line for line in capsys.readouterr().out.splitlines() if "random" in line]
    assert row.split()[4:] == ["–"] * 6


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
