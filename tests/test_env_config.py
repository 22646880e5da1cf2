"""The settings of an environment: names and sources, and what is refused."""

from typing import Any

import pytest

from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError


@pytest.mark.parametrize(
    ("observation", "sources"),
    [
        (("pixels",), {"camera": "pixels"}),
        (("sensors",), {"sensors": "sensors"}),
        (("state",), {"state": "state"}),
        (("eye=pixels",), {"eye": "pixels"}),
        (("camera=pixels", "joints=sensors"), {"camera": "pixels", "joints": "sensors"}),
        (("pixels", "sensors"), {"camera": "pixels", "sensors": "sensors"}),
        (("wrist=wrist_rgb", "overhead"), {"wrist": "wrist_rgb", "overhead": "overhead"}),
        (("angle=joint/0 [rad]",), {"angle": "joint/0 [rad]"}),
        (("a=b=c",), {"a": "b=c"}),
    ],
)
def test_each_observation_has_a_name_and_a_source(
    observation: tuple[str, ...], sources: dict[str, str]
) -> None:
    config = EnvConfig(observation=observation)
    assert config.sources == sources
    assert list(config.sources) == list(sources)  # in the given order


def test_a_list_in_python_code_is_the_tuple_of_a_file() -> None:
    given: Any = EnvConfig(observation=["sensors"], sensors=[1, 0])  # type: ignore[arg-type]
    assert given == EnvConfig(observation=("sensors",), sensors=(1, 0))


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ("pixels", "must be a list of at least one SOURCE or NAME=SOURCE, got 'pixels'"),
        ((), r"must be a list of at least one .* got \(\)"),
        (("pixels", "camera=pixels"), "has a name twice: pixels, camera=pixels"),
        (("a=pixels", "a=sensors"), "has a name twice"),
        (("reward=pixels",), "cannot be called reward"),
        (("reward",), "cannot be called reward"),
        (("",), "letters, digits and underscores"),
        (("=pixels",), "letters, digits and underscores"),
        (("camera=",), "is not NAME=SOURCE"),
        (("my camera=pixels",), "letters, digits and underscores"),
        (("joint/0 [rad]",), "letters, digits and underscores"),
    ],
)
def test_observations_refused(observation: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"env.observation.*{message}"):
        EnvConfig(observation=observation)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": 48},
        {"blur": 0},
        {"blur": 4},
        {"blur": 65},
        {"action_repeat": -1},
        {"max_steps": -1},
        {"sensors": (0,)},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": 1e6},
    ],
)
def test_config_refuses(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        EnvConfig(**settings)


@pytest.mark.parametrize(
    ("observation", "label"),
    [
        (("pixels",), "pixels"),
        (("camera=pixels", "joints=sensors"), "pixels+sensors"),
        (("a=../x",), ".._x"),
        (("a=joint/0 [rad]",), "joint_0__rad_"),
    ],
)
def test_the_label_is_safe_as_the_name_of_a_folder(
    observation: tuple[str, ...], label: str
) -> None:
    assert EnvConfig(observation=observation).label == label
