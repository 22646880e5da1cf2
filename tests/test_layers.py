"""Networks that all particles share: sizes, initial weights, and PyTorch's own layers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_comparing import assert_same, gradients
from model_building import IMAGE, fresh, seeded
from planet_bayes.models.activations import ACTIVATIONS, INPLACE, Activation, elu
from planet_bayes.models.layers import (
    IMAGE_SIZES,
    Deconv,
    glorot_,
    image_decoder,
    image_encoder,
    mlp,
    vector_encoder,
)


def test_smaller_images() -> None:
    encoder, embed = image_encoder(32, 32, "relu")
    assert embed == 4 * 32 * 2 * 2
    assert encoder(torch.zeros(2, 3, 32, 32)).shape == (2, embed)
    decoder = image_decoder(32, 10, 8, "relu")
    assert decoder(torch.zeros(2, 10)).shape == (2, 3, 32, 32)
    assert image_encoder(64, 5, "relu")[1] == 8 * 5 * 2 * 2
    assert IMAGE_SIZES == (32, 64)


def test_the_encoder_of_small_images_sees_all_of_them() -> None:
    """At 64×64 PlaNet's does not see the last two rows and columns, and that is left as it is."""
    for size, blind in ((32, []), (64, [62, 63])):
        encoder, _ = image_encoder(size, 4, "elu")
        glorot_(encoder, seeded(0))
        image = torch.randn(1, 3, size, size, generator=seeded(1), requires_grad=True)
        encoder(image).square().sum().backward()
        assert image.grad is not None
        felt = image.grad.abs().sum((0, 1))
        for axis in (0, 1):
            assert (felt.sum(axis) == 0).nonzero().flatten().tolist() == blind


def test_convolutions_start_as_planets_do() -> None:
    sense = fresh(1, IMAGE, image_depth=16).senses["camera"]
    checked = 0
    for module in sense.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            area = math.prod(module.kernel_size)
            limit = math.sqrt(6 / (area * (module.in_channels + module.out_channels)))
            assert 0.98 * limit <= module.weight.abs().max().item() <= limit
            assert module.bias is not None
            assert torch.all(module.bias == 0)
            checked += 1
    assert checked == 6


def test_dense_networks_have_the_layers_that_they_say() -> None:
    def units(network: nn.Module) -> list[tuple[int, int]]:
        linear = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
        return [(layer.in_features, layer.out_features) for layer in linear]

    assert units(mlp(4, 7, 2, 3, "elu")) == [(4, 7), (7, 7), (7, 3)]
    assert units(mlp(4, 7, 0, 3, "elu")) == [(4, 3)]
    assert units(vector_encoder(4, 7, 2, "elu")) == [(4, 7), (7, 7)]
    assert vector_encoder(4, 7, 2, "relu")(torch.randn(9, 4)).min() == 0  # it ends activated
    assert units(image_decoder(32, 9, 2, "elu", 5, 2)) == [(9, 5), (5, 5), (5, 32)]


# Transposed convolutions.


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "size"),
    [(6, 4, 5, 1), (5, 3, 6, 4), (5, 3, 8, 5), (5, 4, 2, 3), (5, 3, 5, 4), (4, 8, 6, 3)],
)
def test_a_deconvolution_is_pytorchs(inputs: int, outputs: int, kernel: int, size: int) -> None:
    torch.manual_seed(0)
    ours = Deconv(inputs, outputs, kernel).double()
    plain = nn.ConvTranspose2d(inputs, outputs, kernel, stride=2).double()
    plain.load_state_dict(ours.state_dict())
    images = torch.randn(3, inputs, size, size, dtype=torch.double, requires_grad=True)
    results = []
    for layer in (ours, plain):
        result = layer(images)
        weights = torch.randn(result.shape, generator=seeded(1)).double()
        results.append(
            [result, *gradients((result * weights).sum(), [images, *layer.parameters()])]
        )
    assert_same(*results)


@pytest.mark.parametrize("size", [32, 64])
def test_the_image_networks_are_pytorchs_layers(size: int) -> None:
    """In float32, as they are used; weights carry over by name, in PlaNet's shapes."""
    torch.manual_seed(0)
    decoder = image_decoder(size, 11, 4, "relu")
    layers: list[nn.Module] = []
    for layer in decoder:
        if isinstance(layer, Deconv):
            kernel = layer.kernel_size[0]
            layers.append(nn.ConvTranspose2d(layer.in_channels, layer.out_channels, kernel, 2))
        else:
            layers.append(nn.ReLU() if isinstance(layer, Activation) else layer)
    plain = nn.Sequential(*layers)
    plain.load_state_dict(decoder.state_dict())
    features = torch.randn(5, 11, requires_grad=True)
    target = torch.randn(5, 3, size, size)
    found = []
    for network in (decoder, plain):
        error = (network(features) - target).square().mean()
        found.append([error, *gradients(error, [features, *network.parameters()])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


# Activations.


@pytest.mark.parametrize("size", [10, 30_000])
def test_elu_is_pytorchs(size: int) -> None:
    inputs = torch.linspace(-30, 30, size).requires_grad_()
    for ours, theirs in zip(
        [elu(inputs), *gradients(elu(inputs).sum(), [inputs])],
        [F.elu(inputs), *gradients(F.elu(inputs).sum(), [inputs])],
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_in_place_are_the_same_functions(name: str) -> None:
    inputs = torch.linspace(-5, 5, 101)
    values = inputs.clone()
    assert INPLACE[name](values) is values
    torch.testing.assert_close(values, ACTIVATIONS[name](inputs), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(values, Activation(name)(inputs), rtol=1e-6, atol=1e-7)
