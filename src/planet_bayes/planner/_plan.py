"""The optimisation loop: variational-inference MPC.

    q ← q · W^(1/λ) · q^(-κ), normalised                              (Eq. 5)

With candidates a_k drawn from q, the right-hand side is the set of a_k with weights
w_k ∝ W(a_k)^(1/λ) · q(a_k)^(-κ) (appendix, Eq. 19), and the new q is the member of the
proposal's family that fits the weighted set best. The choice of W and of the family makes it CEM,
MPPI, CMA-ES or PaETS. `step` is this law, and `plan` is the loop around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Generator, Tensor

from planet_bayes.errors import PlannerError
from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._contract import (
    Family,
    Proposal,
    ReturnsProposal,
    TrajectoryModel,
    ValueProposal,
)
from planet_bayes.planner._deadline import Deadline
from planet_bayes.planner._methods import check_components, find_family, find_optimality
from planet_bayes.planner._optimality import Optimality, log_optimality, surely_finite
from planet_bayes.planner._result import Diagnostics, PlanResult
from planet_bayes.planner._risk import Risk, config_risk, mean

StateT = TypeVar("StateT")
SpaceT = TypeVar("SpaceT")


@dataclass(frozen=True)
class Step:
    """The result of one iteration."""

    proposal: Proposal
    """The refitted proposal."""
    candidates: Tensor
    """The imagined action sequences, ``[B, N, H, A]``."""
    returns: Tensor
    """Imagined returns, ``[B, N, P]``; -inf for rejected candidates, NaN for dead particles."""
    values: Tensor
    """Risk of the returns, ``[B, N]``: by default the expected return."""
    weights: Tensor
    """Normalised weights, ``[B, N]``."""
    valid: Tensor
    """False for rejected candidates, ``[B, N]``."""
    dead: Tensor
    """True for dead particles, ``[B, P]``."""


def step(
    model: TrajectoryModel[StateT],
    state: StateT,
    proposal: Proposal,
    candidates: Tensor,
    config: PlannerConfig,
    generator: Generator,
    optimality: Optimality,
    risk: Risk,
    particle_weights: Tensor | None = None,
) -> Step:
    """Apply the law once: candidates → returns → weights → refit (Algorithm 3)."""
    rewards = model.imagine(state, candidates, generator)  # [B, N, P, H]
    _check_rewards(rewards, candidates)
    returns, valid, dead = accept(rewards.to(candidates.dtype).sum(-1))  # [B, N, P], [B, N], [B, P]
    if particle_weights is not None:
        _check_particle_weights(particle_weights, returns)
    values = risk(returns)  # [B, N]
    _check_values(values, returns)
    log_values = log_optimality(returns, values, config, optimality, particle_weights)
    log_weights = log_values / config.temperature  # [B, N]
    if config.entropy_weight > 0:
        log_weights = log_weights - config.entropy_weight * proposal.log_prob(candidates)
    weights = log_weights.softmax(-1)
    if isinstance(proposal, ReturnsProposal):
        refitted = proposal.refit_returns(candidates, returns, values)
    elif isinstance(proposal, ValueProposal):
        refitted = proposal.refit_values(candidates, values)
    else:
        refitted = proposal.refit(candidates, weights)
    return Step(refitted, candidates, returns, values, weights, valid, dead)


@torch.no_grad()
def plan(
    model: TrajectoryModel[StateT],
    state: StateT,
    bounds: SpaceT,
    config: PlannerConfig,
    generator: Generator,
    *,
    previous: Proposal | None = None,
    batch_size: int = 1,
    time_budget: float | None = None,
    proposal: Family[SpaceT] | None = None,
    optimality: Optimality | None = None,
    risk: Risk = mean,
    particle_weights: Tensor | None = None,
) -> PlanResult:
    """Find good action sequences from ``state`` and return the first action (Algorithm 3).

    Candidates are valid actions, clipped to ``bounds`` by the Gaussian families, before they are
    imagined, weighed and refitted, as in PlaNet.

    Args:
        model: Imagines the rewards of action sequences; see `TrajectoryModel`.
        state: Where the model starts, passed to ``model.imagine`` unchanged.
        bounds: The action space: `Bounds` for the families of this package, or what your own
            family takes.
        config: The settings. The methods `cem`, `mppi`, `paets` and others return them.
        generator: Source of all randomness. Its device must be that of ``bounds``.
        previous: ``proposal`` of the previous result in the same episode, for the warm start.
            Omit it at the first step of an episode, or the plan of one episode leaks into the
            next.
        batch_size: Number of problems B that ``state`` holds.
        time_budget: Seconds from entry. An iteration starts only if it is expected to end in time,
            except the first, which always runs. None: no limit.
        proposal: A family; by default the one in `FAMILIES` that ``config.proposal`` names.
        optimality: From returns to weights; by default the one in `OPTIMALITIES` that
            ``config.optimality`` names.
        risk: Reduces the returns of the particles to one value per candidate; by default as
            ``config.caution`` and ``config.tail`` say.
        particle_weights: Weights of the model's particles, ``[B, P]``, not negative; None: equal
            ones. They make `mean` a weighted mean, and weight E[f(R)] with ``expectation`` "after".
            A risk of your own must know them itself.

    Raises:
        PlannerError: The arguments do not fit together, or no candidate has a finite return.
    """
    deadline = None if time_budget is None else Deadline(time_budget, generator.device)
    if batch_size < 1:
        raise PlannerError(f"batch_size must be at least 1, got {batch_size}.")
    family = find_family(config) if proposal is None else proposal
    weigh = find_optimality(config) if optimality is None else optimality
    check_components(config, family)
    if risk is mean:
        risk = config_risk(config, particle_weights)
    num_candidates = config.num_candidates(getattr(model, "num_particles", 1))

    current = family.start(bounds, config, generator, previous, batch_size)
    kept = _warm_candidates(current, previous, config)  # [B, n, H, A]
    best: list[Tensor] = []
    valid: list[Tensor] = []
    for iteration in range(config.num_iterations):
        if deadline is not None and not deadline.another():
            break
        # Noise is drawn for all candidates, so that decay does not change the noise of those that
        # remain. This is cheap compared to imagining them.
        noise = current.draw_noise(num_candidates, generator)
        noise = noise.first(config.candidates_at(iteration, num_candidates))
        candidates = _with_kept(current.sample(noise), kept)  # [B, N, H, A]
        last = step(
            model, state, current, candidates, config, generator, weigh, risk, particle_weights
        )
        current = last.proposal
        kept = _best(last, config.keep_elites) if config.keep_elites else None
        best.append(last.values.amax(-1))
        valid.append(last.valid)

    _check_finite(valid)
    if config.execute == "best":
        action = _best(last, 1)[:, 0, 0]
    else:
        action = current.first_action(config.execute, generator)
    return PlanResult(
        action,
        current,
        Diagnostics(
            returns=last.returns,
            candidates=last.candidates,
            weights=last.weights,
            proposal=current,
            best_return=torch.stack(best, -1),
            num_rejected=torch.stack([(~part).sum(-1) for part in valid]).sum(0),
            num_dead_particles=last.dead.sum(-1),
            value=lambda sequences: value(model, state, sequences, risk),
            stopped_by="deadline" if deadline is not None and deadline.stopped else "iterations",
        ),
    )


@torch.no_grad()
def value(
    model: TrajectoryModel[StateT], state: StateT, sequences: Tensor, risk: Risk = mean
) -> Tensor:
    """Return the values ``[B, N]`` of valid sequences ``[B, N, H, A]``: the risk of their returns.

    A model with random transitions gets the same random numbers at every call.
    """
    generator = Generator(sequences.device).manual_seed(0)
    rewards = model.imagine(state, sequences, generator)  # [B, N, P, H]
    _check_rewards(rewards, sequences)
    return risk(accept(rewards.to(sequences.dtype).sum(-1))[0])


def accept(returns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mark non-finite returns ``[B, N, P]``, so that they never rank above a finite one.

    A particle is dead if it is non-finite for every candidate of a problem: it cannot tell
    candidates apart. It is marked with NaN and left out. A candidate is rejected if any living
    particle finds it non-finite: its returns become -inf and its weight 0.

    Returns the marked returns, the valid candidates ``[B, N]`` and the dead particles ``[B, P]``.
    """
    if surely_finite(returns):
        valid = returns.new_ones(returns.shape[:2], dtype=torch.bool)
        return returns, valid, valid.new_zeros(returns.shape[0], returns.shape[2])
    finite = torch.isfinite(returns)
    dead = ~finite.any(1)  # [B, P]
    missing = dead.unsqueeze(1)
    valid = (finite | missing).all(-1) & ~dead.all(-1, keepdim=True)  # [B, N]
    marked = torch.where(valid.unsqueeze(-1), returns, -torch.inf)
    return torch.where(missing, torch.nan, marked), valid, dead


