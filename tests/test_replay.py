"""Replay: what is stored comes back, memory stays bounded, short episodes are padded."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from planet_bayes.data.replay import Replay
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.models import ModelConfig, RewardHead, Vector
from planet_bayes.types import Episode


def made(observation: dict[str, np.ndarray], action: np.ndarray, reward: np.ndarray) -> Episode:
    """Return an episode without a terminal state."""
    return Episode(observation, action, reward, np.zeros(len(reward), np.bool_))


def episode(number: int, length: int, pixels: bool = False) -> Episode:
    """Return an episode whose entries say where they are from: episode · 100 + step."""
    code = np.arange(length) + 100 * number
    observation: dict[str, np.ndarray] = {"code": np.stack([code, -code], 1).astype(np.float32)}
    if pixels:
        observation["camera"] = np.full((length, 8, 8, 3), number, np.uint8)
    return made(observation, code[:, None].astype(np.float32), code.astype(np.float32))


def test_sequences_are_whole_and_aligned(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(3):
        replay.add(episode(number, 10 + number))
    batch = replay.sample(np.random.default_rng(0), 2, 50, 4)
    assert list(batch.observation) == ["code"]
    assert batch.observation["code"].shape == (2, 50, 4, 2)
    assert batch.action.shape == (2, 50, 4, 1)
    assert torch.equal(batch.observation["code"][..., 0], batch.reward)
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
    assert batch.observation["code"][0, 1, :, 1].tolist() == [-100, -101, -102, 0, 0]


def test_several_observations_and_terminal_states(tmp_path: Path) -> None:
    replay = Replay(tmp_path, ram_bytes=1)
    for number in range(3):
        one = episode(number, 8, pixels=True)
        ended = np.arange(8) >= (5 if number == 1 else 8)
        replay.add(Episode(one.observation, one.action, one.reward, ended))
    batch = replay.sample(np.random.default_rng(0), 2, 40, 3)
    assert list(batch.observation) == ["code", "camera"]
    assert batch.observation["camera"].shape == (2, 40, 3, 8, 8, 3)
    assert batch.observation["camera"].dtype == torch.uint8
    assert batch.terminal.dtype == torch.float32
    source = (batch.reward // 100).long()
    # All of a row is of one episode and one step.
    assert torch.equal(batch.observation["code"][..., 0], batch.reward)
    expected = source[..., None, None, None].expand(2, 40, 3, 8, 8, 3)
    assert torch.equal(batch.observation["camera"].long(), expected)
    assert torch.equal(batch.terminal, ((source == 1) & (batch.reward % 100 >= 5)).float())
    assert 0 < batch.terminal.mean() < 1


def test_memory_is_bounded_and_results_are_the_same(tmp_path: Path) -> None:
    size = episode(0, 10, pixels=True).num_bytes
    small, large = Replay(tmp_path / "a", ram_bytes=int(2.5 * size)), Replay(tmp_path / "b")
    for number in range(8):
        small.add(episode(number, 10, pixels=True))
        large.add(episode(number, 10, pixels=True))
    for seed in range(5):
        one = small.sample(np.random.default_rng(seed), 1, 6, 5)
        two = large.sample(np.random.default_rng(seed), 1, 6, 5)
        assert torch.equal(one.observation["camera"], two.observation["camera"])
        assert torch.equal(one.reward, two.reward)
        assert one.observation["camera"].dtype == torch.uint8
        assert sum(e.num_bytes for e in small._cache.values()) <= 2.5 * size
    assert len(large._cache) == 8


def test_memory_is_counted_anew_when_restored(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(4):
        replay.add(episode(number, 10))
    for count in (4, 4, 2):
        replay.restore(count)
        assert replay._cached_bytes == sum(e.num_bytes for e in replay._cache.values())
        assert list(replay._cache) == list(range(count))


def test_restore_takes_the_first_and_deletes_the_rest(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(4):
        replay.add(episode(number, 5))
    again = Replay(tmp_path)
    again.restore(2)
    assert len(again) == 2
    assert again.num_steps == 8
    names = ["000000.npz", "000001.npz", "SHA256SUMS"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_a_missing_or_damaged_episode_is_named(tmp_path: Path) -> None:
    replay = Replay(tmp_path, ram_bytes=1)
    for number in range(3):
        replay.add(episode(number, 5))
    path = tmp_path / "000001.npz"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 1
    for damage in (whole[:50], b"", bytes(flipped), whole + b"x", None):
        path.write_bytes(damage) if damage is not None else path.unlink()
        assert list(Replay(tmp_path).damaged(3)) == [1]
        for reading in (lambda: Replay(tmp_path).restore(3), lambda: replay.episode(1)):
            with pytest.raises(RunError, match=r"000001\.npz"):
                reading()
    path.write_bytes(whole)
    assert Replay(tmp_path).damaged(3) == {}
    assert replay.episode(1).reward.tolist() == episode(1, 5).reward.tolist()


def test_what_is_lost_is_never_drawn(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(6):
        replay.add(episode(number, 5 + number))
    for number in (0, 3):
        replay.path(number).write_bytes(b"")
    again = Replay(tmp_path)
    again.restore(6, lost=[0, 3])
    assert (len(again), again.num_steps) == (6, 5 + 6 + 8 + 9)
    for weight in (1.0, 5.0):
        batch = again.sample(
            np.random.default_rng(0), 1, 200, 3, seed_episodes=2, agent_weight=weight
        )
        assert set((batch.reward[0, :, 0] // 100).tolist()) == {1, 2, 4, 5}
    lengths = np.array([0, 6, 7, 0, 9, 10])
    rewards = np.concatenate([episode(n, k).reward for n, k in enumerate(lengths)])
    assert float(again.moments()["reward"].std) == pytest.approx(rewards.std(), rel=1e-5)
    again.add(episode(6, 5))
    last = Replay(tmp_path)
    last.restore(7, lost=[0, 3])
    assert last.lengths == again.lengths


def test_an_empty_replay_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="empty"):
        Replay(tmp_path).sample(np.random.default_rng(0), 1, 1, 1)


def test_moments_are_those_of_all_entries(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    rng = np.random.default_rng(0)
    for length in (5, 9, 2):
        values = rng.normal(3, 2, (length, 4)).astype(np.float32)
        parts = {"joints": values[:, :2], "force": values[:, 1:2]}
        replay.add(made(parts, values[:, 2:3], values[:, 3]))
    stored = [replay.episode(index) for index in range(3)]
    again = Replay(tmp_path)
    again.restore(3)
    for found in (replay.moments(), again.moments()):
        assert set(found) == {"joints", "force", "reward"}
        for name in ("joints", "force"):
            seen = np.concatenate([one.observation[name] for one in stored])
            np.testing.assert_allclose(found[name].mean, seen.mean(0), rtol=1e-5)
            np.testing.assert_allclose(found[name].std, seen.std(0), rtol=1e-5)
        rewards = np.concatenate([one.reward for one in stored])
        np.testing.assert_allclose(found["reward"].mean, rewards.mean(), rtol=1e-5)
        np.testing.assert_allclose(found["reward"].std, rewards.std(), rtol=1e-5)


def test_what_never_moves_has_no_spread_however_large_it_is(tmp_path: Path) -> None:
    replay, config = Replay(tmp_path), ModelConfig(normalise=True)
    for _ in range(20):
        still = np.tile(np.array([20000.3, -0.7, 123.4], np.float32), (126, 1))
        replay.add(made({"still": still}, still[:, :1], still[:, 0]))
    found = replay.moments()
    assert found["still"].std.tolist() == [0, 0, 0]
    assert found["reward"].std == 0
    network = Vector(3).network(config, 5, torch.Generator())
    network.rescale(found["still"])
    assert network.std.tolist() == [1, 1, 1]
    head = RewardHead(5, config, torch.Generator())
    head.rescale(found)
    assert head.std == 1


def test_moments_of_images_are_a_mean_image_and_a_spread_of_each_pixel(tmp_path: Path) -> None:
    replay, rng = Replay(tmp_path), np.random.default_rng(0)
    images = rng.integers(0, 256, (7, 4, 4, 3), np.uint8)
    for part in (slice(0, 3), slice(3, 7)):
        rest = np.zeros((len(images[part]), 1), np.float32)
        reward = np.arange(len(rest), dtype=np.float32)
        replay.add(made({"camera": images[part]}, rest, reward))
    found = replay.moments()
    np.testing.assert_allclose(found["camera"].mean, images.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found["camera"].std, images.std(0), rtol=1e-6)
    assert float(found["reward"].std) == pytest.approx(np.std([0, 1, 2, 0, 1, 2, 3]))


def test_later_episodes_are_drawn_as_often_as_their_weight_says(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(6):
        replay.add(episode(number, 10))

    def shares(early: int, weight: float) -> np.ndarray:
        rng = np.random.default_rng(0)
        batch = replay.sample(rng, 1, 20_000, 2, seed_episodes=early, agent_weight=weight)
        return np.bincount((batch.reward[0, :, 0] // 100).long(), minlength=6) / 20_000

    np.testing.assert_allclose(shares(4, 3.0), np.array([1, 1, 1, 1, 3, 3]) / 10, atol=0.01)
    np.testing.assert_allclose(shares(4, 0.5), np.array([2, 2, 2, 2, 1, 1]) / 10, atol=0.01)
    for early, weight in ((4, 1.0), (0, 3.0), (6, 3.0), (9, 3.0)):
        assert np.array_equal(shares(early, weight), shares(0, 1.0))


def sparse(length: int, *rewarded: int) -> Episode:
    """Return an episode with a reward of 1 at the given steps, whose actions are its steps."""
    step = np.arange(length, dtype=np.float32)[:, None]
    return made({"step": step}, step, np.isin(np.arange(length), rewarded).astype(np.float32))


def test_sequences_hold_the_coming_of_a_reward_as_often_as_asked(tmp_path: Path) -> None:
    replay, num, length = Replay(tmp_path), 20_000, 10
    for number in range(50):
        replay.add(sparse(100, 50, 51) if number == 7 else sparse(100))

    def share(again: Replay, wanted: float) -> float:
        rng = np.random.default_rng(0)
        batch = again.sample(rng, 1, num, length, onset_share=wanted)
        assert bool((batch.action[0, :, :, 0].diff(dim=-1) == 1).all())
        # The onset itself and the step before it.
        held = (batch.reward[0, :, 1:] > 0) & (batch.reward[0, :, :-1] == 0)
        return float(held.any(-1).float().mean())

    chance = share(replay, 0.0)
    assert chance == pytest.approx(9 / 91 / 50, rel=0.3)
    assert share(replay, 0.02) == pytest.approx(0.02, abs=0.004)
    assert share(replay, 0.5) == pytest.approx(20 * 9 / 5000, abs=0.01)  # 20 times chance
    assert share(replay, chance / 2) == chance  # there are enough: nothing changes
    restored = Replay(tmp_path)
    restored.restore(50)
    assert share(restored, 0.02) == share(replay, 0.02)
    restored.restore(50, lost=[7])
    assert share(restored, 0.5) == 0


def test_onsets_at_an_end_or_in_a_short_episode_are_drawn_whole(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for one in (sparse(60, 59), sparse(60, 4), sparse(7, 5), *[sparse(60)] * 30):
        replay.add(one)
    batch = replay.sample(np.random.default_rng(0), 1, 2000, 10, onset_share=0.9)
    steps, real = batch.action[0, :, :, 0], batch.mask[0]
    assert bool((steps.diff(dim=-1)[real[:, 1:] == 1] == 1).all())
    rewarded = steps[(batch.reward[0] > 0) & (real == 1)]
    assert set(rewarded.tolist()) == {59, 4, 5}
