"""Weighted beliefs: against Kalman's filter, against NumPy, and in the units of the ELBO."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import reference_model as ref
from linear_gaussian import LinearGaussian, kalman, oscillator, scalar, simulate, smoothing
from model_building import (
    ACTIONS,
    EXACT,
    PLAIN,
    Modalities,
    build,
    cells,
    dense_layers,
    kinds,
    make_batch,
    random_values,
    seeded,
    to_numpy,
)
from planet_bayes.models import (
    BeliefFilter,
    ImportanceFilter,
    LatentModel,
    Normal,
    ParticleFilter,
    Particles,
)
from planet_bayes.models.weighted_filter import log_density

STEPS = 6


def run(filters: list[BeliefFilter], data: Any, batch: int = 1, seed: int = 0) -> list[Particles]:
    """Return the particles after each step. Every problem of the batch sees the same data."""
    generator, particles = seeded(seed), filters[0].initial(batch)
    found = []
    for one, action, value in zip(filters, *data, strict=True):
        actions = torch.tensor(action).expand(batch, -1)
        seen = torch.full((batch,), value, dtype=torch.float64)
        particles = one.update(particles, actions, seen, generator)
        found.append(particles)
    return found


def moments(stoch: Tensor, weights: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the covariance of weighted states ``[L, D]``."""
    states, shares = stoch.numpy(), weights.numpy() / weights.numpy().sum()
    mean = shares @ states
    return mean, (shares[:, None] * (states - mean)).T @ (states - mean)


def assert_near_kalman(model: LinearGaussian, data: Any, found: Any, effective: float) -> None:
    """Tolerance: 5 standard errors of ``effective`` independent samples."""
    mean, covariance, _ = kalman(model, 0, *data)
    scale = np.sqrt(np.diag(covariance))
    assert (np.abs(found[0] - mean) < 5 * scale / math.sqrt(effective)).all()
    bound = 5 * math.sqrt(2 / effective) * np.outer(scale, scale)
    assert (np.abs(found[1] - covariance) < bound).all()


# --- the particle filter


def test_the_particle_filter_approaches_kalmans_for_each_member() -> None:
    """20 000 latents; resampling makes them dependent: a quarter of the effective number counts."""
    both = oscillator(0.4, 0.9)
    data = simulate(both, STEPS, seed=0)
    last = run([ParticleFilter(both, 20_000)] * STEPS, data)[-1]
    for member, angle in enumerate((0.4, 0.9)):
        weights = last.log_weights[0, member].exp()
        effective = float(weights.sum().square() / weights.square().sum())
        found = moments(last.belief.stoch[member], weights)
        assert_near_kalman(oscillator(angle), data, found, effective / 4)
    evidence = np.array([kalman(both, member, *data)[2] for member in range(2)])
    exact = np.exp(evidence - np.logaddexp.reduce(evidence))
    assert 0.05 < exact[1] < 0.95  # else the next line would show little
    np.testing.assert_allclose(last.member_weights[0].numpy(), exact, atol=0.03)


def test_the_particle_filter_plans_from_latents_drawn_by_weight() -> None:
    """The batch is 4000 independent filters of 20 latents; each gives one start."""
    model = oscillator(0.4)
    data = simulate(model, STEPS, seed=1)
    last = run([ParticleFilter(model, 20)] * STEPS, data, batch=4000)[-1]
    assert last.start.stoch.shape == (1, 4000, 2)
    mean, covariance, _ = kalman(model, 0, *data)
    error = np.sqrt(np.diag(covariance) / 4000)
    # Twenty latents leave a bias of the order of std / 20.
    assert (np.abs(last.start.stoch[0].mean(0).numpy() - mean) < 5 * error + error * 3).all()
    ratio = last.start.stoch[0].var(0).numpy() / np.diag(covariance)
    assert (np.abs(ratio - 1) < 0.15).all()
    rows = last.belief.stoch[0].unflatten(0, (4000, 20))
    assert (rows == last.start.stoch[0].unsqueeze(1)).all(-1).any(1).all()


