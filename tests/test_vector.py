"""Vectors: selection of entries, angles, normalisation, and what is refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from model_building import TINY, seeded
from planet_bayes.errors import ConfigError
from planet_bayes.models import Vector
from planet_bayes.models.modalities.panels import PANEL
from planet_bayes.models.modalities.vector import VectorNetwork
from planet_bayes.types import Moments


def make_network(size: int, **changes: Any) -> VectorNetwork:
    return Vector(size).network(dataclasses.replace(TINY, **changes), 9, seeded(0))


RAW = np.array([0.5, -2.0, np.pi / 3, 7.0, -1.25])


@pytest.mark.parametrize(
    ("modality", "expected"),
    [
        (Vector(5), RAW),
        (Vector(5, entries=(3,)), RAW[[3]]),
        (Vector(5, entries=(4, 0, 3)), RAW[[4, 0, 3]]),
        (Vector(5, angles=(2,)), [0.5, -2.0, 0.5, np.sqrt(0.75), 7.0, -1.25]),
        (Vector(5, entries=(3, 2), angles=(2,)), [7.0, 0.5, np.sqrt(0.75)]),
        (
            Vector(5, entries=(2, 1), angles=(1, 2)),
            [0.5, np.sqrt(0.75), np.cos(-2.0), np.sin(-2.0)],
        ),
    ],
)
def test_entries_are_selected_and_angles_unrolled(modality: Vector, expected: Any) -> None:
    got = modality.prepare(RAW)
    assert got.dtype == modality.dtype == np.float32
    assert got.shape == modality.shape == (len(expected),)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_an_angle_is_the_same_after_a_turn() -> None:
    modality = Vector(2, angles=(1,))
    once, twice = (modality.prepare(np.array([3.0, angle])) for angle in (0.3, 0.3 + 2 * np.pi))
    np.testing.assert_allclose(once, twice, atol=1e-6)


@pytest.mark.parametrize(
    "raw",
    [
        [1, 2, 3],
        np.array([1, 2, 3], np.uint8),
        np.array([True, False, True]),
        np.ones(3, np.float16),
        (1.0, 2.0, 3.0),
    ],
)
def test_any_numbers_will_do(raw: Any) -> None:
    got = Vector(3).prepare(raw)
    assert got.dtype == np.float32
    assert got.tolist() == [float(value) for value in raw]


def test_preparation_copies() -> None:
    raw = np.ones(3, np.float32)
    prepared = Vector(3).prepare(raw)
    raw[:] = 5  # environments may use one buffer for all their observations
    assert prepared.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("raw", "got"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((1, 4)), r"shape \(1, 4\)"),
        (3.0, r"shape \(\)"),
        (np.zeros(4, np.complex64), "type complex64"),
        (["a", "b", "c", "d"], "type <U1"),
        (None, "type object"),
    ],
)
def test_another_size_or_type_is_refused(raw: Any, got: str) -> None:
    with pytest.raises(ValueError, match=f"expected a vector of 4 numbers, got .*{got}"):
        Vector(4).prepare(raw)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        Vector(2).prepare([0.0, value])
    assert Vector(2, entries=(0,)).prepare([0.0, value]).tolist() == [0]  # it is not seen


def test_a_number_that_overflows_float32_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"), np.errstate(over="ignore"):
        Vector(1).prepare([1e300])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "at least one entry"),
        ((3, (0, 3)), r"entries \[3\] are not in a vector of 3: choose from 0 to 2"),
        ((3, (-1,)), r"entries \[-1\] are not in"),
        ((3, (0, 1), (2,)), r"angles \(2,\) are not among the entries"),
        ((3, (), (3,)), r"angles \(3,\) are not among the entries"),
    ],
)
def test_impossible_selections_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Vector(*arguments)


def test_vectors_are_left_as_they_are() -> None:
    vector = torch.randn(2, 3, 4, generator=seeded(0))
    generator = seeded(1)
    assert torch.equal(make_network(4).inputs(vector, generator), vector)
    assert torch.equal(generator.get_state(), seeded(1).get_state())


def test_scales_of_what_never_moved_and_of_what_is_far_away() -> None:
    network = make_network(2, normalise=True)
    network.rescale(Moments(torch.tensor([5.0, 1.0]), torch.tensor([0.0, 2.0])))
    seen = network.inputs(torch.tensor([[5.5, 1e9], [5.0, -3.0]]), seeded(0))
    assert seen.tolist() == [[0.5, 10], [0, -2]]


def test_the_network_is_as_large_as_the_prepared_vector() -> None:
    modality = Vector(5, entries=(3, 2), angles=(2,))
    network = modality.network(TINY, 9, seeded(0))
    assert network.encode(torch.zeros(2, 3)).shape == (2, network.embed_size)
    assert network.decode(torch.zeros(2, 9)).shape == (2, 3)


def test_a_film_shows_one_strip_chart() -> None:
    seen = [np.array([t, -t], np.float32) for t in range(70)]
    decoded = [value + 0.5 for value in seen]
    for steps in (1, 2, 70):
        (panel,) = Vector(2).panels(seen[:steps], decoded[:steps])
        assert panel.shape == (PANEL, PANEL, 3)
        assert len(np.unique(panel.reshape(-1, 3), axis=0)) == 3  # background and two lines
