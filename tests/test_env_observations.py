"""Observations by name: sources, modalities, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from env_parts import STATE, needs_egl, prepared
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError, ObservationError
from planet_bayes.models import Image, Vector
from planet_bayes.spaces import Box, Signature


def together(task: str, several: EnvConfig, alone: dict[str, EnvConfig], steps: int = 4) -> None:
    """Compare an environment of several sources with those of one source each."""
    env = make_env(task, several)
    others = {name: make_env(task, config) for name, config in alone.items()}
    assert list(env.signature.observation) == list(alone)
    raw, _ = env.reset(seed=2)
    single = {name: other.reset(seed=2)[0] for name, other in others.items()}
    rng = np.random.default_rng(0)
    for _ in range(steps):
        seen = env.signature.prepare(raw)
        for name, other in others.items():
            assert seen[name].shape == env.signature.observation[name].shape
            assert np.array_equal(seen[name], prepared(other, single[name]))
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        raw, reward, *_ = env.step(action)
        for name, other in others.items():
            single[name], expected, *_ = other.step(action)
            assert reward == expected
    for one in (env, *others.values()):
        one.close()


@pytest.mark.parametrize("task", ["toy_reach", pytest.param("cartpole_swingup", marks=needs_egl)])
def test_several_sources_at_once_equal_each_alone(task: str) -> None:
    together(
        task,
        EnvConfig(("camera=pixels", "joints=sensors", "all=state"), image_size=32, blur=3),
        {
            "camera": EnvConfig(("pixels",), image_size=32, blur=3),
            "joints": EnvConfig(("sensors",)),
            "all": EnvConfig(("state",)),
        },
    )


def test_bare_names_and_their_modalities() -> None:
    env = make_env("toy_reach", EnvConfig(("state", "sensors", "pixels"), image_size=32, blur=5))
    assert env.signature.observation == {
        "state": Vector(6),
        "sensors": Vector(6, (0, 1, 4, 5)),
        "camera": Image(32, 5),
    }
    assert isinstance(env.observation_space, spaces.Dict)
    raw, _ = env.reset(seed=0)
    assert list(raw) == list(env.observation_space.spaces) == ["state", "sensors", "camera"]
    assert env.observation_space.contains(raw)
    assert raw["sensors"].shape == (6,)  # raw: the selection is the signature's


@pytest.mark.parametrize(
    "task", ["cartpole_swingup", "toy_reach"], ids=["a suite task", "the toy task"]
)
def test_parts_of_a_named_tasks_own_observation(task: str) -> None:
    env = make_env(task, EnvConfig(("where=position", "velocity", "state")))
    raw, _ = env.reset(seed=0)
    raw = env.step(np.ones(env.action_space.shape, np.float32))[0]
    seen = env.signature.prepare(raw)
    joined = np.concatenate([seen["where"], seen["velocity"]])
    assert np.array_equal(joined, seen["state"][: len(joined)])
    assert joined.any()


# --- an environment with a Dict observation


WRIST = spaces.Box(0, 255, (30, 40, 3), np.uint8)
OVERHEAD = spaces.Box(0, 255, (64, 64, 3), np.uint8)
ROBOT = spaces.Dict(
    {
        "wrist_rgb": WRIST,
        "overhead": OVERHEAD,
        "qpos": spaces.Box(-9, 9, (5,), np.float64),
        "depth": spaces.Box(0, 255, (8, 8, 1), np.uint8),
        "mode": spaces.Discrete(3),
    },
    sort_keys=False,
)


def robot(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {
        "wrist_rgb": rng.integers(0, 256, WRIST.shape, np.uint8),
        "overhead": rng.integers(0, 256, OVERHEAD.shape, np.uint8),
        "qpos": rng.normal(size=5),
        "depth": np.full((8, 8, 1), step, np.uint8),
        "mode": np.int64(step % 3),
    }


def test_two_cameras_and_joints_of_a_users_environment(own: Callable[..., str]) -> None:
    task = own(space=ROBOT, observe=robot, render_mode=None)
    config = EnvConfig(("wrist=wrist_rgb", "overhead", "joints=qpos"), image_size=64, blur=1)
    env = make_env(task, config)
    assert env.signature.observation == {
        "wrist": Image(64),
        "overhead": Image(64),
        "joints": Vector(5),
    }
    env.reset(seed=0)
    raw = env.step(np.zeros(2, np.float32))[0]
    expected = robot(1)
    assert list(raw) == ["wrist", "overhead", "joints"]
    assert np.array_equal(raw["wrist"], expected["wrist_rgb"])
    assert np.array_equal(raw["overhead"], expected["overhead"])
    assert np.array_equal(raw["joints"], expected["qpos"])
    seen = env.signature.prepare(raw)
    assert seen["wrist"].shape == seen["overhead"].shape == (64, 64, 3)
    assert np.array_equal(seen["overhead"], expected["overhead"])  # of its size already
    assert np.array_equal(seen["joints"], expected["qpos"].astype(np.float32))


def test_other_keys_are_vectors(own: Callable[..., str]) -> None:
    env = make_env(own(space=ROBOT, observe=robot), EnvConfig(("depth", "mode")))
    assert env.signature.observation == {"depth": Vector(64), "mode": Vector(3)}
    env.reset(seed=0)
    seen = env.signature.prepare(env.step(np.zeros(2, np.float32))[0])
    assert seen["mode"].tolist() == [0, 1, 0]
    assert (seen["depth"] == 1).all()


def test_a_rendered_frame_beside_keys_of_the_environment(own: Callable[..., str]) -> None:
    env = make_env(own(space=ROBOT, observe=robot), EnvConfig(("pixels", "joints=qpos")))
    env.reset(seed=0)
    raw = env.step(np.zeros(2, np.float32))[0]
    assert raw["camera"].shape == (40, 50, 3)
    assert (raw["camera"] == 1).all()
    assert env.signature.prepare(raw)["camera"].shape == (64, 64, 3)


def test_an_own_key_comes_before_a_source_of_the_same_name(own: Callable[..., str]) -> None:
    space = spaces.Dict(
        {"sensors": spaces.Box(-9, 9, (2,), np.float64), "rest": spaces.Box(-9, 9, (4,))}
    )
    task = own(
        space=space, observe=lambda step: {"sensors": np.ones(2), "rest": np.zeros(4, np.float32)}
    )
    env = make_env(task, EnvConfig(("sensors", "state")))
    assert env.signature.observation == {"sensors": Vector(2), "state": Vector(6)}
    with pytest.raises(ConfigError, match=r"env\.sensors selects .* called sensors of its own"):
        make_env(task, EnvConfig(("sensors",), sensors=(0,)))


@pytest.mark.parametrize(
    ("source", "guess"),
    [
        ("pixel", r"did you mean 'pixels'\?"),
        ("wrist_rg", r"did you mean 'wrist_rgb'\?"),
        ("zzz", r"'zzz'\. There are"),
    ],
)
def test_an_unknown_source_names_the_nearest(
    own: Callable[..., str], source: str, guess: str
) -> None:
    everything = "pixels, sensors, state, wrist_rgb, overhead, qpos, depth, mode"
    with pytest.raises(ConfigError, match=rf"own_env:make has no source.*{guess}.*{everything}"):
        make_env(own(space=ROBOT, observe=robot), EnvConfig((f"x={source}",)))
    with pytest.raises(ConfigError, match=r"There are pixels, sensors, state\."):
        make_env(own(), EnvConfig((f"x={source}",)))


# --- images


def test_own_image_observation_is_copied(own: Callable[..., str]) -> None:
    space = spaces.Box(0, 200, (64, 64, 3), np.uint8)
    buffer = np.zeros((64, 64, 3), np.uint8)

    def observe(step: int) -> Any:
        buffer[:] = step
        return buffer

    env = make_env(own(space=space, observe=observe, render_mode=None))
    first = prepared(env, env.reset(seed=0)[0])
    second = prepared(env, env.step(np.zeros(2, np.float32))[0])
    assert (first == 0).all()  # not a view of the buffer that was drawn into again
    assert (second == 1).all()


def test_own_vectors_and_cameras_of_a_dict_are_copied(own: Callable[..., str]) -> None:
    buffer = robot(0)

    def observe(step: int) -> Any:
        buffer["qpos"][:] = step
        buffer["overhead"][:] = step
        return buffer

    env = make_env(own(space=ROBOT, observe=observe), EnvConfig(("overhead", "qpos")))
    first, _ = env.reset(seed=0)
    second = env.step(np.zeros(2, np.float32))[0]
    for name in ("overhead", "qpos"):
        assert (first[name] == 0).all()
        assert (second[name] == 1).all()


@pytest.mark.parametrize("side", [3, 5])
def test_a_blurred_pixel_is_the_mean_of_those_around_it(side: int) -> None:
    sharp = make_env("toy_reach", EnvConfig(image_size=32))
    blurred = make_env("toy_reach", EnvConfig(image_size=32, blur=side))
    assert blurred.observation_space == sharp.observation_space
    raw, _ = sharp.reset(seed=3)
    for _ in range(3):
        image, seen = prepared(sharp, raw), prepared(blurred, raw)
        around = np.pad(image.astype(float), [(side // 2,) * 2] * 2 + [(0, 0)], mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(around, (side, side), axis=(0, 1))
        assert seen.dtype == np.uint8
        assert np.abs(seen - windows.mean((-2, -1))).max() <= 0.5 + 1e-6
        assert np.abs(seen.astype(int) - image).max() > 20  # something was smoothed away
        raw, *_ = sharp.step(np.array([0.5, -1.0], np.float32))
    sharp.close()
    blurred.close()


def test_pixels_refused(own: Callable[..., str]) -> None:
    with pytest.raises(EnvError, match=r"cannot give pixels.*render_mode is None"):
        make_env(own(render_mode=None))


# --- vectors


def test_float64_becomes_float32_and_dicts_are_flattened(own: Callable[..., str]) -> None:
    space = spaces.Dict(
        a=spaces.Box(-1e300, 1e300, (2,), np.float64), b=spaces.Tuple([spaces.Discrete(2)])
    )
    env = make_env(
        own(space=space, observe=lambda step: {"a": np.ones(2), "b": (np.int64(1),)}), STATE
    )
    observation = prepared(env, env.reset(seed=0)[0])
    assert observation.dtype == np.float32
    assert observation.tolist() == [1, 1, 0, 1]


def test_the_selection_of_sensors_travels_in_the_signature(own: Callable[..., str]) -> None:
    config = EnvConfig(("joints=sensors",), sensors=(2, 0))
    env = make_env(own(observe=lambda step: np.array([1, 2, 3], np.float32)), config)
    assert env.signature.observation["joints"] == Vector(3, entries=(2, 0))
    raw, _ = env.reset(seed=0)
    assert raw["joints"].tolist() == [1, 2, 3]
    travelled = Signature.from_json(env.signature.to_json())
    assert travelled == env.signature
    assert travelled.prepare({"joints": [4, 5, 6]})["joints"].tolist() == [6, 4]


def test_a_selection_replaces_the_tasks_own_choice() -> None:
    env = make_env("cheetah_run", EnvConfig(("sensors",), sensors=(8, 1)))
    assert env.signature.observation["sensors"] == Vector(17, entries=(8, 1))


def test_observation_spaces_refused(own: Callable[..., str]) -> None:
    with pytest.raises(EnvError, match="no fixed size"):
        make_env(own(space=spaces.Sequence(spaces.Box(-1, 1))), STATE)
    with pytest.raises(EnvError, match="without entries"):
        make_env(own(space=spaces.Box(-1, 1, (0,))), STATE)
    for index in (3, -1):
        with pytest.raises(EnvError, match=rf"names \[{index}\].*0 to 2"):
            make_env(own(), EnvConfig(("sensors",), sensors=(0, index)))


# --- preparing


def test_what_does_not_fit_the_signature_is_named() -> None:
    env = make_env("toy_reach", EnvConfig(("pixels", "joints=sensors"), image_size=32))
    raw, _ = env.reset(seed=0)
    assert list(env.signature.prepare({**raw, "extra": 1})) == ["camera", "joints"]
    for wrong, message in (
        (raw["joints"], "expected a dict with the keys camera, joints, got a ndarray"),
        ({"camera": raw["camera"]}, "'joints' is missing; there are camera"),
        ({}, "'camera' is missing; there are no keys"),
        ({**raw, "joints": np.zeros(5)}, r"'joints': expected a vector of 6 .* \(5,\)"),
        ({**raw, "joints": np.full(6, np.nan)}, "'joints': it has NaN"),
        ({**raw, "camera": np.zeros((9, 9, 3))}, "'camera': expected an RGB image.*float64"),
    ):
        with pytest.raises(ObservationError, match=message):
            env.signature.prepare(wrong)


def test_names_that_an_agent_cannot_have() -> None:
    action = Box((-1.0,), (1.0,))
    for name in ("", "a.b", "a b", "1st"):
        with pytest.raises(ConfigError, match="letters, digits and underscores"):
            Signature({name: Vector(3)}, action)
    for name in ("reward", "keys", "values", "type", "forward", "training"):
        with pytest.raises(ConfigError, match=f"'{name}': this name is used otherwise"):
            Signature({name: Vector(3)}, action)
    with pytest.raises(ConfigError, match="an agent must observe something"):
        Signature({}, action)
