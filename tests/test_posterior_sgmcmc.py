"""SG-MCMC: the update rule, the distribution that it samples, and the snapshots."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model_building import PLAIN, build, fresh, make_batch, seeded, to_numpy
from planet_bayes.config import Config, LearnConfig
from planet_bayes.models import ModelConfig, Snapshots, WorldModel
from planet_bayes.models.posterior.sgmcmc import GaussianPrior
from planet_bayes.rng import torch_stream
from planet_bayes.training.learner import Learner
from planet_bayes.training.sgmcmc import CyclicalSGHMC, Phase, phase
from tiny_run import filled_replay

FLAT = GaussianPrior(0.0, 1e6)


def sampler(
    priors: dict[nn.Parameter, GaussianPrior],
    rate: float = 0.01,
    cycle: int = 8,
    temperature: float = 1.0,
    seed: int = 0,
) -> CyclicalSGHMC:
    return CyclicalSGHMC(priors, rate, cycle, temperature, seed, {})


# --- the schedule


def test_the_step_size_is_a_cosine_and_noise_comes_in_the_second_half() -> None:
    """Zhang et al. (2020), Eq. 1: α_0 / 2 (cos(π mod(k - 1, C) / C) + 1), k from 1."""
    found = [phase(number, 4) for number in range(8)]
    expected = [math.cos(math.pi * (k % 4) / 4) / 2 + 0.5 for k in range(8)]
    assert [one.step_scale for one in found] == pytest.approx(expected)
    assert [one.samples for one in found] == [False, False, True, True] * 2
    assert [one.ends for one in found] == [False, False, False, True] * 2


def test_the_shortest_cycle_explores_once_and_samples_once() -> None:
    assert phase(0, 2) == Phase(1.0, False, False)
    last = phase(5, 2)
    assert last.step_scale == pytest.approx(0.5)
    assert (last.samples, last.ends) == (True, True)


# --- the update rule


def reference(
    start: np.ndarray,
    gradients: list[np.ndarray],
    noise: list[np.ndarray],
    sizes: list[int],
    prior: GaussianPrior,
    rate: float,
    cycle: int,
    temperature: float,
) -> np.ndarray:
    """Return the parameters after each update, from the equations, in float64."""
    theta, count, path = start.copy(), 0, []
    velocity, square = np.zeros_like(start), np.zeros_like(start)
    for number, (gradient, xi, size) in enumerate(zip(gradients, noise, sizes, strict=True)):
        fraction = (number % cycle) / cycle
        eta = rate * 0.5 * (math.cos(math.pi * fraction) + 1)
        potential = gradient + (theta - prior.mean) / prior.std**2 / size
        if fraction < 0.5:
            count, square = count + 1, 0.999 * square + 0.001 * potential**2
        metric = 1 / (np.sqrt(square / (1 - 0.999**count)) + 1e-4)
        kick = -math.sqrt(eta) * metric * potential
        if fraction >= 0.5:
            kick = kick + np.sqrt(2 * temperature * metric / size) * xi
        velocity = 0.9 * velocity + 0.1 * kick
        theta = theta + math.sqrt(eta) * velocity
        path.append(theta)
    return np.stack(path)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_updates_follow_the_equations(temperature: float) -> None:
    rng, prior = np.random.default_rng(0), GaussianPrior(0.5, 0.3)
    start, gradients = rng.normal(size=(3, 4)), list(rng.normal(size=(20, 3, 4)))
    sizes = [50 + 10 * (number // 5) for number in range(20)]
    parameter = nn.Parameter(torch.from_numpy(start.astype(np.float32)).double())
    made = sampler({parameter: prior}, 0.05, 8, temperature, seed=7)
    noise = [
        torch.randn(3, 4, generator=torch_stream(7, "sgmcmc", number)).double().numpy()
        for number in range(20)
    ]
    expected = reference(
        start.astype(np.float32).astype(np.float64), gradients, noise, sizes, prior, 0.05, 8,
        temperature,
    )  # fmt: skip
    for number in range(20):
        parameter.grad = torch.from_numpy(gradients[number])
        assert made.step(number, sizes[number]) == phase(number, 8)
        np.testing.assert_allclose(to_numpy(parameter), expected[number], rtol=1e-6, atol=1e-9)


def test_noise_is_a_function_of_seed_and_number() -> None:
    def after(seed: int, first: int) -> Tensor:
        parameter = nn.Parameter(torch.zeros(3))
        made = sampler({parameter: FLAT}, seed=seed)
        for number in (0, first):
            parameter.grad = torch.ones(3)
            made.step(number, 10)
        return parameter.detach()

    assert torch.equal(after(0, 5), after(0, 5))
    assert not torch.equal(after(0, 5), after(1, 5))
    assert not torch.equal(after(0, 5), after(0, 13))  # the same place in the next cycle
    assert torch.equal(after(0, 3), after(1, 3))  # exploring needs none


def test_two_parameters_get_different_noise() -> None:
    left, right = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    made = sampler({left: FLAT, right: FLAT})
    for number in (0, 5):
        left.grad, right.grad = torch.ones(3), torch.ones(3)
        made.step(number, 10)
    assert not torch.equal(left, right)


# --- the distribution


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_cycle_ends_in_a_sample_of_a_gaussian_posterior(temperature: float) -> None:
    """Bayesian linear regression, with the exact gradient, in 4,000 independent chains.

    The posterior is N(m, T A⁻¹) with A = XᵀX / σ² + 1 / s² and m = A⁻¹ (Xᵀy / σ² + μ / s²). The
    tolerance is 4 standard errors of 4,000 independent samples.
    """
    rng = np.random.default_rng(1)
    chains, size, noise_std, prior = 4000, 40, 0.5, GaussianPrior(0.3, 0.8)
    inputs = rng.normal(size=(size, 2)) @ np.array([[1.0, 0.5], [0.0, 0.6]])
    targets = inputs @ np.array([0.7, -1.1]) + noise_std * rng.normal(size=size)
    square, product = inputs.T @ inputs / noise_std**2, inputs.T @ targets / noise_std**2
    precision = square + np.eye(2) / prior.std**2
    mean = np.linalg.solve(precision, product + prior.mean / prior.std**2)
    covariance = temperature * np.linalg.inv(precision)

    theta = nn.Parameter(torch.zeros(chains, 2, dtype=torch.double))
    made = sampler({theta: prior}, rate=0.02, cycle=1000, temperature=temperature, seed=3)
    left, right = torch.from_numpy(square / size), torch.from_numpy(product / size)
    for number in range(1000):
        theta.grad = theta.detach() @ left - right  # of Σ (y - x θ)² / (2 σ² size)
        made.step(number, size)
    found, std = to_numpy(theta), np.sqrt(np.asarray(covariance).diagonal())
    assert np.abs((found.mean(0) - mean) / std).max() < 4 / np.sqrt(chains)
    assert np.abs(found.std(0) / std - 1).max() < 4 / np.sqrt(2 * chains)
    expected = covariance[0, 1] / std.prod()
    correlation = (found - found.mean(0)).prod(1).mean() / found.std(0).prod()
    error = correlation - expected
    assert abs(expected) > 0.5
    assert abs(error) < 4 * (1 - expected**2) / np.sqrt(chains)


# --- snapshots


def chain_of(model: WorldModel) -> Snapshots:
    assert isinstance(model.posterior, Snapshots)
    return model.posterior


def set_chain(model: WorldModel, value: float) -> None:
    with torch.no_grad():
        for parameter in chain_of(model).chain.parameters():
            parameter.fill_(value)


def kept(model: WorldModel) -> list[float]:
    """Return each snapshot's value, which all of its weights have."""
    weights = vars(model.weights()).values()
    values = torch.cat([part.flatten(1) for layer in weights for part in vars(layer).values()], 1)
    assert torch.equal(values, values[:, :1].expand_as(values))
    return values[:, 0].tolist()


