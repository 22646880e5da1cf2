"""What is computed in a faster way is the same as in the plain way, gradients included."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planet_bayes.config import PRESETS
from planet_bayes.errors import ConfigError
from planet_bayes.models import LossConfig, ModelConfig, WorldModel, imagination, networks, rssm
from planet_bayes.models.frames import decoding_error, encode_frames
from planet_bayes.models.losses import squared_error
from planet_bayes.models.networks import Deconv
from planet_bayes.training.learner import Learner
from planet_bayes.types import Belief, SequenceBatch

ACTIONS = 2
TINY = ModelConfig(
    deter=7, stoch=4, hidden=6, image_depth=2, vector_units=5, reward_units=8, reward_layers=2
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(members: int, shape: tuple[int, ...] = (5,), **changes: object) -> WorldModel:
    settings = {**TINY.__dict__, **changes}
    model = WorldModel(shape, ACTIONS, members, ModelConfig(**settings), seeded(0)).double()
    with torch.no_grad():  # biases that are all alike would hide a wrong one
        for number, weight in enumerate(model.parameters()):
            weight.add_(torch.randn(weight.shape, generator=seeded(number)).double(), alpha=0.1)
    return model


def gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def assert_same(left: list[Tensor], right: list[Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


# --- Transposed convolutions --------------------------------------------------------------


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
    decoder = networks.image_decoder((size, size, 3), 11, 4, "relu")
    layers: list[nn.Module] = []
    for layer in decoder:
        if isinstance(layer, Deconv):
            kernel = layer.kernel_size[0]
            layers.append(nn.ConvTranspose2d(layer.in_channels, layer.out_channels, kernel, 2))
        else:
            layers.append(nn.ReLU() if isinstance(layer, networks._Activation) else layer)
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


# --- Frames, a few at a time --------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_encoding_in_parts_changes_nothing(size: int) -> None:
    torch.manual_seed(0)
    encoder = networks.image_encoder((32, 32, 3), 2, "elu")[0].double()
    frames = torch.randn(7, 3, 32, 32, dtype=torch.double)
    found = []
    for embed in (encode_frames(encoder, frames, size), encoder(frames)):
        found.append([embed, *gradients(embed.square().sum(), list(encoder.parameters()))])
    assert_same(*found)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("size", [2, 5])
def test_decoding_in_parts_changes_nothing(groups: int, size: int) -> None:
    """Nor does it if members' errors are weighed apart, though they share the decoder."""
    torch.manual_seed(0)
    members, total, chosen = 3, 9, 5
    decoder = networks.image_decoder((32, 32, 3), 11, 2, "elu").double()
    features = torch.randn(members, chosen, 11, dtype=torch.double, requires_grad=True)
    frames = torch.randn(groups, total, 3, 32, 32, dtype=torch.double)
    index = torch.stack([torch.randperm(total)[:chosen] for _ in range(members)])
    weight = torch.rand(members, chosen, dtype=torch.double)
    scale = torch.tensor([1.0, -2.0, 0.5], dtype=torch.double)

    row = torch.arange(members).unsqueeze(-1)
    target = frames[row if groups > 1 else 0, index]
    decoded = decoder(features.flatten(0, 1)).unflatten(0, (members, chosen))
    plain = (squared_error(target, decoded, 3) * weight).sum(-1)
    ours = decoding_error(decoder, features, frames, index, weight, size)
    inputs = [features, *decoder.parameters()]
    assert_same(
        [ours, *gradients((ours * scale).sum(), inputs)],
        [plain, *gradients((plain * scale).sum(), inputs)],
    )
    with torch.no_grad():
        without = decoding_error(decoder, features, frames, index, weight, size)
    torch.testing.assert_close(without, plain)


def test_a_frozen_decoder_still_passes_gradients_on() -> None:
    torch.manual_seed(0)
    for frozen in (slice(None), slice(0, 1), slice(-1, None)):
        decoder = networks.image_decoder((32, 32, 3), 11, 2, "elu").double()
        for weight in list(decoder.parameters())[frozen]:
            weight.requires_grad_(False)
        features = torch.randn(1, 4, 11, dtype=torch.double, requires_grad=True)
        frames = torch.randn(1, 4, 3, 32, 32, dtype=torch.double)
        index, weight = torch.arange(4)[None], torch.ones(1, 4, dtype=torch.double)
        ours = decoding_error(decoder, features, frames, index, weight, 3)
        plain = squared_error(frames, decoder(features[0])[None], 3).sum(-1)
        inputs = [features, *(w for w in decoder.parameters() if w.requires_grad)]
        assert_same(gradients(ours.sum(), inputs), gradients(plain.sum(), inputs))


