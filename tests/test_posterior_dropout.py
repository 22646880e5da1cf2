"""MC dropout: masks over hidden units, one draw for each particle, held while it acts."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from model_building import ACTIONS, PLAIN, build, fresh, make_batch, random_belief, seeded, to_numpy
from planet_bayes.models import Dropout, Weights, WorldModel
from planet_bayes.models.posterior.dropout import dropout_mask

LAYERS = [field.name for field in dataclasses.fields(Weights)]
MASKED = [name for name in LAYERS if name != "input"]


def dropped(particles: int = 4, rate: float = 0.3, **changes: Any) -> WorldModel:
    return build(particles, posterior="dropout", dropout_rate=rate, **changes)


def posterior_of(model: WorldModel) -> Dropout:
    assert isinstance(model.posterior, Dropout)
    return model.posterior


def same(left: Weights, right: Weights) -> bool:
    return all(
        torch.equal(getattr(a, part), getattr(b, part))
        for name in LAYERS
        for a, b in [(getattr(left, name), getattr(right, name))]
        for part in ("weight", "bias")
    )


def test_the_weights_are_those_of_one_network_times_masks() -> None:
    model = dropped()
    network = posterior_of(model).network
    for name in LAYERS:
        layer = getattr(model.weights(), name)
        shared = network.get_submodule(name)
        weight, bias = (to_numpy(shared.get_parameter(part)) for part in ("weight", "bias"))
        for p in range(4):
            expected = weight[0]
            if name in MASKED:
                mask = to_numpy(posterior_of(model).get_buffer(f"mask_{name}"))[p, :, 0]
                assert set(np.unique(mask).round(5)) <= {0.0, round(1 / 0.7, 5)}
                expected = np.diag(mask) @ weight[0]
            np.testing.assert_allclose(to_numpy(layer.weight[p]), expected, rtol=1e-6)
            np.testing.assert_array_equal(to_numpy(layer.bias[p]), bias[0])
    assert "mask_input" not in dict(model.posterior.named_buffers())


def test_a_mask_drops_its_share_and_keeps_the_mean() -> None:
    """Of 10^6 entries the share that is dropped has a std of 4.6e-4: 5 std are allowed."""
    mask = dropout_mask((1000, 1000, 1), 0.3, seeded(0))
    assert float((mask == 0).float().mean()) == pytest.approx(0.3, abs=5 * 4.6e-4)
    assert float(mask.mean()) == pytest.approx(1.0, abs=5 * 4.6e-4 / 0.7)
    rows = (mask == 0).float().squeeze(-1)
    correlation = np.corrcoef(rows[0], rows[1])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(1000)  # particles draw on their own


def test_without_dropout_all_particles_are_the_network() -> None:
    assert torch.equal(dropout_mask((2, 3, 1), 0.0, seeded(0)), torch.ones(2, 3, 1))
    model = dropped(rate=0.0)
    network = posterior_of(model).network.weights()
    for name in LAYERS:
        expected = getattr(network, name).weight.expand(4, -1, -1)
        assert torch.equal(getattr(model.weights(), name).weight, expected)


def test_a_particle_is_one_function_and_another_particle_another() -> None:
    """Through a rollout, from call to call, and step by step or at once."""
    model = dropped(particles=3, deter=32, hidden=32)
    start = random_belief(model, 2, 1)
    start = dataclasses.replace(start, deter=start.deter[:1].repeat(3, 1, 1))
    start = dataclasses.replace(start, stoch=start.stoch[:1].repeat(3, 1, 1))
    actions = torch.rand(5, 2, ACTIONS, generator=seeded(2)) * 2 - 1
    with torch.no_grad():
        once, again = (model.rollout(start, actions, None) for _ in range(2))
        belief = start
        for step in range(5):
            belief = model.rssm.imagine_step(
                model.weights(), belief, actions[step].expand(3, -1, -1), None
            )
            torch.testing.assert_close(belief.features, once[step])
    assert torch.equal(once, again)
    for p, q in ((0, 1), (0, 2), (1, 2)):
        assert (once[:, p] - once[:, q]).abs().max() > 1e-2


def test_acting_masks_come_from_the_seed_and_no_update_moves_them() -> None:
    model, again, other = (fresh(3, posterior="dropout", seed=seed) for seed in (0, 0, 1))
    assert same(model.weights(), again.weights())
    assert not torch.equal(*(posterior_of(m).get_buffer("mask_gates") for m in (model, other)))
    before = model.weights()
    model.loss(make_batch(3, 2, 4), PLAIN, seeded(5))["total"].sum().backward()
    assert same(before, model.weights())
    assert same(before, copy.deepcopy(model).eval().weights())


def test_each_update_fits_fresh_particles() -> None:
    model = dropped()
    first, again, second = (model.fitted_weights(seeded(seed)) for seed in (1, 1, 2))
    assert same(first, again)
    for name in MASKED:
        assert not torch.equal(getattr(first, name).weight, getattr(second, name).weight)
        assert not torch.equal(getattr(first, name).weight, getattr(model.weights(), name).weight)
    assert model.num_fitted == model.num_particles == 4
    batch = make_batch(1, 2, 4)
    one, same_one, two = (model.loss(batch, PLAIN, seeded(seed))["total"] for seed in (1, 1, 2))
    assert torch.equal(one, same_one)
    assert not torch.equal(one, two)
    assert len(one.unique()) == 4


def test_the_network_gets_the_sum_of_the_particles_gradients() -> None:
    """Each of these is the gradient at the particle's masked weights, masked."""
    model = dropped(particles=2)
    weights = model.fitted_weights(seeded(1))
    loss = sum(getattr(weights, name).weight.square().sum() for name in LAYERS)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    for name in LAYERS:
        shared = posterior_of(model).network.get_submodule(name).get_parameter("weight")
        masked = to_numpy(getattr(weights, name).weight)
        mask = np.where(masked == 0, 0, 1) / (0.7 if name in MASKED else 1)
        assert shared.grad is not None
        expected = (2 * masked * mask).sum(0)
        np.testing.assert_allclose(to_numpy(shared.grad[0]), expected, rtol=1e-5, atol=1e-6)


def test_the_parameters_do_not_grow_with_the_particles() -> None:
    one, five = (sum(p.numel() for p in dropped(n).posterior.parameters()) for n in (1, 5))
    assert one == five == sum(p.numel() for p in build(1).posterior.parameters())