def test_snapshots_follow_the_chain_at_first_and_rotate_then() -> None:
    model = fresh(3, posterior="sgmcmc")
    chain = chain_of(model)
    for name, layer in vars(model.weights()).items():
        first = chain.chain.get_submodule(name).get_parameter("weight")
        assert torch.equal(layer.weight, first.expand(3, -1, -1))
    expected = [
        (False, [0, 0, 0]),
        (False, [1, 1, 1]),
        (True, [2, 2, 2]),
        (False, [2, 2, 2]),
        (True, [2, 4, 2]),
        (True, [2, 4, 5]),
        (True, [6, 4, 5]),
        (False, [6, 4, 5]),
        (True, [6, 8, 5]),
    ]
    for number, (ended, values) in enumerate(expected):
        set_chain(model, float(number))
        chain.keep(ended)
        assert kept(model) == values
    assert int(chain.taken) == 5


def test_updates_fit_the_chain_and_the_agent_acts_with_snapshots() -> None:
    model = build(3, posterior="sgmcmc")
    chain = chain_of(model)
    assert (model.num_particles, model.num_fitted) == (3, 1)
    terms = model.loss(make_batch(1, 2, 4), PLAIN, seeded(0))
    assert terms["total"].shape == (1,)
    terms["total"].sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in chain.chain.parameters())
    set_chain(model, 7.0)
    chain.taken += 1
    chain.keep(cycle_ended=False)
    assert not any((layer.weight == 7).any() for layer in vars(model.weights()).values())
    assert not any(layer.weight.requires_grad for layer in vars(model.weights()).values())
    assert model.initial(2).deter.shape[0] == 3


