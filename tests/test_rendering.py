"""Frames of suite tasks: near the suite's own at a fraction of its cost, at any size."""

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from env_parts import prepared
from planet_bayes.envs import TASKS, EnvConfig, gl, make_env
from planet_bayes.envs.make import RENDER_SIZES

pytestmark = pytest.mark.skipif(
    sys.platform.startswith("linux") and not gl.egl_works(), reason="no EGL on this machine"
)


def make(task: str, size: int) -> Any:
    """Return the environment that renders, below all the other wrappers."""
    gl.choose_backend()
    from planet_bayes.envs import suite

    env = suite.make(TASKS[task], original=False, image_size=size)
    env.reset(seed=1)
    env.action_space.seed(1)
    return env


def move(env: Any, steps: int) -> None:
    for _ in range(steps):
        env.step(env.action_space.sample())


def moved(env: Any, states: int) -> Iterator[int]:
    """Yield after each of some stretches of random actions."""
    for index in range(states):
        if index % 4 == 0:
            env.reset(seed=index)
        move(env, 12)
        yield index


@pytest.mark.parametrize("size", [64, 32])
@pytest.mark.parametrize("task", ["walker_run", "finger_spin"])  # the two that differ most
def test_small_frames_are_near_the_suites_own(task: str, size: int) -> None:
    env = make(task, size)
    differences = []
    for _ in moved(env, 16):
        stock = env.unwrapped.render()  # dm_control's, in the model's own quality
        differences.append(np.abs(env.render().astype(int) - stock))
    difference = np.stack(differences)
    assert difference.mean() < 0.1
    assert np.mean(difference > 32) < 1e-3
    assert difference.any()  # else the two were not rendered apart
    env.close()


def test_large_frames_are_the_suites_own() -> None:
    env = make("cartpole_swingup", 200)
    move(env, 5)
    assert np.array_equal(env.render(), env.unwrapped.render())
    env.close()


def test_frames_may_exceed_the_models_buffer() -> None:
    env = make("cartpole_swingup", 700)
    frame = env.render()
    assert frame.shape == (700, 700, 3)
    small = make("cartpole_swingup", 70)
    # The same picture: means over blocks of 10×10 pixels are the small frame, except at edges and
    # stars, which a small frame samples.
    blocks = frame.reshape(70, 10, 70, 10, 3).mean((1, 3))
    assert np.abs(blocks - small.render()).mean() < 4
    assert np.corrcoef(blocks.ravel(), small.render().ravel())[0, 1] > 0.95
    env.close()
    small.close()


def test_a_small_image_is_the_mean_of_a_larger_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = []
    assert RENDER_SIZES == {32: 128, 64: 64}
    for factor in (1, 4):
        monkeypatch.setitem(RENDER_SIZES, 32, 32 * factor)
        env = make_env("cup_catch", EnvConfig(image_size=32))
        env.reset(seed=1)
        raw, *_ = env.step(np.array([0.5, -0.5], np.float32))
        observation = prepared(env, raw)
        large = np.asarray(env.render())
        assert np.array_equal(raw["camera"], large)
        assert large.shape == (32 * factor, 32 * factor, 3)
        blocks = large.reshape(32, factor, 32, factor, 3).mean((1, 3))
        assert np.abs(observation - blocks).max() <= 0.5 + 1e-6
        frames.append(observation.astype(int))
        env.close()
    # The same picture, except where something thin is in it.
    difference = np.abs(frames[0] - frames[1]).max(-1)
    assert 0.005 < np.mean(difference > 20) < 0.1


def test_the_simulations_own_render_keeps_every_size_and_its_quality() -> None:
    env, untouched = make("walker_run", 64), make("walker_run", 64)
    expected = untouched.unwrapped.physics.render(height=240, width=320, camera_id=0)
    first = env.render()
    large = env.unwrapped.physics.render(height=240, width=320, camera_id=0)
    assert np.array_equal(large, expected)
    assert np.array_equal(env.render(), first)  # one context does not disturb the other
    assert env.unwrapped.physics.render(height=480, width=640, camera_id=0).std() > 3
    env.close()
    untouched.close()


def test_looking_changes_nothing() -> None:
    seen, unseen = make("walker_run", 32), make("walker_run", 32)
    for env in (seen, unseen):
        move(env, 30)
    seen.render()
    for _ in range(2):
        first, second = (env.unwrapped.physics.data for env in (seen, unseen))
        for name in ("qpos", "qvel", "qacc", "qacc_warmstart", "actuator_force", "sensordata"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name
        for env in (seen, unseen):
            move(env, 7)
    seen.close()


def test_a_frame_keeps_its_pixels() -> None:
    env = make("cheetah_run", 32)
    frame = env.render()
    copy = frame.copy()
    move(env, 10)
    assert not np.array_equal(env.render(), copy)
    assert np.array_equal(frame, copy)
    env.close()


def test_one_camera_for_all_episodes_freed_on_close(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("cartpole_swingup", 32)
    from dm_control.mujoco import engine

    made: list[Any] = []
    original = engine.Camera

    def counted(*args: Any, **options: Any) -> Any:
        camera = original(*args, **options)
        made.append(weakref.ref(camera))
        return camera

    monkeypatch.setattr(engine, "Camera", counted)
    for seed in range(3):
        env.reset(seed=seed)
        move(env, 2)
        env.render()
    assert len(made) == 1
    context = env._view.contexts.gl
    env.close()
    gc.collect()
    assert context.terminated
    assert made[0]() is None


def test_a_dropped_environment_frees_its_camera() -> None:
    env = make("cartpole_swingup", 32)
    env.render()
    context = weakref.ref(env._view.contexts.gl)
    del env
    gc.collect()
    assert context() is None


def test_an_environment_renders_again_and_again_after_others_closed() -> None:
    kept = make_env("cartpole_swingup", EnvConfig(image_size=32))
    first = kept.reset(seed=0)[0]["camera"]
    for _ in range(3):
        other = make_env("cartpole_swingup", EnvConfig(image_size=32))
        assert np.array_equal(other.reset(seed=0)[0]["camera"], first)
        other.close()
        assert np.array_equal(np.asarray(kept.render()), first)
    kept.close()
