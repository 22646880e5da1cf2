"""What `plan` returns: the action, the final proposal, and what the last iteration saw.

Axes: B problems, N candidates, P particles, H horizon, A action dimensions, M components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from planet_bayes.planner._contract import Proposal
from planet_bayes.planner._plans import is_distinct, mean_distance


@dataclass(frozen=True)
class Diagnostics:
    """What the last iteration saw, and why it was the last."""

    returns: Tensor
    """Imagined returns, ``[B, N, P]``; -inf for rejected candidates, NaN for dead particles."""
    candidates: Tensor
    """The imagined action sequences, ``[B, N, H, A]``."""
    weights: Tensor
    """Normalised weights of the candidates, ``[B, N]``."""
    proposal: Proposal
    """The final proposal."""
    best_return: Tensor
    """Largest return of a candidate, reduced over particles by the risk, in each completed
    iteration, ``[B, U]``."""
    num_rejected: Tensor
    """Candidates with non-finite returns over all iterations, ``[B]``; their weight was 0."""
    num_dead_particles: Tensor
    """Particles that were non-finite for every candidate in the last iteration, ``[B]``."""
    value: Callable[[Tensor], Tensor]
    """Imagines valid sequences ``[B, N, H, A]`` and returns their values ``[B, N]``: the risk of
    their returns."""
    stopped_by: Literal["iterations", "deadline"]
    """``iterations``: all were completed; ``deadline``: the next one was not expected to fit into
    the time budget."""

    @cached_property
    def effective_samples(self) -> Tensor:
        """1 / Σ w², ``[B]``: the number of candidates that determine the refit."""
        return 1 / self.weights.square().sum(-1)

    @cached_property
    def effective_components(self) -> Tensor:
        """exp(entropy of the mixture weights), ``[B]``: between 1 and M.

        Components that merged count as many; `distinct_plans` counts them as one.
        """
        return self.proposal.components().effective_number

    @cached_property
    def mode_values(self) -> Tensor:
        """Values of the proposal's modes, ``[B, M]``, imagined when this is first read."""
        return self.value(self.proposal.modes())

    @cached_property
    def distinct_plans(self) -> Tensor:
        """Number of plans that the proposal holds, ``[B]``: good, alive and apart.

        With more than one component, this imagines the modes.
        """
        components = self.proposal.components()
        if components.weight.shape[1] == 1:
            return components.weight.new_ones(len(components.weight), dtype=torch.int64)
        return is_distinct(components, self.mode_values).sum(-1)

    @cached_property
    def component_distance(self) -> Tensor:
        """Mean Bhattacharyya distance between living components, ``[B]``; 0 if one lives."""
        return mean_distance(self.proposal.components())

    @cached_property
    def width(self) -> Tensor:
        """Width of the final proposal, ``[B]``.

        For Gaussian families it is the root mean square of the component stds by mixture weight,
        in units of half the action range.
        """
        return self.proposal.width()

    @property
    def num_iterations(self) -> int:
        """Number of completed iterations, at least 1."""
        return self.best_return.shape[-1]


@dataclass(frozen=True)
class PlanResult:
    """The action to execute, and the proposal for the next call."""

    action: Tensor
    """First action, within the action space, ``[B, A]``."""
    proposal: Proposal
    """The final proposal; pass it as ``previous`` at the next step of the same episode."""
    diagnostics: Diagnostics
    """What the last iteration saw."""