def test_priors_have_the_initial_scale() -> None:
    """Glorot's uniform distribution has the variance 2 / (inputs + outputs)."""
    posterior = chain_of(fresh(2, posterior="sgmcmc"))
    found = posterior.priors()
    gates = posterior.chain.get_submodule("gates")
    std = math.sqrt(2 / (5 + 6 + 2 * 6))
    for part, mean in (("weight", 0.0), ("bias", 1.0)):
        prior = found[gates.get_parameter(part)]
        assert (prior.mean, prior.std) == (mean, pytest.approx(std))
    assert len(found) == 14


# --- the learner


def learner(tmp_path: Path, **learn: Any) -> tuple[Learner, Any]:
    model = ModelConfig(num_members=3, posterior="sgmcmc")
    settings = LearnConfig(batch_size=4, sequence_length=5, cycle_updates=4, **learn)
    config = Config(model=model, learn=settings, loss=PLAIN)
    return Learner(fresh(3, posterior="sgmcmc"), config), filled_replay(tmp_path, 2)


@pytest.mark.parametrize(
    ("sharing", "lead"), [("own", (1, 4)), ("shared", (1, 4)), ("split", (1, 4))]
)
def test_the_chain_gets_one_whole_batch(
    tmp_path: Path, sharing: str, lead: tuple[int, int]
) -> None:
    made, replay = learner(tmp_path, batch_sharing=sharing)
    assert made.sample(replay, 0).reward.shape == (*lead, 5)


def test_adam_moves_the_shared_networks_and_sghmc_the_chain(tmp_path: Path) -> None:
    made, replay = learner(tmp_path)
    chain = {id(p) for p in chain_of(made.model).chain.parameters()}
    assert {id(p) for p in made.sampler.priors} == chain
    assert {id(p) for p in made.optimiser.parameters} == {
        id(p) for p in made.model.parameters() if id(p) not in chain
    }
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    made.update(replay, 0)
    for name, parameter in made.model.named_parameters():
        assert not torch.equal(parameter, before[name]), name
        assert parameter in made.optimiser.state  # so that checkpoints hold its moments


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_the_acting_model_has_the_snapshots(tmp_path: Path, decay: float) -> None:
    """They are not averaged: an average of samples is none."""
    made, replay = learner(tmp_path, ema_decay=decay)
    for number in range(10):
        made.update(replay, number)
    learned, acting = (chain_of(model) for model in (made.model, made.acting_model))
    assert int(acting.taken) == 2
    for mine, theirs in zip(learned.buffers(), acting.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    gates = made.acting_model.weights().gates.weight
    assert not torch.equal(gates[0], gates[1])


def test_the_noise_falls_with_the_number_of_data() -> None:
    """Its std is proportional to 1 / √N."""

    def spread(size: int) -> float:
        parameter = nn.Parameter(torch.zeros(20_000))
        made = sampler({parameter: FLAT})
        for number in (0, 5):
            parameter.grad = torch.ones(20_000)
            made.step(number, size)
        return float(parameter.detach().std())

    assert spread(100) / spread(10_000) == pytest.approx(10.0, rel=1e-3)
