"""Weights and resampling: by hand, by property, and against Kalman's evidence."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from linear_gaussian import kalman, oscillator, simulate
from planet_bayes.models import smc
from planet_bayes.types import Belief

INF, NAN = float("inf"), float("nan")
quick = settings(max_examples=60, deadline=None)
weights_of = st.lists(st.floats(-30, 3), min_size=1, max_size=12)


def logs(*weights: float) -> Tensor:
    return torch.tensor(weights, dtype=torch.float64).log()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_update_by_hand() -> None:
    weights, evidence = smc.update(logs(0.2, 0.3, 0.5), logs(1.0, 2.0, 0.0))
    assert weights.exp().tolist() == pytest.approx([0.25, 0.75, 0.0])
    assert math.exp(evidence) == pytest.approx(0.8)


def test_effective_number_by_hand() -> None:
    assert float(smc.effective_number(logs(1, 1, 1, 1))) == pytest.approx(4)
    assert float(smc.effective_number(logs(1, 0, 0, 0))) == pytest.approx(1)
    assert float(smc.effective_number(logs(3, 1))) == pytest.approx(1 / (9 / 16 + 1 / 16))


@quick
@given(values=weights_of, offset=st.floats(-1e4, 1e4))
def test_only_differences_of_log_weights_matter(values: list[float], offset: float) -> None:
    given_weights = torch.tensor(values, dtype=torch.float64)
    normalised = smc.normalised(given_weights + offset)
    assert float(normalised.exp().sum()) == pytest.approx(1)
    expected = np.exp(values) / np.exp(values).sum()
    np.testing.assert_allclose(normalised.exp().numpy(), expected, rtol=1e-8, atol=1e-12)
    assert 1 - 1e-9 <= float(smc.effective_number(given_weights)) <= len(values) + 1e-9


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_has_no_weight(bad: float) -> None:
    weights, evidence = smc.update(logs(0.5, 0.25, 0.25), torch.tensor([bad, 0.0, 0.0]).double())
    assert weights.exp().tolist() == pytest.approx([0, 0.5, 0.5])
    assert math.exp(evidence) == pytest.approx(0.5)
    weights, evidence = smc.update(logs(0.5, 0.5), torch.tensor([bad, bad]).double())
    assert weights.exp().tolist() == pytest.approx([0.5, 0.5])
    assert evidence == -INF


@quick
@given(values=weights_of, uniform=st.floats(0, 1, exclude_max=True))
@example(values=[0.0, 0.0, 0.0], uniform=1 - 2**-52)  # (2 + uniform) / 3 rounds to 1
def test_systematic_takes_each_particle_as_often_as_its_weight_says(
    values: list[float], uniform: float
) -> None:
    weights = torch.tensor(values, dtype=torch.float64)
    index = smc.systematic(weights, torch.tensor(uniform, dtype=torch.float64))
    assert index.shape == weights.shape
    assert (index.diff() >= 0).all()
    counts = torch.bincount(index, minlength=len(values)).double()
    share = len(values) * weights.softmax(-1)
    assert ((counts - share).abs() < 1 + 1e-9).all()


def test_systematic_by_hand_and_without_bias() -> None:
    weights = logs(0.0, 0.45, 0.0, 0.55, 0.0)
    taken = smc.systematic(weights, torch.tensor(0.2))  # at 0.04, 0.24, 0.44, 0.64, 0.84
    assert taken.tolist() == [1, 1, 1, 3, 3]
    uniform = (torch.arange(1000) + 0.5) / 1000
    many = smc.systematic(weights.expand(1000, 5), uniform)
    counts = torch.nn.functional.one_hot(many, 5).sum(1).double().mean(0)
    np.testing.assert_allclose(counts.numpy(), [0, 2.25, 0, 2.75, 0], atol=2e-3)
    extreme = torch.tensor([0.0, 1 - 2**-24])  # the ends of what torch.rand returns
    ends = smc.systematic(weights.expand(2, 5), extreme)
    assert set(ends.flatten().tolist()) == {1, 3}


def test_draw_follows_the_weights() -> None:
    uniform = (torch.arange(1000) + 0.5) / 1000
    found = smc.draw(logs(0.3, 0.0, 0.7).expand(1000, 3), uniform)
    assert torch.bincount(found, minlength=3).tolist() == [300, 0, 700]


def test_only_sets_of_low_effective_number_are_resampled_and_keep_their_total() -> None:
    weights = torch.stack([logs(0.1, 0.1, 0.1, 0.1), logs(0.57, 0.01, 0.01, 0.01)])
    index, after = smc.resampled(weights, torch.tensor([0.5, 0.5]))
    assert index.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert torch.equal(after[0], weights[0])
    np.testing.assert_allclose(after[1].exp().numpy(), [0.15] * 4)
    # A set without weight is left alone.
    index, after = smc.resampled(torch.full((1, 3), -INF), torch.zeros(1))
    assert index.tolist() == [[0, 1, 2]]
    assert (after == -INF).all()


def bootstrap_evidence(model: Any, data: Any, repeats: int, particles: int) -> Tensor:
    """Return independent estimates ``[repeats]`` of log p(o_{≤T})."""
    generator, total = seeded(1), torch.zeros(repeats, dtype=torch.float64)
    belief = model.initial(repeats * particles)
    weights = torch.zeros(repeats, particles, dtype=torch.float64) - math.log(particles)
    for action, value in zip(*data, strict=True):
        index, weights = smc.resampled(weights, torch.rand(repeats, generator=generator))
        rows = (index + particles * torch.arange(repeats)[:, None]).flatten()
        moved = model.evolve(Belief(belief.deter, belief.stoch[:, rows]), torch.tensor(action))
        noise = torch.randn(moved.shape, generator=generator, dtype=torch.float64)
        belief = Belief(moved, model.prior(moved).sample(noise))
        likelihood = model.log_likelihood(belief, torch.full((repeats,), value))
        likelihood = likelihood[0] - 0.5 * math.log(2 * math.pi)
        weights, evidence = smc.update(weights, likelihood.unflatten(0, (repeats, particles)))
        total = total + evidence
    return total


def test_the_evidence_is_unbiased_and_near_kalmans() -> None:
    """p̂ / p has the mean 1; tolerance: 5 standard errors of 2000 estimates."""
    model = oscillator(0.4)
    data = simulate(model, 8, seed=0)
    _, _, exact = kalman(model, 0, *data)
    ratio = (bootstrap_evidence(model, data, 2000, 30) - exact).exp()
    error = float(ratio.std() / math.sqrt(len(ratio)))
    assert 0 < error < 0.03
    assert abs(float(ratio.mean()) - 1) < 5 * error
    many = bootstrap_evidence(model, data, 1, 20_000)
    assert abs(float(many) - exact) < 0.1