def _selected(candidates: Tensor, index: Tensor) -> Tensor:
    """Return candidates ``[B, n, H, A]`` by their indices ``[B, n]``."""
    return candidates.gather(1, index[:, :, None, None].expand(-1, -1, *candidates.shape[2:]))


def _warm_candidates(
    current: Proposal, previous: Proposal | None, config: PlannerConfig
) -> Tensor | None:
    """Return the modes ``[B, n, H, A]`` that are among the first candidates, n as set.

    None if the samples contain the modes. Several copies of one mode that are all elites would
    shrink the proposal to it.
    """
    if not config.warm_candidates or getattr(current, "samples_modes", False):
        return None
    modes = current.modes()
    if previous is not None and config.warm_start:
        weight = previous.components().weight
        modes = _selected(modes, weight.argsort(dim=-1, descending=True, stable=True))
    turns = torch.arange(config.warm_candidates, device=modes.device) % modes.shape[1]
    return modes[:, turns]


def _with_kept(samples: Tensor, kept: Tensor | None) -> Tensor:
    """Return ``samples`` with the last ones replaced by ``kept``; at least half remain."""
    if kept is None:
        return samples
    num = samples.shape[1]
    count = min(kept.shape[1], num // 2)
    return torch.cat([samples[:, : num - count], kept[:, :count]], 1)


def _best(last: Step, num: int) -> Tensor:
    """Return the ``num`` candidates ``[B, num, H, A]`` of the largest values."""
    values = last.values.nan_to_num(nan=-torch.inf)
    return _selected(last.candidates, values.topk(min(num, values.shape[1])).indices)


def _check_finite(valid: list[Tensor]) -> None:
    """Raise if a problem had no valid candidate in some iteration.

    This runs once, after the last iteration: on a GPU, every check waits for the device.
    """
    if not bool(torch.stack([part.any(-1).all() for part in valid]).all()):
        raise PlannerError(
            "no candidate has a finite imagined return: the model's rewards are NaN or infinite "
            "for all of them. Check the model's weights and the state that it was given."
        )


def _check_rewards(rewards: Tensor, candidates: Tensor) -> None:
    batch, num, horizon, _ = candidates.shape
    shape = rewards.shape
    if rewards.ndim != 4 or (shape[0], shape[1], shape[3]) != (batch, num, horizon) or not shape[2]:
        raise PlannerError(
            f"imagine() must return rewards of shape [B, N, P, H] with B={batch}, N={num}, "
            f"H={horizon} and P ≥ 1, got {tuple(shape)}."
        )


def _check_values(values: Tensor, returns: Tensor) -> None:
    if values.shape != returns.shape[:2]:
        raise PlannerError(
            f"risk: expected values of shape {tuple(returns.shape[:2])} (B, N), got "
            f"{tuple(values.shape)}."
        )


def _check_particle_weights(weights: Tensor, returns: Tensor) -> None:
    expected = (returns.shape[0], returns.shape[2])
    if weights.shape != expected:
        raise PlannerError(
            f"particle_weights: expected the shape {expected} (B, P), got {tuple(weights.shape)}."
        )
