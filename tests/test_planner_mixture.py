"""The mixture: two peaks, starved components, warm start."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from planet_bayes.planner import (
    OPTIMALITIES,
    ActionNoise,
    Bounds,
    Gaussian,
    Mixture,
    PlannerConfig,
    Proposal,
    cem,
    paets,
    plan,
)
from planet_bayes.planner._cma import separable_cma
from planning import (
    DOUBLE,
    PointMass,
    Quadratic,
    built_in,
    draw_noises,
    gaussian,
    mixture,
    optimise,
    seeded,
    start,
    wide_bounds,
)

PEAK, NEAR = 0.6, 0.2


@dataclass(frozen=True)
class TwoPeaks:
    """All actions at +PEAK or all at -PEAK are equally good; a mix of both is not."""

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        upper = -(actions - PEAK).square().sum((-1, -2)) / (2 * 0.3**2)
        lower = -(actions + PEAK).square().sum((-1, -2)) / (2 * 0.3**2)
        value = torch.logaddexp(upper, lower) / actions.shape[2]
        return value[:, :, None, None].expand(-1, -1, 1, actions.shape[2])


def peak_shares(proposal: Proposal) -> tuple[float, float]:
    """Mixture weight of the components that sit on each peak."""
    fitted = built_in(proposal)
    shares = fitted.log_weights.exp()[0]
    above = (fitted.mean[0] - PEAK).abs().amax((-1, -2)) < NEAR
    below = (fitted.mean[0] + PEAK).abs().amax((-1, -2)) < NEAR
    return shares[above].sum().item(), shares[below].sum().item()


def peak_samples(proposal: Proposal) -> tuple[float, float]:
    """Share of samples that lie near each peak."""
    mean = built_in(proposal).mean
    samples = proposal.sample(ActionNoise.draw((1, 2000, *mean.shape[2:]), mean, seeded()))
    above = (samples - PEAK).abs().amax((-1, -2)) < NEAR
    below = (samples + PEAK).abs().amax((-1, -2)) < NEAR
    return above.double().mean().item(), below.double().mean().item()


@pytest.mark.parametrize("seed", range(6))
def test_paets_keeps_both_peaks_and_cem_one(seed):
    """With κ = ½, a wide start and enough candidates. With κ = 0 one of two equal peaks dies
    out more often than not: the one that is ahead gets the more elites.
    """
    bounds = Bounds.symmetric(1)
    common = {"horizon": 2, "num_trajectories": 1000, "num_iterations": 20, "elite_fraction": 0.2}
    config = paets(entropy_weight=0.5, spread=0.5, **common)
    many = plan(TwoPeaks(), None, bounds, config, seeded(seed)).proposal
    assert min(peak_shares(many)) > 0.2
    assert min(peak_samples(many)) > 0.2
    one = plan(TwoPeaks(), None, bounds, cem(**common), seeded(seed)).proposal
    lesser, greater = sorted(peak_samples(one))
    assert lesser == 0
    assert greater > 0.9


def test_paets_with_the_papers_law_keeps_both_peaks_more_often_than_cem():
    def kept(config: PlannerConfig) -> int:
        plans = [plan(TwoPeaks(), None, Bounds.symmetric(1), config, seeded(s)) for s in range(20)]
        return sum(min(peak_samples(result.proposal)) > 0.1 for result in plans)

    common = {"horizon": 2, "num_trajectories": 1000}
    assert kept(paets(spread=0.5, **common)) >= 4
    assert kept(cem(**common)) == 0


def test_components_with_equal_means_never_separate():
    result = plan(
        TwoPeaks(),
        None,
        Bounds.symmetric(1),
        paets(spread=0.0, horizon=2, num_trajectories=200),
        seeded(),
    )
    mean = built_in(result.proposal).mean
    assert torch.equal(mean, mean[:, :1].expand_as(mean))
    torch.testing.assert_close(result.diagnostics.effective_components, torch.tensor([5.0]))


@settings(max_examples=40, deadline=None)
@given(
    optimality=st.sampled_from(sorted(OPTIMALITIES)),
    kappa=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**20),
)
def test_one_component_is_a_gaussian(optimality, kappa, seed):
    bounds, generator = wide_bounds(2, 1.0), seeded(seed)
    config = cem(optimality=optimality, entropy_weight=kappa, horizon=3)
    begin = start(bounds, config, generator, None, 2)
    noises = draw_noises(4, 2, 30, 3, 2, seed)
    model = PointMass(3)
    single, seen = optimise(model, begin, noises, bounds, config)
    as_mixture = mixture(begin.mean, begin.std, begin.log_weights)
    mixed, seen_mixed = optimise(
        model, as_mixture, noises, bounds, replace(config, proposal="mixture")
    )
    torch.testing.assert_close(mixed.mean, single.mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(mixed.std, single.std, rtol=0, atol=1e-10)
    torch.testing.assert_close(mixed.log_weights, single.log_weights, rtol=0, atol=1e-10)
    torch.testing.assert_close(seen_mixed.weights, seen.weights, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kappa", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_far_apart_components_in_72_dimensions(seed, kappa):
    """Single precision, as in use; densities underflow here and components starve at once."""
    config = paets(entropy_weight=kappa, spread=5.0, num_trajectories=200)
    bounds = Bounds.symmetric(6)
    model = Quadratic(torch.linspace(-0.9, 0.9, 6))
    result = plan(model, None, bounds, config, seeded(seed))
    fitted = built_in(result.proposal)
    for part in (result.action, fitted.mean, fitted.std, result.diagnostics.weights):
        assert torch.isfinite(part).all()
    assert not torch.isnan(fitted.log_weights).any()
    shares = fitted.log_weights.exp()
    assert shares.sum().item() == pytest.approx(1, abs=1e-5)
    assert shares.min().item() >= 0
    assert (fitted.std >= config.min_std * (1 - 1e-6)).all()
    assert (fitted.mean.abs() <= 1 + 1e-5).all()
    assert 1 - 1e-5 <= result.diagnostics.effective_components.item() <= 5 + 1e-5


def test_a_starved_component_has_no_weight_and_is_not_sampled():
    mean = torch.tensor([0.0, 60.0], dtype=DOUBLE).reshape(1, 2, 1, 1)
    begin = mixture(mean, torch.ones_like(mean), torch.full((1, 2), -math.log(2), dtype=DOUBLE))
    noises = draw_noises(3, 1, 40, 1, 1, seed=0)
    model = Quadratic(torch.tensor(0.0, dtype=DOUBLE))
    fitted, seen = optimise(model, begin, noises, wide_bounds(), paets(num_components=2))
    assert fitted.log_weights.exp()[0, 1].item() < 1e-12
    assert torch.isfinite(fitted.mean).all()
    assert seen.candidates.max() < 10
    assert seen.effective_components.item() == pytest.approx(1)


def test_a_component_without_weight_is_never_drawn():
    """Shares can add up to just below one, and the uniform number can fall above their sum."""
    shares = torch.tensor([[1.0, 1.0, 1.0, 0.0]]) / 3
    total = shares.log().exp().sum().item()
    mean = torch.tensor([0.0, 0.0, 0.0, 50.0]).reshape(1, 4, 1, 1)
    proposal = mixture(mean, torch.ones_like(mean), shares.log())
    uniform = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)).reshape(1, 1)
    assert total <= uniform.item() < 1
    assert proposal.sample(ActionNoise(torch.zeros(1, 1, 1, 1), uniform)).item() == 0


ODD_BOUNDS = Bounds(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 10.0]))
CENTRE = torch.tensor([1.0, 6.0])


def test_warm_start_keeps_the_means_alone():
    """Std and mixture weights begin anew: 1/2 and 1/M."""
    config = paets(horizon=3, num_components=4)
    mean = torch.rand(2, 4, 3, 2, generator=seeded()) + torch.tensor([0.0, 4.0])
    previous = mixture(mean, torch.full_like(mean, 0.01), torch.tensor([[0.0] + [-40.0] * 3] * 2))
    begin = start(ODD_BOUNDS, config, seeded(), previous, 2)
    assert torch.equal(begin.mean[:, :, :-1], mean[:, :, 1:])
    assert torch.equal(begin.mean[:, 0, -1], CENTRE.expand(2, 2))
    assert torch.equal(begin.std, torch.tensor([1.0, 2.0]).expand(2, 4, 3, 2))
    torch.testing.assert_close(begin.log_weights.exp(), torch.full((2, 4), 0.25))


def test_components_begin_an_episode_apart():
    config = paets(horizon=50, spread=0.25)
    mean = start(Bounds.symmetric(4, 2.0), config, seeded(), None, 1).mean[0]
    assert torch.equal(mean[0], torch.zeros(50, 4))
    assert mean[1:].std(dim=(1, 2)).tolist() == pytest.approx([0.5] * 4, rel=0.15)


def relative(stds: list[float], shares: list[float]) -> Mixture:
    """Components far apart whose stds, in units of half the range, are these."""
    unit = ODD_BOUNDS.half_range.expand(3, 2)
    mean = ODD_BOUNDS.low + torch.arange(len(stds))[:, None, None] * unit
    std = torch.tensor(stds)[:, None, None] * unit
    log_weights = torch.tensor([shares]).log()
    return Mixture(mean[None], std[None], log_weights, ODD_BOUNDS, torch.zeros(2))


@pytest.mark.parametrize(
    ("stds", "shares", "width"),
    [
        ([0.1], [1.0], 0.1),
        ([0.1, 0.1], [0.5, 0.5], 0.1),  # their distance does not count
        ([0.1, 0.9], [1.0, 0.0], 0.1),  # nor does a starved one
        ([0.1, 0.3], [0.75, 0.25], math.sqrt(0.03)),
    ],
)
def test_width_by_hand(stds: list[float], shares: list[float], width: float) -> None:
    assert relative(stds, shares).width().tolist() == pytest.approx([width], rel=1e-5)


def test_each_problem_of_a_batch_has_its_width() -> None:
    std = torch.tensor([0.1, 0.3])[:, None, None, None] * ODD_BOUNDS.half_range.expand(2, 1, 3, 2)
    proposal = replace(gaussian(torch.zeros_like(std), std), bounds=ODD_BOUNDS)
    assert proposal.width().tolist() == pytest.approx([0.1, 0.3], rel=1e-5)


def test_components_are_a_summary() -> None:
    proposal = relative([0.1, 0.2], [0.75, 0.25])
    seen = proposal.components()
    assert seen.weight[0].tolist() == pytest.approx([0.75, 0.25])
    assert torch.equal(seen.mean, proposal.mean)
    assert torch.equal(seen.std, proposal.std)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert seen.effective_number.tolist() == pytest.approx([math.exp(entropy)], rel=1e-5)
    assert relative([0.1, 0.2], [1.0, 0.0]).components().effective_number.tolist() == [1]


def test_samples_and_modes_are_clipped_and_densities_are_not() -> None:
    far = torch.full((1, 1, 3, 2), 50.0)
    space = (ODD_BOUNDS, torch.zeros(2))
    for proposal in (
        Gaussian(far, torch.ones_like(far), *space),
        Mixture(far, torch.ones_like(far), torch.zeros(1, 1), *space),
        separable_cma(far, torch.ones_like(far), *space),
    ):
        high = ODD_BOUNDS.high.expand(1, 4, 3, 2)
        assert torch.equal(proposal.sample(proposal.draw_noise(4, seeded())), high)
        assert torch.equal(proposal.modes(), high[:, :1])
        for execute in ("sample", "mean"):
            assert torch.equal(proposal.first_action(execute, seeded()), high[:, 0, 0])
        distance = (far - high[:, :1]).square().sum() / 2 + 3 * math.log(2 * math.pi)
        torch.testing.assert_close(proposal.log_prob(high)[0, 0], -distance)
