"""Images: preparation of raw frames, bits and dither, normalisation, weight in the objective."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model_building import (
    IMAGE,
    PLAIN,
    TINY,
    build,
    fresh,
    gradients,
    make_batch,
    seeded,
)
from planet_bayes.errors import ConfigError
from planet_bayes.models import Image
from planet_bayes.models.modalities.image import ImageNetwork, centred, quantised
from planet_bayes.models.modalities.panels import PANEL
from planet_bayes.types import Moments

FEATURES = TINY.deter + TINY.stoch


def make_network(size: int = 32, **changes: Any) -> ImageNetwork:
    return Image(size).network(dataclasses.replace(TINY, **changes), FEATURES, seeded(0))


# Preparation.


def frame(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def overlaps(size: int, into: int) -> NDArray[np.float64]:
    """Return the share ``[into, size]`` that each source pixel has in each target pixel."""
    scale = size / into
    shares = np.zeros((into, size))
    for target in range(into):
        for source in range(size):
            low, high = max(target * scale, source), min((target + 1) * scale, source + 1)
            shares[target, source] = max(0.0, high - low) / scale
    return shares


def area_average(image: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
    rows, columns = (overlaps(length, size) for length in image.shape[:2])
    halfway = np.einsum("ih,hwc->iwc", rows, image.astype(np.float64))
    return np.einsum("jw,iwc->ijc", columns, halfway)


def box_blur(image: NDArray[np.uint8], width: int) -> NDArray[np.float64]:
    """Return the mean over a window; at the border the outermost pixels are repeated."""
    half = width // 2
    padded = np.pad(image.astype(np.float64), ((half, half), (half, half), (0, 0)), mode="edge")
    result = np.zeros(image.shape)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            result[y, x] = padded[y : y + width, x : x + width].mean((0, 1))
    return result


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(64, 64, 32), (128, 128, 32), (48, 100, 32), (240, 320, 64), (65, 97, 64), (480, 640, 64)],
)
def test_larger_frames_are_averaged_by_area(height: int, width: int, size: int) -> None:
    raw = frame(height, width)
    got = Image(size).prepare(raw)
    assert got.shape == (size, size, 3)
    assert got.dtype == np.uint8
    # Rounding is to the nearest, with a margin for OpenCV's float32 sums.
    assert np.abs(got - area_average(raw, size)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("blur", [3, 5, 9])
def test_the_blur_is_a_box_with_repeated_borders(blur: int) -> None:
    raw = frame(32, 32)
    got = Image(32, blur).prepare(raw)
    assert got.dtype == np.uint8
    assert np.abs(got - box_blur(raw, blur)).max() <= 0.5 + 1e-3


def test_a_frame_is_resized_first_and_then_blurred() -> None:
    raw = frame(96, 160)
    both = Image(32, 5).prepare(raw)
    assert np.array_equal(both, Image(32, 5).prepare(Image(32).prepare(raw)))
    assert np.abs(both - box_blur(Image(32).prepare(raw), 5)).max() <= 0.5 + 1e-3


def test_a_frame_of_the_right_size_is_left_as_it_is() -> None:
    raw = frame(32, 32)
    assert np.array_equal(Image(32).prepare(raw), raw)
    assert np.array_equal(Image(32).prepare(raw[:, ::-1]), raw[:, ::-1])


@pytest.mark.parametrize(("size", "blur"), [(32, 1), (32, 5), (64, 1), (64, 5)])
def test_preparation_copies(size: int, blur: int) -> None:
    """Environments may draw all their frames into one buffer."""
    raw = frame(64, 64)
    kept = raw.copy()
    prepared = Image(size, blur).prepare(raw)
    assert np.array_equal(raw, kept)
    before = prepared.copy()
    raw[:] = 0
    assert np.array_equal(prepared, before)


def test_smaller_frames_are_enlarged() -> None:
    raw = np.full((10, 16, 3), 77, np.uint8)
    assert np.array_equal(Image(32, 5).prepare(raw), np.full((32, 32, 3), 77, np.uint8))


@pytest.mark.parametrize(
    "raw",
    [
        np.zeros((32, 32), np.uint8),
        np.zeros((32, 32, 1), np.uint8),
        np.zeros((32, 32, 4), np.uint8),
        np.zeros((3, 32, 32), np.uint8),
        np.zeros((1, 32, 32, 3), np.uint8),
        np.zeros((0, 32, 3), np.uint8),
        np.zeros((32, 32, 3), np.float32),
        np.zeros((32, 32, 3), np.int64),
        np.zeros((32, 32, 3), np.bool_),
        None,
        "a frame",
    ],
    ids=lambda raw: f"{raw.shape} {raw.dtype}" if isinstance(raw, np.ndarray) else repr(raw),
)
def test_what_is_not_an_rgb_image_is_refused(raw: Any) -> None:
    given = np.asarray(raw)
    with pytest.raises(ValueError, match=r"expected an RGB image, a uint8 array") as caught:
        Image(32).prepare(raw)
    assert str(given.shape) in str(caught.value)
    assert str(given.dtype) in str(caught.value)


@pytest.mark.parametrize("size", [0, 16, 48, 65, 128])
def test_sizes_without_a_network_are_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="must be 32 or 64"):
        Image(size)


@pytest.mark.parametrize("blur", [0, -1, 2, 4, 33])
def test_a_blur_must_be_odd_and_within_the_image(blur: int) -> None:
    with pytest.raises(ConfigError, match="blur must be an odd number of pixels from 1 to 31"):
        Image(32, blur)


def test_a_prepared_image_has_the_shape_and_type_that_it_says() -> None:
    for size in (32, 64):
        prepared = Image(size, 3).prepare(frame(50, 50))
        assert prepared.shape == Image(size).shape
        assert prepared.dtype == Image(size).dtype


def test_a_film_shows_the_last_image_and_its_reconstruction() -> None:
    seen, decoded = [frame(32, 32, 0), frame(32, 32, 1)], [frame(32, 32, 2), frame(32, 32, 3)]
    panels = Image(32).panels(list(seen), [value.astype(np.float32) for value in decoded])
    assert [panel.shape for panel in panels] == [(PANEL, PANEL, 3)] * 2
    step = PANEL // 32
    for panel, image in zip(panels, (seen[-1], decoded[-1]), strict=True):
        assert np.array_equal(panel[step // 2 :: step, step // 2 :: step], image)


# Bits and dither.


def test_images_are_cut_to_five_bits_and_dithered() -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(192).reshape(2, 128, 64, 3)
    kept = image.clone()
    seen = quantised(image, 5, seeded(0))
    assert torch.equal(image, kept)
    assert seen.shape == (2, 3, 128, 64)
    assert seen.dtype == torch.float32
    assert seen.min() >= -0.5
    assert seen.max() <= 0.5
    scaled = (seen.movedim(-3, -1).double() + 0.5) * 32
    level = scaled.floor()
    assert torch.equal(level, (image // 8).double())
    assert len(level.unique()) == 32
    dither = scaled - level
    # Uniform on [0, 1): mean ½, variance 1/12, within 5 standard errors; not the same twice.
    count = dither.numel()
    assert abs(dither.mean().item() - 0.5) < 5 * math.sqrt(1 / 12 / count)
    assert abs(dither.var().item() - 1 / 12) < 5 * math.sqrt(1 / 180 / count)
    assert not torch.equal(seen, quantised(image, 5, seeded(1)))
    assert torch.equal(seen, quantised(image, 5, seeded(0)))


@pytest.mark.parametrize("bits", [1, 7])
def test_bits_that_are_not_seen_are_noise(bits: int) -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(48).reshape(1, 64, 64, 3)
    scaled = (quantised(image, bits, seeded(0)).movedim(-3, -1).double() + 0.5) * 2**bits
    assert torch.equal(scaled.floor(), (image // 2 ** (8 - bits)).double())
    assert (scaled % 1).std() > 0.25


def shown(network: ImageNetwork, inputs: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Return what `reconstruct` makes of inputs that the decoder predicts exactly."""
    monkeypatch.setattr(network, "decode", lambda features: features)
    return network.reconstruct(inputs)


