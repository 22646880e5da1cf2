"""Signatures and action spaces: JSON, names, preparation, native units."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_building import seeded
from planet_bayes.errors import ConfigError, ObservationError, PlanetBayesError
from planet_bayes.models import Image, Modality, Vector
from planet_bayes.spaces import Box, Signature

ARM = Signature(
    {
        "camera": Image(32, blur=5),
        "wrist": Image(64),
        "joints": Vector(8, entries=(0, 2, 7), angles=(2,)),
        "state": Vector(3),
    },
    Box((-1.0, 0.0), (1.0, 2.5)),
)


# JSON.


def test_a_signature_survives_json() -> None:
    again = Signature.from_json(ARM.to_json())
    assert again == ARM
    assert list(again.observation) == list(ARM.observation)  # the order of the embedding
    assert again.to_json() == ARM.to_json()


def test_the_json_is_plain() -> None:
    assert json.loads(ARM.to_json()) == {
        "observation": {
            "camera": {"kind": "image", "size": 32, "blur": 5},
            "wrist": {"kind": "image", "size": 64, "blur": 1},
            "joints": {"kind": "vector", "size": 8, "entries": [0, 2, 7], "angles": [2]},
            "state": {"kind": "vector", "size": 3, "entries": [], "angles": []},
        },
        "action": {"kind": "box", "low": [-1.0, 0.0], "high": [1.0, 2.5]},
    }


bounds = st.floats(-1e6, 1e6, allow_nan=False)
widths = st.floats(1e-3, 1e6)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]_[a-z0-9_]{0,8}", fullmatch=True),
        st.builds(Image, st.sampled_from([32, 64]), st.sampled_from([1, 3, 5]))
        | st.integers(1, 20).map(Vector)
        | st.builds(Vector, st.just(9), st.lists(st.integers(0, 8), max_size=9).map(tuple)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.tuples(bounds, widths), min_size=1, max_size=4),
)
def test_every_signature_survives_json(
    observation: dict[str, Modality], limits: list[tuple[float, float]]
) -> None:
    low = tuple(bound for bound, _ in limits)
    high = tuple(bound + width for bound, width in limits)
    one = Signature(observation, Box(low, high))
    assert Signature.from_json(one.to_json()) == one


def changed(**parts: Any) -> str:
    return json.dumps(json.loads(ARM.to_json()) | parts)


BOX = {"kind": "box", "low": [-1], "high": [1]}
REGISTER = "Import the module that registers it first"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(observation={"a": {"kind": "imag"}}), "unknown modality 'imag'; did you mean 'im"),
        (changed(observation={"a": {"kind": "lidar"}}), f"There are image, vector. {REGISTER}"),
        (
            changed(action={"kind": "discrete"}),
            f"unknown action space .* box. {REGISTER}",
        ),
        (changed(observation={"a": {"size": 3}}), "expected a table with a kind, got {'size': 3}"),
        (changed(observation={"a": 3}), "expected a table with a kind, got 3"),
        (changed(observation={"a": {"kind": 3}}), "expected a table with a kind"),
        (changed(observation={"a": {"kind": "vector"}}), "modality 'vector': .*missing .* 'size'"),
        (changed(observation={"a": {"kind": "vector", "length": 3}}), "unexpected keyword"),
        (changed(observation={"a": {"kind": "vector", "size": "3"}}), "modality 'vector'"),
        (changed(observation={"a": {"kind": "image", "size": 33}}), "must be 32 or 64"),
        (changed(observation={}), "must observe something"),
        (changed(action={"kind": "box", "low": [0], "high": []}), "as many low as high"),
        (changed(observation=None), "not a signature"),
        (changed(action=None), "not a signature"),
        ('{"observation": {}}', "not a signature"),
        ("[]", "not a signature"),
        ("", "not a signature"),
        ("{", "not a signature"),
        ("[" * 100_000, "not a signature"),
    ],
)
def test_what_is_not_a_signature_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Signature.from_json(text)


# Names.


@pytest.mark.parametrize("name", ["", "a b", "a.b", "3d", "a-b", "a/b", "a=b"])
def test_names_are_identifiers(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits and underscores"):
        Signature({name: Vector(3)}, ARM.action)


@pytest.mark.parametrize("name", ["reward", "values", "type", "train", "training", "keys"])
def test_names_that_would_collide_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--env.observation my_{name}={name}"):
        Signature({name: Vector(3)}, ARM.action)


@pytest.mark.parametrize("name", ["camera", "sensors", "state", "position", "rgb", "action", "x"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert list(Signature({name: Vector(3)}, ARM.action).observation) == [name]


def test_an_agent_that_observes_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="must observe something"):
        Signature({}, ARM.action)


# Preparation.


def raw_arm() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "camera": rng.integers(0, 256, (48, 64, 3), dtype=np.uint8),
        "wrist": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
        "joints": rng.normal(size=8),
        "state": [1, 2, 3],
        "temperature": 21.5,
    }


def test_each_modality_prepares_its_own_value() -> None:
    raw = raw_arm()
    prepared = ARM.prepare(raw)
    assert list(prepared) == list(ARM.observation)  # what is not named is left out
    for name, modality in ARM.observation.items():
        assert prepared[name].shape == modality.shape
        assert prepared[name].dtype == modality.dtype
        assert np.array_equal(prepared[name], modality.prepare(raw[name]))


@pytest.mark.parametrize("raw", [np.zeros(3), [1, 2], None, "camera"])
def test_an_observation_must_be_a_dict(raw: Any) -> None:
    kind = type(raw).__name__
    with pytest.raises(ObservationError, match=f"dict with the keys camera, wrist.* got a {kind}"):
        ARM.prepare(raw)


def test_a_missing_name_is_named() -> None:
    raw = raw_arm()
    del raw["joints"]
    expected = "'joints' is missing; there are camera, wrist, state, temperature"
    with pytest.raises(ObservationError, match=expected):
        ARM.prepare(raw)
    with pytest.raises(ObservationError, match="there are no keys"):
        ARM.prepare({})


def test_a_wrong_value_is_named() -> None:
    with pytest.raises(ObservationError, match="observation 'state': expected a vector of 3") as e:
        ARM.prepare(raw_arm() | {"state": [1, 2]})
    assert isinstance(e.value, ValueError)
    assert isinstance(e.value, PlanetBayesError)
    with pytest.raises(ObservationError, match="observation 'joints': it has NaN"):
        ARM.prepare(raw_arm() | {"joints": np.full(8, np.nan)})
    with pytest.raises(ObservationError, match="observation 'wrist': expected an RGB image"):
        ARM.prepare(raw_arm() | {"wrist": np.zeros((64, 64))})


# Boxes.


@pytest.mark.parametrize(("low", "high"), [((), ()), ((0.0,), ()), ((0.0,), (1.0, 2.0))])
def test_a_box_has_as_many_low_as_high_values(low: Any, high: Any) -> None:
    with pytest.raises(ConfigError, match=f"at least one, got {len(low)} and {len(high)}"):
        Box(low, high)


def test_random_actions_are_uniform_in_the_unit_box() -> None:
    box = Box((-5.0, 0.0, 2.0), (5.0, 1.0, 3.0))
    rng = np.random.default_rng(0)
    actions = np.stack([box.random(rng) for _ in range(4000)])
    assert actions.shape == (4000, 3)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1
    # U(-1, 1): mean 0 and variance 1/3, within 5 standard errors; entries are independent.
    assert np.abs(actions.mean(0)).max() < 5 * np.sqrt(1 / 3 / 4000)
    assert np.abs(actions.var(0) - 1 / 3).max() < 5 * np.sqrt(4 / 45 / 4000)
    assert np.abs(np.corrcoef(actions.T) - np.eye(3)).max() < 5 / np.sqrt(4000)
    again, same = (box.random(np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(again, same)


def test_exploration_is_gaussian_and_clipped() -> None:
    box = Box((-1.0, -1.0), (1.0, 1.0))
    action = torch.tensor([[0.0, 0.9]]).expand(5000, 2)
    noisy = box.explore(action, 0.1, seeded(0))
    assert noisy.shape == action.shape
    noise = torch.randn(5000, 2, generator=seeded(0))
    assert torch.equal(noisy, (action + 0.1 * noise).clamp(-1, 1))
    assert noisy.max() == 1
    assert abs(noisy[:, 0].std().item() - 0.1) < 5 * 0.1 / np.sqrt(2 * 5000)
    assert torch.equal(box.explore(action, 0.0, seeded(0)), action)


def test_native_actions_are_in_the_units_of_the_actuators() -> None:
    box = Box((-2.0, 0.0, 10.0), (2.0, 1.0, 30.0))
    assert box.size == 3
    for action, native in (
        ([-1, -1, -1], [-2, 0, 10]),
        ([1, 1, 1], [2, 1, 30]),
        ([0, 0, 0], [0, 0.5, 20]),
        ([0.5, -0.5, 0.1], [1, 0.25, 21]),
        ([9, -9, np.inf], [2, 0, 30]),
    ):
        got = box.to_native(np.array(action, np.float32))
        np.testing.assert_allclose(got, native, rtol=1e-6)
        assert (got >= box.low).all()
        assert (got <= box.high).all()
    batch = box.to_native(np.zeros((4, 3), np.float32))
    assert batch.shape == (4, 3)


def test_the_planner_searches_the_unit_box() -> None:
    found = Box((-7.0, 3.0), (7.0, 4.0)).bounds(torch.device("cpu"))
    assert found.low.tolist() == [-1, -1]
    assert found.high.tolist() == [1, 1]
