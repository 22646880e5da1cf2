"""What is computed in a faster way is the same as in the plain way, gradients included."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import model_building
from kernel_comparing import assert_same, gradients
from model_building import ACTIONS, Modalities, kinds, make_batch, seeded
from planet_bayes.models import LossConfig, ModelConfig, Vector, WorldModel
from planet_bayes.models.kernels import imagination, sequence
from planet_bayes.models.kernels.frames import chunk_size, decoding_error, encode_frames, parts
from planet_bayes.models.layers import image_decoder, image_encoder
from planet_bayes.models.losses import squared_error
from planet_bayes.models.modalities import image
from planet_bayes.types import Belief

TINY = ModelConfig(
    deter=7, stoch=4, hidden=6, image_depth=2, dense_units=5, reward_units=8, reward_layers=2
)


def build(members: int, **changes: Any) -> WorldModel:
    config = dataclasses.replace(TINY, num_members=members, **changes)
    model = WorldModel({"sensors": Vector(5)}, ACTIONS, config, seeded(0)).double()
    with torch.no_grad():  # biases that are all alike would hide a wrong one
        for number, weight in enumerate(model.parameters()):
            weight.add_(torch.randn(weight.shape, generator=seeded(number)).double(), alpha=0.1)
    return model


# Frames, a few at a time.


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_encoding_in_parts_changes_nothing(size: int) -> None:
    torch.manual_seed(0)
    encoder = image_encoder(32, 2, "elu")[0].double()
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
    decoder = image_decoder(32, 11, 2, "elu").double()
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
        decoder = image_decoder(32, 11, 2, "elu").double()
        for parameter in list(decoder.parameters())[frozen]:
            parameter.requires_grad_(False)
        features = torch.randn(1, 4, 11, dtype=torch.double, requires_grad=True)
        frames = torch.randn(1, 4, 3, 32, 32, dtype=torch.double)
        index, weight = torch.arange(4)[None], torch.ones(1, 4, dtype=torch.double)
        ours = decoding_error(decoder, features, frames, index, weight, 3)
        plain = squared_error(frames, decoder(features[0])[None], 3).sum(-1)
        inputs = [features, *(w for w in decoder.parameters() if w.requires_grad)]
        assert_same(gradients(ours.sum(), inputs), gradients(plain.sum(), inputs))


def test_encoding_keeps_little_for_the_backward_pass() -> None:
    """The first layer's output is more than half of all; it is computed again."""
    encoder = image_encoder(64, 8, "relu")[0]
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


# The recurrence.


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize(("members", "steps"), [(1, 1), (3, 6)])
def test_the_gradient_by_hand_is_autograds(activation: str, members: int, steps: int) -> None:
    model = build(members, activation=activation)
    batch = 4
    embed = torch.randn(members, batch, steps, 5, dtype=torch.double, requires_grad=True)
    action = torch.randn(members, batch, steps, ACTIONS, dtype=torch.double)
    noise = torch.randn(steps, members, batch, 4, dtype=torch.double)
    weights = model.weights()
    part = model.rssm.embed_part(weights, embed.flatten(1, 2)).unflatten(1, (batch, steps))
    plain = model.rssm.observe_steps(weights, part, action, noise)
    seen = model.filter_sequences(embed, action, noise)
    ours = [seen.deter, seen.stoch, seen.posterior.mean, seen.posterior.std]
    inputs = [embed, *model.posterior.parameters()]
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
    seen = model.filter_sequences(embed, action, torch.zeros(4, 2, 3, 4, dtype=torch.double))
    (gradient,) = gradients(seen.deter.sum(), [action])
    assert (gradient.abs() > 0).all()


def test_activations_without_a_gradient_by_hand_go_step_by_step() -> None:
    model = build(2, activation="silu")
    batch = model_building.doubled(make_batch(2, 3, 4, {"sensors": Vector(5)}))
    total = model.loss(batch, LossConfig(), seeded(0))["total"].sum()
    assert all(bool(g.isfinite().all()) for g in gradients(total, list(model.parameters())))


# Imagination.


def both_ways(model: WorldModel, num: int) -> tuple[Tensor, Tensor]:
    """Return rewards on the planner's path, and by the plain rollout."""
    dtype = model.weights().input.weight.dtype
    belief = Belief(
        deter=torch.randn(model.num_particles, 2, 7, generator=seeded(1)).tanh().to(dtype),
        stoch=torch.randn(model.num_particles, 2, 4, generator=seeded(2)).to(dtype),
    )
    actions = torch.randn(2, num, 5, ACTIONS, generator=seeded(3)).to(dtype)
    plain = model.imagine(belief, actions, seeded(4)).detach()
    with torch.no_grad():
        return model.imagine(belief, actions, seeded(4)), plain


@pytest.mark.parametrize("activation", ["relu", "elu", "silu"])
@pytest.mark.parametrize("rows", [1, 4, 9, 256])
@pytest.mark.parametrize("noise", ["independent", "shared", "mean"])
def test_imagination_is_the_plain_rollout(
    monkeypatch: pytest.MonkeyPatch, activation: str, rows: int, noise: str
) -> None:
    monkeypatch.setattr(imagination, "ROWS_PER_THREAD", rows)
    model = build(3, activation=activation, latent_noise=noise)
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


# All kernels together.


@kinds
@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("normalise", [False, True])
def test_kernels_change_neither_the_objective_nor_the_plan(
    monkeypatch: pytest.MonkeyPatch, modalities: Modalities, activation: str, normalise: bool
) -> None:
    """The whole model with them and without them, as on a GPU."""
    model = model_building.build(2, modalities, activation=activation, normalise=normalise)
    for sense in model.senses.values():
        sense.decoder_chunk = 3  # type: ignore[assignment]  # decode images in parts
    batch = make_batch(2, 2, 4, modalities)
    belief = model_building.random_belief(model, 2, 3)
    actions = torch.randn(2, 5, 4, ACTIONS, generator=seeded(4))

    def results() -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        found = model_building.gradients(model, batch, LossConfig(), seed=3)
        with torch.inference_mode():
            return *found, model.imagine(belief, actions, seeded(5))

    terms, gradient, rewards = results()
    for module in (image, imagination, sequence):
        monkeypatch.setattr(module, "fast_path", lambda device: False)
    again, plain, expected = results()
    for name in terms:
        torch.testing.assert_close(terms[name], again[name], rtol=1e-5, atol=1e-5)
    for name in gradient:
        torch.testing.assert_close(gradient[name], plain[name], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(rewards, expected, rtol=1e-4, atol=1e-5)


def test_frames_are_processed_in_nearly_equal_parts() -> None:
    for total, size in ((10, 3), (9, 3), (2, 5), (1, 1)):
        slices = list(parts(total, size))
        covered = [index for part in slices for index in range(part.start, part.stop)]
        assert covered == list(range(total))
        lengths = [part.stop - part.start for part in slices]
        assert max(lengths) <= size
        assert max(lengths) - min(lengths) <= 1
    assert chunk_size(64, 32) == 3_200_000 // (32 * 32 * 32)
    assert chunk_size(64, 10**9) == 1