def test_with_all_eight_bits_there_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(48).reshape(1, 64, 64, 3)
    generator, network = seeded(0), make_network(64, image_bits=8)
    seen = network.inputs(image, generator)
    np.testing.assert_array_equal(
        seen.movedim(-3, -1).numpy(), (image.numpy().astype(np.float32) + 0.5) / 256 - 0.5
    )
    assert torch.equal(seen, centred(image.movedim(-1, -3).float()))
    assert torch.equal(generator.get_state(), seeded(0).get_state())
    assert (shown(network, seen, monkeypatch) - image.int()).abs().max() <= 1


def test_images_come_back_within_a_quantisation_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    image = torch.from_numpy(rng.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8))
    network = make_network(64)
    back = shown(network, network.inputs(image, seeded(0)), monkeypatch)
    assert back.shape == image.shape
    assert (back - image.int()).abs().max() <= 8
    extreme = torch.tensor([-9.0, -0.5, 0.5, 9.0]).reshape(4, 1, 1, 1).expand(4, 3, 1, 1)
    assert network.reconstruct(extreme)[:, 0, 0, 0].tolist() == [0, 0, 255, 255]


# Networks.


def test_the_decoders_last_layer_is_linear() -> None:
    """A ReLU at the end would cut half of the range off."""
    network = build(1, IMAGE, activation="relu")._senses()["camera"]
    decoded = network.decode(torch.randn(64, FEATURES, generator=seeded(1)))
    assert decoded.min() < 0 < decoded.max()
    assert network.encode(torch.randn(4, 3, 32, 32, generator=seeded(2))).min() == 0


