"""The native recurrence of learning: states and gradients are those of autograd, step by step."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model_building import seeded
from planet_bayes.models import ModelConfig, Vector, WorldModel
from planet_bayes.models.kernels import native, native_filter, sequence
from planet_bayes.models.rssm import RSSM
from test_native import library as library  # the fixture

pytestmark = pytest.mark.skipif(not native.available(), reason="built without a compiler")


def problem(
    members: int = 2, batch: int = 5, steps: int = 4, actions: int = 3, **sizes: Any
) -> tuple[WorldModel, Tensor, Tensor, Tensor]:
    """Return a model, embeddings, actions and noise."""
    config = dataclasses.replace(ModelConfig(dense_units=5), num_members=members, **sizes)
    model = WorldModel({"sensors": Vector(5)}, actions, config, seeded(0))
    with torch.no_grad():  # biases that are all alike would hide a wrong one
        for name, bias in model.named_parameters():
            if name.endswith("bias"):
                bias.add_(torch.randn(bias.shape, generator=seeded(len(name))), alpha=0.3)
    embed = torch.randn(members, batch, steps, 5, generator=seeded(1)).requires_grad_()
    action = torch.randn(members, batch, steps, actions, generator=seeded(2))
    noise = torch.randn(steps, members, batch, config.stoch, generator=seeded(3))
    return model, embed, action, noise


def results(case: tuple[WorldModel, Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Return the filtered states, and the gradients of a function of all of them."""
    model, embed, action, noise = case
    seen = model.filter_sequences(embed, action, noise)
    states = [seen.deter, seen.stoch, seen.posterior.mean, seen.posterior.std]
    total = torch.zeros(())
    for number, state in enumerate(states):
        total = total + (state * torch.randn(state.shape, generator=seeded(number))).sum()
    total = total + seen.prior.mean.square().sum()
    weights = [weight for name, weight in model.named_parameters() if name.startswith("posterior.")]
    return [*states, *torch.autograd.grad(total, [embed, *weights])]


def plain(case: tuple[WorldModel, Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Return the same by `RSSM.observe_steps` and autograd."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence, "fast_path", lambda device: False)
        return results(case)


def check(case: tuple[WorldModel, Tensor, Tensor, Tensor]) -> None:
    for found, expected in zip(results(case), plain(case), strict=True):
        scale = expected.detach().abs().max().clamp(min=1).item()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("activation", native_filter.ACTIVATIONS)
@pytest.mark.parametrize("members", [1, 2, 5])
def test_states_and_gradients_are_autograds(library: str, activation: str, members: int) -> None:
    check(problem(members, activation=activation, deter=7, stoch=4, hidden=6))


@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (6, 2), (20, 32), (61, 3), (130, 2)])
def test_any_batch(library: str, batch: int, steps: int) -> None:
    check(problem(2, batch, steps, activation="elu", deter=20, stoch=9, hidden=17))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    def size(most: int) -> int:
        return data.draw(st.integers(1, most))

    case = problem(
        *(size(4), size(14), size(4), size(7)),
        deter=size(40),
        stoch=size(40),
        hidden=size(40),
        activation=data.draw(st.sampled_from(native_filter.ACTIVATIONS)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(native.VARIABLE, data.draw(st.sampled_from(native.available())))
        check(case)


def test_it_is_the_one_in_use_and_pytorch_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    forward = native_filter.forward

    def watched(*arguments: Any) -> Any:
        calls.append("native")
        return forward(*arguments)

    monkeypatch.setattr(native_filter, "forward", watched)
    case = problem(2, deter=7, stoch=4, hidden=6)
    found = results(case)
    assert calls == ["native"]
    monkeypatch.setenv(native.VARIABLE, "torch")
    for one, other in zip(found, results(case), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert calls == ["native"]


@pytest.mark.parametrize("wrong", ["steps", "members", "noise"])
def test_shapes_that_do_not_fit_never_reach_the_library(wrong: str) -> None:
    """PyTorch refuses them; the library would read beyond their end."""
    model, embed, action, noise = problem(2, deter=7, stoch=4, hidden=6)
    if wrong == "steps":
        noise = noise[:2]
    elif wrong == "members":
        action = action[:1].expand(3, -1, -1, -1)
    else:
        noise = noise[..., :3]
    with pytest.raises((RuntimeError, IndexError)):
        model.filter_sequences(embed, action, noise)


def test_actions_of_another_type_are_converted() -> None:
    model, embed, action, noise = problem(2, deter=7, stoch=4, hidden=6)
    found = model.filter_sequences(embed, action.double(), noise).stoch
    expected = model.filter_sequences(embed, action, noise).stoch
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_no_sequences_are_no_problem() -> None:
    model, embed, action, noise = problem(2, deter=7, stoch=4, hidden=6)
    with torch.no_grad():
        seen = model.filter_sequences(embed[:, :0], action[:, :0], noise[:, :, :0])
    assert seen.deter.shape == (2, 0, 4, 7)


def test_the_pass_backward_uses_the_library_of_the_pass_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, embed, action, noise = problem(2, deter=7, stoch=4, hidden=6)
    seen = model.filter_sequences(embed, action, noise)
    monkeypatch.setenv(native.VARIABLE, "torch")
    seen.stoch.sum().backward()
    assert embed.grad is not None


def test_the_number_of_threads_changes_no_bit(library: str) -> None:
    model, embed, action, noise = problem(3, 21, 5, deter=20, stoch=9, hidden=17)
    weights = model.weights()
    part = RSSM.embed_part(model.rssm, weights, embed.flatten(1, 2)).unflatten(1, (21, 5))
    parts = (part.transpose(1, 2), action.transpose(1, 2), noise.transpose(0, 1))
    kept, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(sequence.filter_sequence(model.rssm, weights, *parts))
    finally:
        torch.set_num_threads(kept)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_sequence_that_is_not_finite_spoils_no_other() -> None:
    model, embed, action, noise = problem(2, 7, 4, deter=20, stoch=9, hidden=17)
    sound = results((model, embed, action, noise))[:4]
    with torch.no_grad():
        embed[1, 3, 2] = float("nan")
    found = results((model, embed, action, noise))[:4]
    for before, after in zip(sound[1:], found[1:], strict=True):
        assert after[1, 3, 2:].isnan().all()
        keep = torch.ones_like(after, dtype=torch.bool)
        keep[1, 3, 2:] = False
        assert torch.equal(before[keep], after[keep])