def test_latents_stay_with_their_member_and_problem() -> None:
    """With a noise of almost nothing each latent is its mean: a mixed one would stand out."""
    sharp = dataclasses.replace(scalar(0.9, -0.5), std=torch.full((1,), 1e-9).double())
    one = ParticleFilter(sharp, 5)
    particles = dataclasses.replace(
        one.initial(3),
        log_weights=torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]).double().log().repeat(3, 2, 1),
    )
    values = torch.arange(30, dtype=torch.float64).view(2, 15, 1)
    particles = dataclasses.replace(
        particles, belief=dataclasses.replace(particles.belief, stoch=values)
    )
    assert (particles.log_weights.softmax(-1).square().sum(-1) > 2 / 5).all()  # below half
    after = one.update(particles, torch.zeros(3, 1).double(), torch.zeros(3).double(), seeded(0))
    for member, factor in enumerate((0.9, -0.5)):
        for problem in range(3):
            own = values[member, 5 * problem : 5 * problem + 5, 0] * factor
            got = after.belief.stoch[member, 5 * problem : 5 * problem + 5, 0]
            distance = (got[:, None] - own[None]).abs()
            assert (distance.amin(1) < 1e-6).all()
            assert int((distance[:, 0] < 1e-6).sum()) == 3  # of weight 0.6, of five
    # All problems are of the same total, and so are the members before the likelihood.
    np.testing.assert_allclose(after.log_weights.exp().sum((1, 2)).numpy(), 1)


# --- importance weights


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_posterior_as_q_gives_equal_weights(seed: int) -> None:
    """Each path's weight is the evidence itself, with no spread at all."""
    same = scalar(*[0.8] * 50)
    data = simulate(same, STEPS, seed)
    steps = run([ImportanceFilter(one) for one in smoothing(same, *data)], data)
    assert float(steps[2].member_weights.std()) > 1e-3  # before the last observation they differ
    np.testing.assert_allclose(steps[-1].member_weights.numpy(), np.full((1, 50), 0.02), rtol=1e-9)
    total = sum((one.log_ratio + one.log_likelihood for one in steps), torch.zeros(()).double())
    constant = -0.5 * STEPS * math.log(2 * math.pi)
    exact = kalman(same, 0, *data)[2]
    np.testing.assert_allclose((total + constant).numpy(), np.full((1, 50, 1), exact), rtol=1e-9)
    assert float(steps[-1].effective_number) == pytest.approx(50)


def test_with_the_exact_q_the_weights_are_the_posterior_over_members() -> None:
    members = scalar(0.8, -0.3, 1.2)
    data = simulate(members, STEPS, 3)
    last = run([ImportanceFilter(one) for one in smoothing(members, *data)], data)[-1]
    evidence = np.array([kalman(members, member, *data)[2] for member in range(3)])
    exact = np.exp(evidence - np.logaddexp.reduce(evidence))
    np.testing.assert_allclose(last.member_weights[0].numpy(), exact, rtol=1e-9)


def test_importance_weights_correct_a_wrong_q() -> None:
    """q is too wide and its mean is off by 0.2; 20 000 members of the same parameters."""

    def proposal(deter: Tensor, seen: Tensor) -> Normal:
        mean = deter + 0.2
        return Normal(mean, torch.full_like(mean, 0.8))

    same = dataclasses.replace(scalar(0.8), proposal=proposal)
    data = simulate(same, 4, 5)
    many = dataclasses.replace(same, transition=same.transition.expand(20_000, 1, 1))
    last = run([ImportanceFilter(many)] * 4, data)[-1]
    weights, states = last.member_weights[0], last.belief.stoch[:, 0]
    assert_near_kalman(same, data, moments(states, weights), float(last.effective_number))
    plain = moments(states, torch.ones_like(weights))[0]
    mean, covariance, _ = kalman(same, 0, *data)
    assert abs(plain - mean)[0] > 0.3 * math.sqrt(covariance[0, 0])  # without weights it is wrong


def test_log_density_is_the_gaussians() -> None:
    rng = np.random.default_rng(0)
    mean, std, values = (
        rng.normal(size=(3, 4)),
        rng.uniform(0.1, 2, (3, 4)),
        rng.normal(size=(3, 4)),
    )
    expected = np.log(np.exp(-0.5 * ((values - mean) / std) ** 2) / std).sum(-1)
    got = log_density(Normal(torch.tensor(mean), torch.tensor(std)), torch.tensor(values))
    np.testing.assert_allclose(got.numpy(), expected)


# --- world models


