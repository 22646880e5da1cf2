"""Open-loop prediction against a rollout by hand, and what an evaluation shows of it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model_building import ACTIONS, BOTH, VECTOR, build, seeded
from planet_bayes.models import WorldModel
from planet_bayes.models.open_loop import open_loop
from planet_bayes.training import Trainer, showing
from planet_bayes.training.collect import Recorder
from planet_bayes.training.evaluation import evaluate_agent
from planet_bayes.training.events import Event, Problem
from planet_bayes.training.prediction import (
    Prediction,
    coverage,
    predict_evaluation,
    predict_window,
    shown_times,
    spread,
)
from planet_bayes.training.strip import CHART_HEIGHT, CHART_WIDTH, GAP, WIDE_GAP, chart, strip
from planet_bayes.types import Episode
from tiny_run import TINY, replaced


def make_episode(length: int, modalities: Any = VECTOR, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    observation: dict[str, Any] = {
        name: rng.integers(0, 256, (length, *modality.shape)).astype(np.uint8)
        if modality.dtype == np.uint8
        else rng.normal(size=(length, *modality.shape)).astype(np.float32)
        for name, modality in modalities.items()
    }
    action = rng.uniform(-1, 1, (length, ACTIONS)).astype(np.float32)
    reward = rng.normal(size=length).astype(np.float32)
    return Episode(observation, action, reward, np.zeros(length, np.bool_))


def by_hand(model: WorldModel, episode: Episode, start: int, context: int, steps: int) -> Any:
    """Return features ``[P, T, F]`` of a window of a model without noise, step by step."""
    belief, weights, found = model.initial(1), model.weights(), []
    for step in range(start, start + context + steps):
        action = torch.from_numpy(episode.action[step : step + 1])
        if step < start + context:
            seen = {
                name: torch.from_numpy(values[step : step + 1])
                for name, values in episode.observation.items()
            }
            belief, _ = model.filter(belief, action, seen, seeded(0))
        else:
            each = action.expand(model.num_particles, 1, -1)
            belief = model.rssm.imagine_step(weights, belief, each, None)
        found.append(belief.features[:, 0])
    return torch.stack(found, 1)


@torch.no_grad()
def test_windows_are_filtered_and_imagined_as_by_hand() -> None:
    model = build(3, belief="mean", latent_noise="mean")
    episode = make_episode(20)
    found = open_loop(model, episode, [0, 4, 9], 3, 6, seeded(0))
    assert found.features.shape == (3, 3, 9, 9)
    for window, start in enumerate((0, 4, 9)):
        expected = by_hand(model, episode, start, 3, 6)
        torch.testing.assert_close(found.features[:, window], expected, rtol=1e-4, atol=1e-5)
        assert np.array_equal(found.real_rewards[window], episode.reward[start : start + 9])
        rewards = model.head("reward").predict(expected)
        torch.testing.assert_close(found.rewards[:, window], rewards, rtol=1e-4, atol=1e-5)
    shown = predict_window(found, episode, 4, window=1)
    assert np.array_equal(shown.real["sensors"], episode.observation["sensors"][4:13])
    decoded = model.reconstruct(by_hand(model, episode, 4, 3, 6))["sensors"]
    np.testing.assert_allclose(shown.predicted["sensors"], decoded, rtol=1e-4, atol=1e-5)


def test_nothing_after_the_context_is_seen() -> None:
    model, episode = build(2, BOTH), make_episode(12, BOTH)
    other = make_episode(12, BOTH, seed=1)
    mixed = {
        name: np.concatenate([values[:4], other.observation[name][4:]])
        for name, values in episode.observation.items()
    }
    later = dataclasses.replace(episode, observation=mixed, reward=other.reward)
    earlier = dataclasses.replace(episode, observation=other.observation)
    one, same, different = (
        open_loop(model, each, [0], 4, 8, seeded(5)).features for each in (episode, later, earlier)
    )
    assert torch.equal(one, same)
    assert not torch.allclose(one, different)


def test_states_are_drawn_as_the_model_draws_them() -> None:
    episode = make_episode(10)
    for belief, noise, drawn in (("mean", "mean", False), ("mean", "shared", True)):
        model = build(2, belief=belief, latent_noise=noise)
        one, other = (open_loop(model, episode, [0], 3, 5, seeded(n)).features for n in (1, 2))
        assert torch.equal(one[:, :, :3], other[:, :, :3])
        assert torch.equal(one, other) != drawn


def test_coverage_is_the_share_of_truths_in_the_band() -> None:
    model, episode = build(4), make_episode(20)
    found = open_loop(model, episode, [0, 7], 2, 5, seeded(0))
    shares = coverage(found)
    with torch.no_grad():
        sensors = found.decoded("sensors")[:, :, 2:].numpy()  # [P, N, H, D]
    real = np.stack([episode.observation["sensors"][start + 2 : start + 7] for start in (0, 7)])
    returns = found.rewards[..., 2:].numpy().cumsum(-1)
    earned = np.stack([episode.reward[start + 2 : start + 7].cumsum() for start in (0, 7)])
    for name, members, truth in (("sensors", sensors, real), ("return", returns, earned)):
        inside = np.abs(members.mean(0) - truth) <= 2 * members.std(0, ddof=1)
        assert shares[name] == pytest.approx(inside.mean(), abs=1e-6), name
    assert 0 < shares["sensors"] < 1
    assert coverage(open_loop(build(1), episode, [0], 2, 5, seeded(0))) == {}


def test_short_episodes_are_predicted_to_their_end() -> None:
    model = build(2)
    assert predict_evaluation(model, make_episode(5), 0, 0) is None
    found = predict_evaluation(model, make_episode(9), 0, 0)
    assert found is not None
    assert (found[0].context, found[0].length) == (5, 9)
    found = predict_evaluation(model, make_episode(70), 0, 0)
    assert found is not None
    assert (found[0].length, set(found[1])) == (50, {"return", "sensors"})


def test_shown_steps_and_spread_windows() -> None:
    assert shown_times(5, 45) == ([1, 3, 5], [6, 10, 15, 20, 25, 30, 35, 40, 45, 50])
    assert shown_times(1, 4) == ([1], [2, 3, 4, 5])
    assert shown_times(3, 150)[1] == [4, 20, 40, 60, 80, 100, 120, 140]
    assert spread(50, 126, 4) == [0, 25, 51, 76]
    assert spread(50, 51, 8) == [0, 1]
    assert spread(50, 50, 8) == [0]
    assert spread(50, 49, 8) == []


def test_a_strip_has_the_truth_above_the_members() -> None:
    rng = np.random.default_rng(0)
    real = rng.integers(0, 256, (8, 32, 32, 3)).astype(np.uint8)
    predicted = rng.uniform(0, 255, (2, 8, 32, 32, 3)).astype(np.float32)
    joints, guesses = rng.normal(size=(8, 3)), rng.normal(size=(2, 8, 3))
    reward = np.zeros(8, np.float32)
    found = Prediction(
        context=3,
        real={"camera": real, "joints": joints},
        predicted={"camera": predicted, "joints": guesses},
        real_reward=reward,
        predicted_reward=np.stack([reward, reward]),
    )
    image = strip(found)
    high, wide = 3 * 64 + 2 * GAP, 8 * 64 + 6 * GAP + WIDE_GAP
    assert image.shape == (high + WIDE_GAP + 3 * CHART_HEIGHT, max(wide, CHART_WIDTH), 3)
    assert (image[:64:2, 0:64:2] == real[0]).all()  # t = 1
    after = 3 * 64 + 2 * GAP + WIDE_GAP
    below = 64 + GAP
    expected = predicted[0, 3].round().astype(np.uint8)  # t = 4 is the first that is imagined
    assert (image[below : below + 64 : 2, after : after + 64 : 2] == expected).all()
    assert (image[:64, after - WIDE_GAP : after] == 255).all()
    assert np.array_equal(image[-3 * CHART_HEIGHT :, :CHART_WIDTH], chart(found, "joints"))
    partly = chart(found, "joints", until=4)
    middle = CHART_WIDTH * 3 // 7 + 2
    assert np.array_equal(partly[:, : middle - 4], chart(found, "joints")[:, : middle - 4])
    assert len(np.unique(partly[1:50, middle:].reshape(-1, 3), axis=0)) == 1  # nothing drawn


def test_an_evaluations_episodes_are_recorded(tmp_path: Path) -> None:
    with Trainer(replaced(TINY, collect={"episodes": 0}), tmp_path / "run").session() as run:
        found = []
        for env in (None, run.env):
            recorders = [Recorder(), Recorder()]
            returns = evaluate_agent(run.config, run.agent, 2, 0, env=env, recorders=recorders)
            for recorder, total in zip(recorders, returns, strict=True):
                episode = recorder.episode()
                assert len(episode) == 13
                assert episode.reward.sum(dtype=np.float64) == pytest.approx(total, rel=1e-6)
                assert not episode.action[0].any()
            found.append(recorders[0].episode())
        run.env.reset(seed=0)
        plain = evaluate_agent(run.config, run.agent, 2, 0)
        assert plain == evaluate_agent(run.config, run.agent, 2, 0, recorders=[Recorder()])
    first = found[0].observation["sensors"][0]
    assert np.array_equal(first, found[1].observation["sensors"][0])


def tensorboard(path: Path) -> EventAccumulator:
    found = EventAccumulator(str(path / "tensorboard"))
    found.Reload()
    return found


def test_tensorboard_shows_predictions_coverage_and_components(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert Trainer(TINY, path).train()
    found = tensorboard(path)
    assert [event.step for event in found.Images("prediction")] == [2, 3]
    for name in ("coverage_of_2_std/return", "coverage_of_2_std/sensors"):
        values = found.Scalars(name)
        assert [event.step for event in values] == [2, 3]
        assert all(0 <= event.value <= 1 for event in values)
    assert [event.step for event in found.Scalars("evaluation/plan_distinct")] == [2, 3]


def test_a_run_without_pillow_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(prediction: object) -> None:
        raise ImportError("no PIL", name="PIL")

    monkeypatch.setattr(showing, "strip", missing)
    events: list[Event] = []
    path = tmp_path / "run"
    assert Trainer(replaced(TINY, collect={"episodes": 0}), path, report=events.append).train()
    (problem,) = [event.message for event in events if isinstance(event, Problem)]
    assert "PIL is not installed; it belongs to the extra [video]" in problem
    assert tensorboard(path).Scalars("coverage_of_2_std/return")