def test_encoding_keeps_little_for_the_backward_pass() -> None:
    """The first layer's output is more than half of all; it is computed again."""
    encoder = networks.image_encoder((64, 64, 3), 8, "relu")[0]
    frames = torch.randn(6, 3, 64, 64)
    kept = []
    for encode in (lambda: encode_frames(encoder, frames, 3), lambda: encoder(frames)):
        found: dict[int, int] = {}

        def note(tensor: Tensor, found: dict[int, int] = found) -> Tensor:
            if tensor.ndim == 4 and tensor.shape[0] in (3, 6) and tensor.shape[1] > 3:  # outputs
                found[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            result = encode()
        kept.append(sum(found.values()))
        del result
    ours, plain = kept
    assert ours < 0.5 * plain


# --- The recurrence -----------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize(("members", "steps"), [(1, 1), (3, 6)])
def test_the_gradient_by_hand_is_autograds(activation: str, members: int, steps: int) -> None:
    model = build(members, activation=activation)
    batch = 4
    embed = torch.randn(members, batch, steps, 5, dtype=torch.double, requires_grad=True)
    action = torch.randn(members, batch, steps, ACTIONS, dtype=torch.double)
    noise = torch.randn(steps, members, batch, 4, dtype=torch.double)
    part = model.rssm.embed_part(embed.flatten(1, 2)).unflatten(1, (batch, steps))
    plain = model._observe_steps(part, action, noise)
    seen = model.observe(embed, action, noise)
    ours = [seen.deter, seen.stoch, seen.posterior.mean, seen.posterior.std]
    inputs = [embed, *model.rssm.parameters()]
    found = []
    for values in (ours, plain):
        weighed = [
            (value * torch.randn(value.shape, generator=seeded(n)).double()).sum()
            for n, value in enumerate(values)
        ]
        found.append([*values, *gradients(torch.stack(weighed).sum(), inputs)])
        for one in weighed:  # also when only one of the outputs is used
            found[-1] += gradients(one, inputs)
    assert_same(*found)


def test_actions_that_want_a_gradient_get_it() -> None:
    model = build(2, activation="elu")
    embed = torch.randn(2, 3, 4, 5, dtype=torch.double)
    action = torch.randn(2, 3, 4, ACTIONS, dtype=torch.double, requires_grad=True)
    seen = model.observe(embed, action, torch.zeros(4, 2, 3, 4, dtype=torch.double))
    (gradient,) = gradients(seen.deter.sum(), [action])
    assert (gradient.abs() > 0).all()


def test_activations_without_a_gradient_by_hand_go_step_by_step() -> None:
    model = build(2, activation="silu")
    batch = SequenceBatch(
        observation=torch.randn(2, 3, 4, 5).double(),
        action=torch.randn(2, 3, 4, ACTIONS).double(),
        reward=torch.randn(2, 3, 4).double(),
        mask=torch.ones(2, 3, 4).double(),
    )
    total = model.loss(batch, LossConfig(), seeded(0))["total"].sum()
    assert all(bool(g.isfinite().all()) for g in gradients(total, list(model.parameters())))


@pytest.mark.parametrize("size", [10, 30_000])
def test_elu_is_pytorchs(size: int) -> None:
    inputs = torch.linspace(-30, 30, size).requires_grad_()
    for ours, theirs in zip(
        [rssm.elu(inputs), *gradients(rssm.elu(inputs).sum(), [inputs])],
        [F.elu(inputs), *gradients(F.elu(inputs).sum(), [inputs])],
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


# --- Imagination --------------------------------------------------------------------------


def both_ways(model: WorldModel, num: int) -> tuple[Tensor, Tensor]:
    """Rewards as the planner has them, and by the plain rollout."""
    dtype = model.rssm.input.weight.dtype
    belief = Belief(
        deter=torch.randn(model.members, 2, 7, generator=seeded(1)).tanh().to(dtype),
        stoch=torch.randn(model.members, 2, 4, generator=seeded(2)).to(dtype),
    )
    actions = torch.randn(2, num, 5, ACTIONS, generator=seeded(3)).to(dtype)
    plain = model.imagine(belief, actions, seeded(4)).detach()
    with torch.no_grad():
        return model.imagine(belief, actions, seeded(4)), plain


@pytest.mark.parametrize("activation", ["relu", "elu", "silu"])
@pytest.mark.parametrize("rows", [1, 4, 9, 256])
@pytest.mark.parametrize("noise", ["independent", "mean"])
def test_imagination_is_the_plain_rollout(
    monkeypatch: pytest.MonkeyPatch, activation: str, rows: int, noise: str
) -> None:
    monkeypatch.setattr(imagination, "ROWS", rows)
    samples = 1 if noise == "mean" else 2
    model = build(3, activation=activation, latent_noise=noise, latent_samples=samples)
    fast, plain = both_ways(model, 5)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-12)


def test_imagination_follows_the_weights() -> None:
    model = build(2)
    before, _ = both_ways(model, 5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    after, plain = both_ways(model, 5)
    torch.testing.assert_close(after, plain, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(after, before)


def test_imagination_in_parts_is_one_for_every_thread_count() -> None:
    """Rows are independent: how many go together changes no more than the rounding."""
    model = build(2).float()
    kept = torch.get_num_threads()
    results: list[Tensor] = []
    run: Callable[[], Tensor] = lambda: both_ways(model, 300)[0]  # noqa: E731
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(run())
    finally:
        torch.set_num_threads(kept)
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


# --- For GPUs, as far as a CPU can tell -----------------------------------------------------


def small_batch() -> SequenceBatch:
    return SequenceBatch(
        observation=torch.randn(2, 3, 4, 5, generator=seeded(1)),
        action=torch.randn(2, 3, 4, ACTIONS, generator=seeded(2)),
        reward=torch.randn(2, 3, 4, generator=seeded(3)),
        mask=torch.ones(2, 3, 4),
    )


def test_the_objective_in_mixed_precision_is_nearly_the_same() -> None:
    model = build(2, activation="silu").float()  # step by step, as on a GPU
    exact = model.loss(small_batch(), LossConfig(), seeded(0))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.loss(small_batch(), LossConfig(), seeded(0))
    for name, value in exact.items():
        assert mixed[name].dtype == torch.float32
        torch.testing.assert_close(mixed[name], value, rtol=0.05, atol=0.05)
    weights = list(model.parameters())
    for a, b in zip(
        gradients(mixed["total"].sum(), weights),
        gradients(exact["total"].sum(), weights),
        strict=True,
    ):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.1 * b.norm() + 1e-3


def test_small_changes_of_the_state_survive_mixed_precision() -> None:
    """The GRU's candidate is near 0 at first, where tanh through a short sigmoid would be 0."""
    model = build(1, activation="silu").float()
    with torch.no_grad():
        model.rssm.candidate.weight.mul_(1e-3)
        model.rssm.candidate.bias.mul_(1e-3)
    belief = Belief(torch.zeros(1, 3, 7), torch.randn(1, 3, 4, generator=seeded(0)))
    action = torch.randn(1, 3, ACTIONS, generator=seeded(1))
    exact = model.rssm.evolve(belief, action)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.rssm.evolve(belief, action)
    assert (mixed - exact).norm() < 0.02 * exact.norm()


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # PyTorch's own doing
def test_compiled_steps_are_the_same() -> None:
    model = build(2, activation="silu").float()
    plain = model.loss(small_batch(), LossConfig(), seeded(0))["total"]
    model.rssm.compile_steps("eager")
    assert not [name for name, _ in model.named_parameters() if "_orig_mod" in name]
    compiled = model.loss(small_batch(), LossConfig(), seeded(0))["total"]
    torch.testing.assert_close(plain, compiled)


@pytest.mark.parametrize("option", ["mixed_precision", "compile"])
def test_what_is_for_gpus_is_refused_on_a_cpu(option: str) -> None:
    config = dataclasses.replace(
        PRESETS["quick"], train=dataclasses.replace(PRESETS["quick"].train, **{option: True})
    )
    with pytest.raises(ConfigError, match=f"train.{option} is for GPUs"):
        Learner(build(1), config)
