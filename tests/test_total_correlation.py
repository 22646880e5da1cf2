"""The total correlation of the stochastic state, against sums in NumPy and the closed form."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from model_building import EXACT, PLAIN, build, gradients, make_batch, seeded
from planet_bayes.models import Normal
from planet_bayes.models.losses import AGGREGATED_STATES, total_correlation

Array = np.ndarray


def by_sums(sample: Array, mean: Array, std: Array) -> float:
    """Return the estimate of one particle from states ``[K, S]``, one density at a time."""
    count, size = sample.shape
    total = 0.0
    for i in range(count):
        joint, each = 0.0, np.zeros(size)
        for j in range(count):
            density = stats.norm.pdf(sample[i], mean[j], std[j])
            joint += density.prod() / count
            each += density / count
        total += math.log(joint) - np.log(each).sum()
    return total / count


def states(particles: int, batch: int, steps: int, size: int) -> tuple[torch.Tensor, Normal]:
    rng = np.random.default_rng(0)
    mean = torch.from_numpy(rng.normal(size=(particles, batch, steps, size)))
    std = torch.from_numpy(rng.uniform(0.3, 1.0, mean.shape))
    return mean + std * torch.from_numpy(rng.normal(size=mean.shape)), Normal(mean, std)


@pytest.mark.parametrize("shared", [False, True])
def test_the_estimate_is_that_of_sums_over_real_entries(shared: bool) -> None:
    stoch, posterior = states(3, 4, 5, 2)
    mask = torch.ones(1 if shared else 3, 4, 5, dtype=torch.float64)
    mask[0, 1, 3:] = 0
    mask[-1, 2, 1:] = 0
    found = total_correlation(stoch, posterior, mask, seeded(0))
    for particle in range(3):
        real = mask[0 if shared else particle].bool().numpy()
        values = (stoch, posterior.mean, posterior.std)
        expected = by_sums(*(value[particle].numpy()[real] for value in values))
        np.testing.assert_allclose(found[particle].item(), expected, **EXACT)


def test_states_beyond_the_limit_are_picked_at_random_and_are_real() -> None:
    stoch, posterior = states(2, 10, 20, 3)
    mask = torch.zeros(1, 10, 20, dtype=torch.float64)
    mask[:, :8] = 1  # 160 real entries of 200; the others are not numbers
    assert mask.sum() > AGGREGATED_STATES
    for values in (stoch, posterior.mean, posterior.std):
        values[:, 8:] = float("nan")
    one, same, other = (
        total_correlation(stoch, posterior, mask, seeded(seed)) for seed in (1, 1, 2)
    )
    assert torch.isfinite(one).all()
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_it_is_that_of_correlated_normals(correlation: float) -> None:
    """Means with a correlation make one of -½ log(1 - ρ²), if the posteriors are narrow.

    The posteriors' own std adds to the variance and makes ρ smaller: 0.9 / 1.04.
    """
    rng = np.random.default_rng(1)
    covariance = [[1.0, correlation], [correlation, 1.0]]
    mean = torch.from_numpy(rng.multivariate_normal([0, 0], covariance, (1, 40, 50)))
    std = torch.full_like(mean, 0.2)
    stoch = mean + std * torch.from_numpy(rng.normal(size=mean.shape))
    found = total_correlation(stoch, Normal(mean, std), torch.ones(1, 40, 50), seeded(0), 2000)
    expected = -0.5 * math.log(1 - (correlation / 1.04) ** 2)
    assert found.item() == pytest.approx(expected, abs=0.06)


def test_descending_it_makes_dimensions_independent() -> None:
    rng = np.random.default_rng(2)
    mean = torch.from_numpy(rng.normal(size=(1, 10, 10, 1))).expand(-1, -1, -1, 2)
    noise = torch.from_numpy(rng.normal(size=mean.shape))
    mixing = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64, requires_grad=True)
    independent = torch.cat([mean[..., :1], torch.from_numpy(rng.normal(size=(1, 10, 10, 1)))], -1)
    for _ in range(200):
        center = independent @ (mixing / mixing.norm(dim=1, keepdim=True)).T
        std = torch.full_like(center, 0.2)
        loss = total_correlation(
            center + std * noise, Normal(center, std), torch.ones(1, 10, 10), seeded(0)
        ).sum()
        (gradient,) = torch.autograd.grad(loss, mixing)
        with torch.no_grad():
            mixing -= 0.1 * gradient
    rows = (mixing / mixing.norm(dim=1, keepdim=True)).detach()
    assert abs(float(rows[0] @ rows[1])) < 0.3  # 0.8 at first


def test_the_objective_has_it_with_its_weight_for_each_particle() -> None:
    model, batch = build(3), make_batch(3, 2, 4)
    plain, without = gradients(model, batch, PLAIN, seed=3)
    config = dataclasses.replace(PLAIN, total_correlation=0.7)
    terms, with_it = gradients(model, batch, config, seed=3)
    assert "total_correlation" not in plain
    assert terms["total_correlation"].shape == (3,)
    assert torch.allclose(terms["total"], plain["total"] + 0.7 * terms["total_correlation"])
    assert any(not torch.allclose(without[name], with_it[name], rtol=1e-3) for name in without)
    for name in plain.keys() - {"total"}:
        assert torch.equal(plain[name], terms[name]), name
