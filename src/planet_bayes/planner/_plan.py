"""The one optimisation loop: variational-inference MPC.

    q ← q · W^(1/λ) · q^(-κ), normalised                              (Eq. 5)

With candidates a_k drawn from q, the right-hand side is the set of a_k with weights
w_k ∝ W(a_k)^(1/λ) · q(a_k)^(-κ) (appendix, Eq. 19), and the new q is the member of the
proposal's family that fits the weighted set best. What W is, and what family q is from,
makes it CEM, MPPI, CMA-ES or PaETS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import torch
from torch import Generator, Tensor

from planet_bayes.planner._cma import separable_cma
from planet_bayes.planner._deadline import Deadline
from planet_bayes.planner._optimality import (
    Optimality,
    exponential,
    proportional,
    rank,
    threshold,
)
from planet_bayes.planner._proposals import gaussian, mixture
from planet_bayes.planner._types import (
    ActionNoise,
    Bounds,
    Diagnostics,
    PlannerConfig,
    PlannerError,
    PlanResult,
    Proposal,
    TrajectoryModel,
)

StateT = TypeVar("StateT")

PROPOSALS: dict[str, Callable[[Tensor, Tensor], Proposal]] = {
    "gaussian": gaussian,
    "mixture": mixture,
    "cma": separable_cma,
}
"""Families by name: functions from mean and std ``[B, M, H, A]`` to a proposal."""

OPTIMALITIES: dict[str, Optimality] = {
    "threshold": threshold,
    "exponential": exponential,
    "proportional": proportional,
    "rank": rank,
}
"""Optimality functions by name: from returns ``[B, N, P]`` to log W ``[B, N]``."""


@torch.no_grad()
def plan(
    model: TrajectoryModel[StateT],
    state: StateT,
    bounds: Bounds,
    config: PlannerConfig,
    generator: Generator,
    *,
    previous: Proposal | None = None,
    batch_size: int = 1,
    time_budget: float | None = None,
) -> PlanResult:
    """Find good action sequences from ``state`` and return the first action (Algorithm 3).

    ``previous`` is the ``plan`` of the last call in the same episode; leave it out at an
    episode's first step, or one episode's plan leaks into the next. ``batch_size`` is the
    number B of problems that ``state`` holds. Candidates are clipped to ``bounds`` before
    they are imagined, weighed and refitted, as PlaNet does. With a ``time_budget``, in seconds
    from entry, no iteration is begun that is not expected to end in time, but the first.
    """
    deadline = None if time_budget is None else Deadline(time_budget, bounds.low.device)
    if config.proposal not in PROPOSALS or config.optimality not in OPTIMALITIES:
        raise PlannerError(
            f"unknown proposal {config.proposal!r} or optimality {config.optimality!r}; there are "
            f"{', '.join(PROPOSALS)} and {', '.join(OPTIMALITIES)}."
        )
    if batch_size < 1:
        raise PlannerError(f"batch_size must be at least 1, got {batch_size}.")
    proposal = start(bounds, config, generator, previous, batch_size)
    shape = (batch_size, config.num_candidates, config.horizon, len(bounds.low))

    def noises() -> Iterator[ActionNoise]:
        for iteration in range(config.num_iterations):
            if deadline is not None and not deadline.another():
                return
            # Drawn for all candidates, so that those who stay have the same noise as without
            # decay. It is cheap beside imagining them.
            noise = ActionNoise.draw(shape, bounds.low, generator)
            yield noise.first(config.candidates_at(iteration)).coloured(config.noise_colour)

    proposal, diagnostics = optimise(model, state, proposal, noises(), bounds, config, generator)
    if deadline is not None and deadline.stopped:
        diagnostics = dataclasses.replace(diagnostics, stopped_by="deadline")
    if config.execute == "best":
        expected = diagnostics.returns.nanmean(-1)
        action = _best(diagnostics.candidates, expected, 1)[:, 0, 0]
    else:
        action = first_action(proposal, bounds, config, generator)
    return PlanResult(action=action, plan=proposal, diagnostics=diagnostics)


def start(
    bounds: Bounds,
    config: PlannerConfig,
    generator: Generator,
    previous: Proposal | None,
    batch_size: int,
) -> Proposal:
    """Return the proposal that a control step begins with (Algorithm 2, line 7).

    Means by warm start, std ``initial_std``, mixture weights 1/M. The paper does not say how
    the means begin an episode: here at the middle of the range, all components but the first
    with a random offset of ``spread``. The step that the shift brings in is begun likewise.
    """
    unit = bounds.half_range
    shape = (batch_size, config.num_components, config.horizon, len(unit))

    def fresh(spread: float) -> Tensor:
        offset = torch.randn(shape, generator=generator, device=unit.device, dtype=unit.dtype)
        offset[:, 0] = 0
        return offset * spread * unit

    if previous is None or not config.warm_start:
        mean = bounds.centre + fresh(config.spread)
    else:
        if previous.mean.shape != shape:
            raise PlannerError(
                f"previous: expected a plan of shape {shape} (B, M, H, A), got "
                f"{tuple(previous.mean.shape)}; leave it out when the settings change."
            )
        last = bounds.centre + fresh(config.spread)[:, :, -1:]
        mean = torch.cat([previous.mean[:, :, 1:], last], dim=2)
        if config.respread > 0:
            mean = mean + fresh(config.respread)
    mean = mean.clamp(bounds.low, bounds.high)
    std = (config.initial_std * unit).expand(shape).contiguous()
    return PROPOSALS[config.proposal](mean, std)


def optimise(
    model: TrajectoryModel[StateT],
    state: StateT,
    proposal: Proposal,
    noises: Iterator[ActionNoise],
    bounds: Bounds,
    config: PlannerConfig,
    generator: Generator,
) -> tuple[Proposal, Diagnostics]:
    """Run Algorithm 3's loop, one round per element of ``noises`` until converged."""
    floor = config.min_std * bounds.half_range
    best: list[Tensor] = []
    rejected = torch.zeros((), dtype=torch.long, device=floor.device)
    lost = torch.zeros((), dtype=torch.bool, device=floor.device)
    stopped_by: Literal["iterations", "converged"] = "iterations"
    kept = proposal.mean  # [B, M, H, A]
    for noise in noises:
        candidates = proposal.sample(noise)  # [B, N, H, A]
        if config.keep_elites:
            count = min(kept.shape[1], candidates.shape[1] // 2)  # the others are new
            candidates[:, candidates.shape[1] - count :] = kept[:, :count]
        candidates = candidates.clamp(bounds.low, bounds.high)
        rewards = model.imagine(state, candidates, generator)  # [B, N, P, H]
        _check_rewards(rewards, candidates)
        # [B, N, P], [B, N], [B, P]
        returns, valid, dead = accept(rewards.to(candidates.dtype).sum(-1))
        weights = candidate_weights(returns, proposal, candidates, config)  # [B, N]
        proposal = proposal.refit(candidates, weights, floor, config.min_component_weight)
        expected = returns.nanmean(-1)  # [B, N]
        best.append(expected.amax(-1))
        if config.keep_elites:
            kept = _best(candidates, expected, config.keep_elites)
        rejected = rejected + (~valid).sum(-1)
        lost = lost | ~valid.any(-1).all()
        if converged(proposal, bounds, config):
            stopped_by = "converged"
            break
    if bool(lost):  # asked once, at the end: a GPU would have to be waited for each time
        raise PlannerError(
            "no candidate has a finite imagined return: the model's rewards are NaN or infinite "
            "for all of them. Look at the model's weights, and at the state that it was given."
        )
    shares = proposal.log_weights.exp()
    entropy = -(shares * torch.where(shares > 0, shares, 1.0).log()).sum(-1)
    return proposal, Diagnostics(
        returns=returns,
        candidates=candidates,
        weights=weights,
        effective_samples=1 / weights.square().sum(-1),
        best_return=torch.stack(best, -1),
        effective_components=entropy.exp(),
        num_rejected=rejected,
        num_dead_particles=dead.sum(-1),
        stopped_by=stopped_by,
    )


def converged(proposal: Proposal, bounds: Bounds, config: PlannerConfig) -> bool:
    """Return whether the proposal is narrower than ``converged_std`` in all B problems.

    Its width is the root mean square of the stds over steps, action dimensions and, by mixture
    weight, components: a starved component does not count. Nor do the distances between
    components, which would keep a mixture of two good plans from ever being done.
    """
    if config.converged_std == 0:
        return False
    var = (proposal.std / bounds.half_range).square().mean((-1, -2))  # [B, M]
    width = (proposal.log_weights.exp() * var).sum(-1).sqrt()  # [B]
    return bool((width < config.converged_std).all())


def accept(returns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort out non-finite returns ``[B, N, P]``: they must never rank above a finite one.

    A particle that is non-finite for every candidate of a problem is dead: it says nothing
    about which is better, and is marked with NaN to be left out. A candidate that any living
    particle finds non-finite is rejected: its returns become -inf, its weight 0. Returns the
    marked returns, the valid candidates ``[B, N]`` and the dead particles ``[B, P]``.
    """
    finite = torch.isfinite(returns)
    dead = ~finite.any(1)  # [B, P]
    missing = dead.unsqueeze(1)
    valid = (finite | missing).all(-1) & ~dead.all(-1, keepdim=True)  # [B, N]
    marked = torch.where(valid.unsqueeze(-1), returns, -torch.inf)
    return torch.where(missing, torch.nan, marked), valid, dead


def candidate_weights(
    returns: Tensor, proposal: Proposal, candidates: Tensor, config: PlannerConfig
) -> Tensor:
    """Return normalised w_k ∝ W(a_k)^(1/λ) · q(a_k)^(-κ), ``[B, N]`` (appendix, Eq. 19)."""
    log_weights = OPTIMALITIES[config.optimality](returns, config) / config.temperature
    if config.entropy_weight > 0:
        log_weights = log_weights - config.entropy_weight * proposal.log_prob(candidates)
    return log_weights.softmax(-1)


def _best(candidates: Tensor, expected: Tensor, num: int) -> Tensor:
    """Return the ``num`` candidates ``[B, num, H, A]`` of the largest expected returns."""
    index = expected.nan_to_num(nan=-torch.inf).topk(min(num, expected.shape[1])).indices
    return candidates.gather(1, index[:, :, None, None].expand(-1, -1, *candidates.shape[2:]))


def first_action(
    proposal: Proposal, bounds: Bounds, config: PlannerConfig, generator: Generator
) -> Tensor:
    """Return the action to execute, ``[B, A]`` (Algorithm 2, lines 9 and 10)."""
    batch, _, horizon, dims = proposal.mean.shape
    if config.execute == "sample":
        noise = ActionNoise.draw((batch, 1, horizon, dims), proposal.mean, generator)
        action = proposal.sample(noise)[:, 0, 0]
    else:
        heaviest = proposal.log_weights.argmax(-1)
        action = proposal.mean[torch.arange(batch, device=heaviest.device), heaviest, 0]
    return action.clamp(bounds.low, bounds.high)


def _check_rewards(rewards: Tensor, candidates: Tensor) -> None:
    batch, num, horizon, _ = candidates.shape
    shape = rewards.shape
    if rewards.ndim != 4 or (shape[0], shape[1], shape[3]) != (batch, num, horizon) or not shape[2]:
        raise PlannerError(
            f"imagine() must return rewards of shape [B, N, P, H] with B={batch}, N={num}, "
            f"H={horizon} and P ≥ 1, got {tuple(shape)}."
        )