def test_importance_weights_of_a_world_model_equal_numpys() -> None:
    model, scale = build(3).double(), 2.5
    one, rng = ImportanceFilter(LatentModel(model, scale)), np.random.default_rng(0)
    seen, actions = rng.normal(size=(2, 2, 4)), rng.uniform(-1, 1, (2, 2, ACTIONS))
    particles, noise = one.initial(2), []
    for step in range(2):
        noise.append(to_numpy(torch.randn(3, 2, 3, generator=seeded(step))))
        observation = {"sensors": torch.tensor(seen[step])}
        with torch.no_grad():
            given = torch.tensor(actions[step])
            particles = one.update(particles, given, observation, seeded(step))
    sense: Any = model.senses["sensors"]
    encoder, decoder = dense_layers(sense.encoder), dense_layers(sense.decoder)
    for b in range(2):
        log_weights = np.zeros(3)
        for e, cell in enumerate(cells(model)):
            h, s = np.zeros(6), np.zeros(3)
            for step in range(2):
                h = ref.evolve(cell, h, s, actions[step, b])
                embed = ref.nonlinear("elu", ref.multilayer(seen[step, b], encoder, "elu"))
                q, p = ref.posterior(cell, h, embed), ref.prior(cell, h)
                s = q.mean + q.std * noise[step][e, b]
                decoded = ref.multilayer(np.concatenate([h, s]), decoder, "elu")
                log_weights[e] -= scale * 0.5 * ((seen[step, b] - decoded) ** 2).sum()
                for density, sign in ((p, 1), (q, -1)):
                    distance = (s - density.mean) / density.std
                    log_weights[e] -= sign * (0.5 * distance**2 + np.log(density.std)).sum()
        log_weights -= np.logaddexp.reduce(log_weights)
        np.testing.assert_allclose(particles.log_weights[b, :, 0].numpy(), log_weights, **EXACT)


@kinds
@pytest.mark.parametrize("normalise", [False, True])
def test_the_likelihood_is_the_elbos(modalities: Modalities, normalise: bool) -> None:
    """A sequence of one step has the same latents in the loss and in the filter."""
    model = build(3, modalities, normalise=normalise)
    loss = dataclasses.replace(PLAIN, observation_scale=2.5)
    batch = make_batch(1, 1, 1, modalities)
    batch = dataclasses.replace(batch, action=torch.zeros_like(batch.action))
    with torch.no_grad():
        expected = model.loss(batch, loss, seeded(0))["observation"]
        one = ImportanceFilter(LatentModel(model, loss.observation_scale))
        observation = {name: value[0, 0] for name, value in batch.observation.items()}
        after = one.update(one.initial(1), torch.zeros(1, ACTIONS), observation, seeded(0))
    torch.testing.assert_close(-after.log_likelihood[0, :, 0], expected)


@kinds
def test_rows_see_their_own_observation(modalities: Modalities) -> None:
    model, rng = build(2, modalities), np.random.default_rng(0)
    seen = {name: random_values(part, (3,), rng) for name, part in modalities.items()}
    features = torch.randn(2, 12, 9, generator=seeded(1))
    with torch.no_grad():
        inputs = model.inputs(seen, seeded(2))
        together = model.log_likelihood(features, inputs)
        assert together.shape == (2, 12)
        for b in range(3):
            own = {name: value[b : b + 1] for name, value in inputs.items()}
            alone = model.log_likelihood(features[:, 4 * b : 4 * b + 4], own)
            torch.testing.assert_close(together[:, 4 * b : 4 * b + 4], alone)
        senses: Any = model.senses
        for sense in senses.values():
            if hasattr(sense, "decoder_chunk"):
                sense.decoder_chunk = 5  # more rows than are decoded together
        torch.testing.assert_close(model.log_likelihood(features, inputs), together)


def test_importance_draws_the_latents_of_the_inference_model() -> None:
    model, rng = build(3), np.random.default_rng(0)
    one = ImportanceFilter(LatentModel(model, 1.0))
    belief, particles, action = model.initial(2), one.initial(2), torch.zeros(2, ACTIONS)
    for step in range(3):
        seen = {"sensors": torch.tensor(rng.normal(size=(2, 4))).float()}
        with torch.no_grad():
            belief = model.filter(belief, action, seen, seeded(step))[0]
            particles = one.update(particles, action, seen, seeded(step))
        assert torch.equal(particles.start.stoch, belief.stoch)
        assert torch.equal(particles.start.deter, belief.deter)


def test_a_broken_member_has_no_weight() -> None:
    model = build(3)
    with torch.no_grad():
        weights: Any = model.weights()
        weights.input.weight[1] = float("nan")
        for one in (
            ImportanceFilter(LatentModel(model, 1.0)),
            ParticleFilter(LatentModel(model, 1.0), 4),
        ):
            particles, seen = one.initial(2), {"sensors": torch.zeros(2, 4)}
            for step in range(3):
                particles = one.update(particles, torch.zeros(2, ACTIONS), seen, seeded(step))
            assert (particles.member_weights[:, 1] == 0).all()
            torch.testing.assert_close(particles.member_weights.sum(-1), torch.ones(2))
