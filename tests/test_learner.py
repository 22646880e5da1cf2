"""The learner: which batches it draws, and that updates fit the model to the episodes."""

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model_building import (
    ACTIONS,
    BOTH,
    PLAIN,
    Modalities,
    build,
    fresh,
    kinds,
    make_observations,
    seeded,
    signature,
)
from planet_bayes.agent import Agent
from planet_bayes.config import CollectConfig, Config, LearnConfig
from planet_bayes.data.replay import Replay
from planet_bayes.errors import NumericalError
from planet_bayes.models import ModelConfig, WorldModel
from planet_bayes.planner import PlannerConfig
from planet_bayes.training.learner import Learner, bootstrap_counts
from planet_bayes.types import Episode
from tiny_run import filled_replay


def make_config(members: int, **learn: Any) -> Config:
    return Config(model=ModelConfig(num_members=members), learn=LearnConfig(**learn), loss=PLAIN)


@pytest.mark.parametrize(
    ("sharing", "lead"),
    [("own", (3, 7)), ("bootstrap", (3, 7)), ("shared", (1, 7)), ("split", (3, 2))],
)
def test_learner_samples_batches_as_they_are_shared(
    tmp_path: Path, sharing: str, lead: tuple[int, int]
) -> None:
    replay = filled_replay(tmp_path / "episodes", ACTIONS)
    config = make_config(3, batch_size=7, sequence_length=5, batch_sharing=sharing)
    learner = Learner(build(3), config)
    batch = learner.sample(replay, 0)
    seen = batch.observation["sensors"]
    assert seen.shape == (*lead, 5, 4)
    assert batch.action.shape == (*lead, 5, ACTIONS)
    assert batch.reward.shape == batch.mask.shape == batch.terminal.shape == (*lead, 5)
    for e in range(1, lead[0]):
        assert not torch.equal(seen[0], seen[e])
    assert torch.equal(seen, learner.sample(replay, 0).observation["sensors"])
    assert not torch.equal(seen, learner.sample(replay, 1).observation["sensors"])
    assert all(
        torch.isfinite(v).all() for v in learner.model.loss(batch, PLAIN, seeded(0)).values()
    )


def test_members_draw_from_bootstrap_samples_that_grow(tmp_path: Path) -> None:
    replay = Replay(tmp_path)

    def add(number: int) -> None:
        ones = np.ones((30, 4), np.float32)
        reward = np.full(30, number, np.float32)
        replay.add(Episode({"sensors": ones}, ones[:, :ACTIONS], reward, np.zeros(30, np.bool_)))

    def shares(learner: Learner) -> np.ndarray:
        drawn = learner.sample(replay, 0).reward[:, :, 0].numpy().astype(int)  # [P, B]
        return np.stack([np.bincount(row, minlength=len(replay)) for row in drawn]) / 6000

    config = make_config(3, batch_size=6000, sequence_length=1, batch_sharing="bootstrap")
    config = dataclasses.replace(config, collect=CollectConfig(seed_episodes=1))
    learner = Learner(build(3), config)
    for number in range(8):
        add(number)
    shares(learner)
    for number in range(8, 12):
        add(number)
    counts = bootstrap_counts(config.seed, 3, 0, 12)
    expected = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(shares(learner), expected, atol=0.03)
    assert ((shares(learner) > 0) == (counts > 0)).all()
    np.testing.assert_array_equal(counts[:, 8:], bootstrap_counts(config.seed, 3, 8, 12))
    np.testing.assert_array_equal(shares(learner), shares(Learner(build(3), config)))


def test_bootstrap_counts_are_poisson() -> None:
    counts = bootstrap_counts(0, 4, 0, 3000)
    assert counts.shape == (4, 3000)
    expected = [math.exp(-1) / math.factorial(k) for k in range(5)]
    np.testing.assert_allclose([(counts == k).mean() for k in range(5)], expected, atol=0.01)
    correlation = np.asarray(np.corrcoef(counts))
    assert np.abs(correlation - np.eye(4)).max() < 0.06