def test_images_decoded_in_parts_give_the_same_loss_and_gradient() -> None:
    model, batch = build(2, IMAGE), make_batch(2, 2, 4, IMAGE)
    sense: Any = model.senses["camera"]
    found = []
    for size in (16, 15, 3):  # 2 members of 2 × 4 frames: at once, or in parts
        sense.decoder_chunk = size
        found.append(gradients(model, batch, PLAIN, seed=3))
    terms, whole = found[0]
    for again, parts in found[1:]:
        for name in terms:
            torch.testing.assert_close(terms[name], again[name])
        for name in whole:
            torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)


# Normalisation.


def test_scaled_images_have_mean_zero_and_unit_variance() -> None:
    """A pole before a sky: the networks see the pole, and reconstruction undoes the scaling."""
    rng = np.random.default_rng(0)
    images = np.broadcast_to(rng.integers(0, 256, (32, 32, 3), np.uint8), (200, 32, 32, 3)).copy()
    for image in images:
        image[:, rng.integers(10, 20)] = rng.integers(0, 256)
    network = make_network(normalise=True)
    mean, variance = images.mean(0), images.var(0)
    network.rescale(Moments(torch.from_numpy(mean), torch.from_numpy(images.std(0))))
    divisor = variance + 0.25 * variance.mean()
    std = np.sqrt(divisor * (variance / divisor).mean())
    inputs = network.inputs(torch.from_numpy(images), seeded(1))
    assert inputs.shape == (200, 3, 32, 32)
    moving, still = inputs[..., 10:20], inputs[..., 20:]
    # Of 32 levels: the rest of rounding is at most half a level, and the dither's is random.
    steps = 256 / 32 / std
    step = steps.max()
    assert moving.mean(0).abs().max() < step
    assert still.mean(0).abs().max() < step
    assert still.std(0).max() < step / 3
    # Rounding to a level and dithering each add about the variance of a uniform step.
    assert float(inputs.square().mean()) == pytest.approx(
        1 + 2 * np.square(steps).mean() / 12, rel=0.01
    )
    features = torch.randn(2, 5, FEATURES, generator=seeded(2))
    with torch.no_grad():
        decoded = network.decode(features).movedim(-3, -1).numpy()
        reconstructed = network.reconstruct(features).numpy()
    stored = decoded * std + mean
    expected = (stored + 0.5) / 256 * 255
    np.testing.assert_allclose(reconstructed, expected.clip(0, 255), atol=1e-3)
    assert ((expected > 0) & (expected < 255)).mean() > 0.5


@pytest.mark.parametrize("size", [32, 64])
def test_a_scaled_image_counts_as_thirty_sensors(size: int) -> None:
    """Whatever its size: decoded as its mean, it costs half of each one's variance."""
    modalities = {"camera": Image(size)}
    model, batch = fresh(2, modalities, normalise=True), make_batch(1, 2, 3, modalities)
    images = batch.observation["camera"].double().flatten(0, 2)
    images[:, :3] /= 100  # a part that hardly moves does not change what the whole counts
    stored = images.to(torch.uint8).reshape(batch.observation["camera"].shape)
    batch = dataclasses.replace(batch, observation={"camera": stored})
    images = stored.double().flatten(0, 2)
    sense: Any = model.senses["camera"]
    sense.rescale(Moments(images.mean(0), images.std(0, correction=0)))
    with torch.no_grad():
        for weight in sense.decoder.parameters():
            weight.zero_()
        terms = model.loss(batch, PLAIN, seeded(1))
    expected = PLAIN.observation_scale * 0.5 * 30
    assert terms["observation"].tolist() == pytest.approx([expected, expected], rel=0.01)


def test_dim_pixels_come_nearer_to_bright_ones_and_still_ones_stay_still() -> None:
    """The cart does not drown the pole, nor does a wall's flicker become a wall that moves."""
    network, std = make_network(normalise=True), torch.full((32, 32, 3), 0.01)
    std[:2], std[2:10] = 60.0, 20.0
    network.rescale(Moments(torch.zeros(32, 32, 3), std))
    seen = (std.movedim(-1, 0) / 256) / network.std
    assert seen.square().mean() == pytest.approx(1)
    bright, dim, still = (float(seen[:, row].mean()) for row in (0, 5, 20))
    assert 1 < bright / dim < 1.5
    assert dim / still > 500


def test_images_that_never_changed_are_left_at_their_size() -> None:
    network = make_network(normalise=True)
    network.rescale(Moments(torch.full((32, 32, 3), 7.0), torch.zeros(32, 32, 3)))
    assert (network.std == 1).all()
