"""Replay: what is stored comes back, memory stays bounded, short episodes are padded."""

from pathlib import Path

import numpy as np
import pytest
import torch

from planet_bayes.errors import ConfigError, RunError
from planet_bayes.models.scaling import Scaling
from planet_bayes.replay import Replay
from planet_bayes.types import Episode


def episode(number: int, length: int, pixels: bool = False) -> Episode:
    """Return an episode whose entries say where they are from: episode · 100 + step."""
    code = np.arange(length) + 100 * number
    observation = np.stack([code, -code], 1).astype(np.float32)
    if pixels:
        observation = np.full((length, 8, 8, 3), number, np.uint8)
    return Episode(observation, code[:, None].astype(np.float32), code.astype(np.float32))


def test_sequences_are_whole_and_aligned(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(3):
        replay.add(episode(number, 10 + number))
    batch = replay.sample(np.random.default_rng(0), 2, 50, 4)
    assert batch.observation.shape == (2, 50, 4, 2)
    assert batch.action.shape == (2, 50, 4, 1)
    assert torch.equal(batch.observation[..., 0], batch.reward)
    assert torch.equal(batch.action[..., 0], batch.reward)
    assert bool((batch.reward.diff(dim=-1) == 1).all())  # consecutive steps of one episode
    assert bool((batch.mask == 1).all())
    starts = batch.reward[..., 0].flatten()
    assert set((starts // 100).tolist()) == {0, 1, 2}
    # The first and the last possible start both occur.
    assert set((starts % 100)[starts < 100].tolist()) == set(range(7))


def test_short_episodes_are_padded_and_masked(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    replay.add(episode(1, 3))
    batch = replay.sample(np.random.default_rng(0), 1, 2, 5)
    assert batch.mask[0, 0].tolist() == [1, 1, 1, 0, 0]
    assert batch.reward[0, 1].tolist() == [100, 101, 102, 0, 0]


def test_memory_is_bounded_and_results_are_the_same(tmp_path: Path) -> None:
    size = episode(0, 10, pixels=True).num_bytes
    small, large = Replay(tmp_path / "a", ram_bytes=int(2.5 * size)), Replay(tmp_path / "b")
    for number in range(8):
        small.add(episode(number, 10, pixels=True))
        large.add(episode(number, 10, pixels=True))
    for seed in range(5):
        one = small.sample(np.random.default_rng(seed), 1, 6, 5)
        two = large.sample(np.random.default_rng(seed), 1, 6, 5)
        assert torch.equal(one.observation, two.observation)
        assert one.observation.dtype == torch.uint8
        assert sum(e.num_bytes for e in small._cache.values()) <= 2.5 * size
    assert len(large._cache) == 8


def test_restore_takes_the_first_and_deletes_the_rest(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(4):
        replay.add(episode(number, 5))
    again = Replay(tmp_path)
    again.restore(2)
    assert len(again) == 2
    assert again.num_steps == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000.npz", "000001.npz"]


def test_a_missing_or_damaged_episode_is_named(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    replay.add(episode(0, 5))
    with pytest.raises(RunError, match=r"000001\.npz"):
        Replay(tmp_path).restore(2)
    path = tmp_path / "000000.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RunError, match="missing or damaged"):
        Replay(tmp_path).restore(1)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "000000.npz", observation=np.array([object()]), action=1, reward=1)
    with pytest.raises(RunError, match="missing or damaged"):
        Replay(tmp_path).restore(1)


def test_an_empty_replay_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="empty"):
        Replay(tmp_path).sample(np.random.default_rng(0), 1, 1, 1)


def test_moments_are_those_of_all_entries(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    rng = np.random.default_rng(0)
    for length in (5, 9, 2):
        values = rng.normal(3, 2, (length, 4)).astype(np.float32)
        replay.add(Episode(values[:, :2], values[:, 2:3], values[:, 3]))
    stored = [replay.episode(index) for index in range(3)]
    seen = np.concatenate([one.observation for one in stored])
    again = Replay(tmp_path)
    again.restore(3)
    for found in (replay.moments(), again.moments()):
        np.testing.assert_allclose(found.observation_mean, seen.mean(0), rtol=1e-5)
        np.testing.assert_allclose(found.observation_std, seen.std(0), rtol=1e-5)
        rewards = np.concatenate([one.reward for one in stored])
        np.testing.assert_allclose(found.reward_std, rewards.std(), rtol=1e-5)


def test_what_never_moves_has_no_spread_however_large_it_is(tmp_path: Path) -> None:
    replay, scaling = Replay(tmp_path), Scaling(3)
    for _ in range(20):
        still = np.tile(np.array([20000.3, -0.7, 123.4], np.float32), (126, 1))
        replay.add(Episode(still, still[:, :1], still[:, 0]))
    found = replay.moments()
    scaling.set(found.observation_mean, found.observation_std, found.reward_std)
    assert scaling.observation_std.tolist() == [1, 1, 1]
    assert scaling.reward_std == 1


def test_moments_of_images_are_those_of_the_reward_alone(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    replay.add(episode(1, 4, pixels=True))
    assert replay.moments().observation_mean.shape == (0,)
    assert float(replay.moments().reward_std) == pytest.approx(np.std([0, 1, 2, 3]))


def test_later_episodes_are_drawn_as_often_as_their_weight_says(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(6):
        replay.add(episode(number, 10))

    def shares(early: int, weight: float) -> np.ndarray:
        rng = np.random.default_rng(0)
        batch = replay.sample(rng, 1, 20_000, 2, early=early, weight=weight)
        return np.bincount((batch.reward[0, :, 0] // 100).long(), minlength=6) / 20_000

    np.testing.assert_allclose(shares(4, 3.0), np.array([1, 1, 1, 1, 3, 3]) / 10, atol=0.01)
    np.testing.assert_allclose(shares(4, 0.5), np.array([2, 2, 2, 2, 1, 1]) / 10, atol=0.01)
    for early, weight in ((4, 1.0), (0, 3.0), (6, 3.0), (9, 3.0)):
        assert np.array_equal(shares(early, weight), shares(0, 1.0))