def test_learner_draws_the_coming_of_rewards_as_often_as_it_is_told(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(40):
        reward = np.zeros(60, np.float32)
        reward[30:] = number == 0  # one episode has any
        ones = np.ones((60, 4), np.float32)
        replay.add(Episode({"sensors": ones}, ones[:, :ACTIONS], reward, np.zeros(60, np.bool_)))

    def share(onset_share: float) -> float:
        config = make_config(1, batch_size=400, sequence_length=5, onset_share=onset_share)
        learner = Learner(build(1), config)
        return float((learner.sample(replay, 0).reward.diff(dim=-1) != 0).any(-1).float().mean())

    assert share(0.0) < 0.01 < 0.015 < share(0.03)


def walking_replay(folder: Path, modalities: Modalities) -> Replay:
    """Return episodes of a point that actions move; all modalities and the reward show it."""
    replay, rng = Replay(folder), np.random.default_rng(0)
    for _ in range(6):
        action = rng.uniform(-1, 1, (15, ACTIONS)).astype(np.float32)
        position = np.clip(action.cumsum(0) * 0.3, -1, 1)
        observation: dict[str, Any] = {}
        for name, modality in modalities.items():
            if modality.dtype == np.uint8:
                image = np.zeros((15, *modality.shape), np.uint8)
                for t, (x, y) in enumerate(position):
                    row, column = int(13 + 12 * y), int(13 + 12 * x)
                    image[t, row : row + 6, column : column + 6] = 255
                observation[name] = image
            else:
                repeated = np.resize(position.T, (*modality.shape, 15))
                observation[name] = repeated.T.astype(np.float32)
        reward = position[:, 0].astype(np.float32)
        replay.add(Episode(observation, action, reward, np.zeros(15, np.bool_)))
    return replay


@kinds
@pytest.mark.parametrize("sharing", ["own", "shared"])
def test_the_loss_falls_and_the_model_still_acts(
    tmp_path: Path, modalities: Modalities, sharing: str
) -> None:
    """Each term of the objective falls, for each modality, and the plan stays finite."""
    replay = walking_replay(tmp_path, modalities)
    config = make_config(
        2, batch_size=8, sequence_length=10, learning_rate=1e-2, batch_sharing=sharing
    )
    model = fresh(2, modalities, normalise=True, image_bits=8, deter=16, hidden=16)
    learner = Learner(model, config)
    learner.rescale(replay)
    rows = [learner.update(replay, number) for number in range(60)]
    names = ["total", "observation", "reward"]
    if len(modalities) > 1:
        names += [f"observation_{name}" for name in modalities]
    assert set(names) <= set(rows[0])
    for name in names:
        first, last = (np.mean([row[name] for row in part]) for part in (rows[:5], rows[-5:]))
        assert last < 0.8 * first, name
    planner = PlannerConfig(horizon=3, num_trajectories=24, num_iterations=2)
    agent = Agent(learner.acting_model, signature(modalities), planner)
    views = make_observations(modalities, 2, 1)
    action, carry, diagnostics = agent.act(agent.initial(2), views, seeded(0))
    action, carry, diagnostics = agent.act(carry, views, seeded(1))
    assert np.isfinite(action).all()
    assert diagnostics.returns.isfinite().all()


def test_scales_come_from_the_episodes(tmp_path: Path) -> None:
    replay = walking_replay(tmp_path, BOTH)
    model: Any = fresh(2, BOTH, normalise=True)
    config = Config(model=model.config, learn=LearnConfig(ema_decay=0.9))
    learner = Learner(model, config)
    learner.rescale(replay)
    episodes = [replay.episode(index) for index in range(len(replay))]
    joints = np.concatenate([episode.observation["joints"] for episode in episodes])
    camera = np.concatenate([episode.observation["camera"] for episode in episodes])
    reward = np.concatenate([episode.reward for episode in episodes])
    acting: Any = learner.acting_model
    assert acting is not model
    for one in (model, acting):
        np.testing.assert_allclose(one.senses["joints"].mean, joints.mean(0), atol=1e-6)
        np.testing.assert_allclose(one.senses["joints"].std, joints.std(0), rtol=1e-5)
        mean = (camera.mean(0) + 0.5) / 256 - 0.5
        np.testing.assert_allclose(one.senses["camera"].mean, mean.transpose(2, 0, 1), atol=1e-6)
        np.testing.assert_allclose(one.heads["reward"].std, reward.std(), rtol=1e-5)


def weights_of(model: WorldModel) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_a_loss_that_is_not_finite_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = filled_replay(tmp_path, ACTIONS)
    learner = Learner(build(2), make_config(2, batch_size=4, sequence_length=5, ema_decay=0.9))
    learner.update(replay, 0)
    before, acting = weights_of(learner.model), weights_of(learner.acting_model)
    moments = copy.deepcopy(list(learner.optimiser.state.values()))
    loss = learner.model.loss

    def broken(*arguments: Any) -> Any:
        terms = loss(*arguments)
        lost = terms["reward"] * float("nan")
        return terms | {"reward": lost, "total": terms["total"] + lost}

    monkeypatch.setattr(learner.model, "loss", broken)
    with pytest.raises(
        NumericalError, match="update 1: reward, gradient_norm, shared_gradient_norm is not finite"
    ):
        learner.update(replay, 1)
    after = weights_of(learner.model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    after = weights_of(learner.acting_model)
    assert all(torch.equal(acting[name], after[name]) for name in acting)
    for values, earlier in zip(learner.optimiser.state.values(), moments, strict=True):
        assert all(torch.equal(values[name], earlier[name]) for name in values)


def test_the_acting_weights_are_a_moving_average(tmp_path: Path) -> None:
    replay = filled_replay(tmp_path, ACTIONS)
    config = make_config(2, batch_size=4, sequence_length=5, ema_decay=0.5)
    learner = Learner(build(2), config)
    expected = weights_of(learner.model)
    for number in range(12):
        learner.update(replay, number)
        past = min(0.5, (1 + number) / (10 + number))
        learned = weights_of(learner.model)
        expected = {n: past * expected[n] + (1 - past) * learned[n] for n in expected}
    for name, value in weights_of(learner.acting_model).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
    plain = Learner(build(2), make_config(2))
    assert plain.acting_model is plain.model
