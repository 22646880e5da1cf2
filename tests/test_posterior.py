"""The ensemble: members are independent, and together they are the particles of the planner."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from model_building import (
    ACTIONS,
    BOTH,
    IMAGE,
    PLAIN,
    VECTOR,
    Modalities,
    build,
    doubled,
    fresh,
    gradients,
    kinds,
    make_batch,
    map_batch,
    random_belief,
    record,
    repeat_first_member,
    seeded,
    size_of,
)
from planet_bayes.models import LossConfig, ModelConfig, WorldModel
from planet_bayes.planner import Bounds, PlannerConfig, PlanResult, plan
from planet_bayes.types import Belief, SequenceBatch
from planning import built_in


class SameNoise:
    """Imagines with one draw of latent noise that all members share."""

    def __init__(self, model: WorldModel) -> None:
        self.model, self.num_particles = model, model.num_particles

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        batch, num, horizon, dims = actions.shape
        stoch = self.model.config.stoch
        noise = torch.randn(horizon, 1, batch * num, stoch, generator=generator)
        features = self.model.rollout(
            Belief(state.deter.repeat_interleave(num, 1), state.stoch.repeat_interleave(num, 1)),
            actions.reshape(batch * num, horizon, dims).transpose(0, 1),
            noise.expand(-1, self.num_particles, -1, -1),
        )
        rewards = self.model.head("reward").predict(features)
        return rewards.unflatten(2, (batch, num)).permute(2, 3, 1, 0)


def plan_with(model: Any, state: Belief, candidates: int, **settings: Any) -> PlanResult:
    config = PlannerConfig(horizon=4, num_trajectories=candidates * model.num_particles, **settings)
    batch_size = state.deter.shape[1]
    bounds = Bounds.symmetric(ACTIONS)
    with torch.no_grad():
        return plan(model, state, bounds, config, seeded(5), batch_size=batch_size)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("execute", ["sample", "mean"])
def test_five_identical_members_plan_as_one(sampled: bool, execute: str) -> None:
    """The mean of five equal returns is that return up to rounding (1e-7), and threshold
    weights depend on the order of returns only: the same candidates are elites, so the plans
    agree far below the tolerance unless two returns at the threshold tie within rounding."""
    one = build(1, latent_noise="mean")
    five = repeat_first_member(one, VECTOR, 5)
    belief = random_belief(one, 2, 3)
    results = []
    for model in (one, five):
        copies = model.num_particles
        state = Belief(belief.deter.repeat(copies, 1, 1), belief.stoch.repeat(copies, 1, 1))
        imaginer = SameNoise(model) if sampled else model
        results.append(
            plan_with(
                imaginer,
                state,
                60,
                num_iterations=4,
                num_components=2,
                elite_fraction=0.2,
                execute=execute,
            )
        )
    single, several = results
    assert several.diagnostics.returns.shape == (2, 60, 5)
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(several.action, single.action, **close)
    left, right = built_in(several.proposal), built_in(single.proposal)
    torch.testing.assert_close(left.mean, right.mean, **close)
    torch.testing.assert_close(left.std, right.std, **close)
    torch.testing.assert_close(left.log_weights, right.log_weights, **close)
    torch.testing.assert_close(
        several.diagnostics.returns, single.diagnostics.returns.expand(-1, -1, 5), **close
    )
    assert single.diagnostics.returns.std() > 1e-2  # the model does tell candidates apart


def test_different_members_plan_differently_than_the_first_alone() -> None:
    several = build(5, latent_noise="mean")
    one = repeat_first_member(several, VECTOR, 1)
    belief = random_belief(several, 1, 3)
    first = Belief(belief.deter[:1], belief.stoch[:1])
    means = [
        built_in(plan_with(model, state, 60, num_iterations=3, num_components=1).proposal).mean
        for model, state in ((several, belief), (one, first))
    ]
    assert (means[0] - means[1]).abs().max() > 0.05


@kinds
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_a_members_gradient_depends_on_its_own_minibatch_only(
    modalities: Modalities, fraction: float
) -> None:
    model = build(3, modalities)
    config = LossConfig(free_nats=0.0, kl_balance=0.8, decode_fraction=fraction)
    batch, other = (make_batch(3, 2, 4, modalities, seed) for seed in (5, 6))
    other.mask[1, 0, 2:] = 0

    def with_second(tensor: Tensor, from_other: Tensor) -> Tensor:
        changed = tensor.clone()
        changed[1] = from_other[1]
        return changed

    terms, before = gradients(model, batch, config, seed=7)
    changed = map_batch(with_second, batch, other)
    new_terms, after = gradients(model, changed, config, seed=7)
    for name in terms:
        assert torch.equal(terms[name][[0, 2]], new_terms[name][[0, 2]])
        assert terms[name][1] != new_terms[name][1]
    own = [name for name in before if name.startswith("posterior.")]
    assert len(own) == 14
    for name in own:
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]]), name
        assert not torch.equal(before[name][1], after[name][1]), name
        assert before[name].abs().amax((1, 2)).min() > 0, name


def alone_on(
    monkeypatch: pytest.MonkeyPatch, model: WorldModel, batch: SequenceBatch, noise: Tensor, e: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return loss and gradient of member ``e`` as a model of its own, with the same noise."""
    alone = fresh(1).double()
    state = model.state_dict()
    alone.load_state_dict(
        {n: t[e : e + 1] if n.startswith("posterior.") else t for n, t in state.items()}
    )
    filter_sequences = alone.filter_sequences
    monkeypatch.setattr(
        alone,
        "filter_sequences",
        lambda embed, action, _, weights: filter_sequences(
            embed, action, noise[:, e : e + 1], weights
        ),
    )
    return gradients(alone, map_batch(lambda x: x[e : e + 1], batch), PLAIN, seed=7)


def test_a_member_learns_in_the_ensemble_what_it_would_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the shared networks get the sum of what the members would give them."""
    model = build(3).double()
    batch = doubled(make_batch(3, 2, 4))
    calls = record(monkeypatch, model, "filter_sequences")
    terms, together = gradients(model, batch, PLAIN, seed=7)
    noise = calls[0][2]
    total = {name: torch.zeros_like(g) for name, g in together.items()}
    for e in range(3):
        own_terms, own = alone_on(monkeypatch, model, batch, noise, e)
        torch.testing.assert_close(own_terms["total"][0], terms["total"][e], rtol=1e-12, atol=0)
        for name, gradient in own.items():
            if name.startswith("posterior."):
                torch.testing.assert_close(gradient[0], together[name][e], rtol=1e-9, atol=1e-12)
            else:
                total[name] += gradient
    for name, gradient in total.items():
        if not name.startswith("posterior."):
            torch.testing.assert_close(gradient, together[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("modalities", [IMAGE, BOTH], ids=["image", "image and vector"])
def test_only_the_dynamics_are_an_ensemble(modalities: Modalities) -> None:
    one, five = build(1, modalities), build(5, modalities)
    assert size_of(five.posterior) == 5 * size_of(one.posterior)
    for name in modalities:
        assert size_of(five.senses[name]) == size_of(one.senses[name])
    assert size_of(five.heads) == size_of(one.heads)


PLANET_FANS = {
    # input and output units of PlaNet's layers; mean and std are two layers side by side
    "input": (20 + 6, 40, 40),
    "gates": (40 + 50, 2 * 50, 2 * 50),
    "candidate": (40 + 50, 50, 50),
    "prior_hidden": (50, 40, 40),
    "prior_out": (40, 20, 2 * 20),
    "posterior_hidden": (50 + 60, 40, 40),
    "posterior_out": (40, 20, 2 * 20),
}


@pytest.mark.parametrize("name", PLANET_FANS)
def test_layers_start_as_planets_do(name: str) -> None:
    """Glorot uniform: ± √(6 / (in + out)). Of over 1,000 draws from U(-1, 1) the largest is
    below 0.99 once in 20,000 times or less."""
    config = ModelConfig(num_members=4, deter=50, stoch=20, hidden=40, dense_units=60)
    model = WorldModel(VECTOR, 6, config, seeded(0))
    inputs, outputs, width = PLANET_FANS[name]
    layer = getattr(model.weights(), name)
    assert layer.weight.shape == (4, inputs, width)
    limit = math.sqrt(6 / (inputs + outputs))
    assert layer.weight.numel() > 1000
    assert layer.weight.abs().max().item() <= limit
    assert layer.weight.abs().max().item() >= 0.99 * limit
    assert abs(layer.weight.mean().item()) < 5 * limit / math.sqrt(3 * layer.weight.numel())
    assert torch.all(layer.bias == (1.0 if name == "gates" else 0.0))
    assert not torch.equal(layer.weight[0], layer.weight[1])  # members start apart


def test_the_weights_are_the_parameters() -> None:
    """No copies: the gradient reaches each parameter, and the optimiser changes the weights."""
    model = build(3)
    weights = [
        tensor
        for field in dataclasses.fields(model.weights())
        for layer in [getattr(model.weights(), field.name)]
        for tensor in (layer.weight, layer.bias)
    ]
    assert len(weights) == 14
    parameters = {id(parameter) for parameter in model.posterior.parameters()}
    assert {id(weight) for weight in weights} == parameters
