"""The contract of the planner: what a model, a proposal and a family offer.

Axes: B problems, N candidates, P particles, H horizon, A action dimensions, M components.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Generator, Tensor

from planet_bayes.planner._config import PlannerConfig

StateT = TypeVar("StateT", contravariant=True)
SpaceT = TypeVar("SpaceT", contravariant=True)


class TrajectoryModel(Protocol[StateT]):
    """Anything that imagines rewards. Only the model itself looks into ``state``.

    A model with several particles should have an attribute ``num_particles`` (P), so that
    ``num_trajectories`` counts them. Without it, P counts as 1.
    """

    def imagine(self, state: StateT, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[B, N, H, A]`` to rewards ``[B, N, P, H]``.

        A deterministic model returns ``P = 1``, an ensemble one particle per member.
        """
        ...


class Noise(Protocol):
    """The random numbers of one iteration, of whatever kind the proposal needs."""

    def first(self, num: int) -> Self:
        """Return the noise of the first ``num`` candidates."""
        ...


@dataclass(frozen=True)
class Components:
    """A summary of a proposal for people to look at."""

    weight: Tensor
    """Mixture weights, ``[B, M]``; they sum to 1."""
    mean: Tensor
    """Mean of each component, ``[B, M, H, A]``."""
    std: Tensor
    """Standard deviation of each component, ``[B, M, H, A]``."""

    @property
    def effective_number(self) -> Tensor:
        """exp(entropy of the weights), ``[B]``: between 1 and M."""
        entropy = -(self.weight * torch.where(self.weight > 0, self.weight, 1.0).log()).sum(-1)
        return entropy.exp()


class Proposal(Protocol):
    """A distribution over action sequences. All methods are pure: they return new objects.

    A proposal knows its action space: all actions that it returns are valid.
    """

    def draw_noise(self, num: int, generator: Generator) -> Noise:
        """Draw the noise of ``num`` samples per problem."""
        ...

    def sample(self, noise: Any) -> Tensor:
        """Return valid samples ``[B, N, H, A]`` made from noise of `draw_noise`."""
        ...

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density ``[B, N]`` of ``actions`` ``[B, N, H, A]``."""
        ...

    def refit(self, actions: Tensor, weights: Tensor) -> Proposal:
        """Return the member of the family that fits the weighted ``actions`` best.

        ``actions`` are ``[B, N, H, A]``. ``weights`` ``[B, N]`` sum to 1 over N.
        """
        ...

    def first_action(self, execute: Literal["sample", "mean"], generator: Generator) -> Tensor:
        """Return the valid action ``[B, A]`` to execute: the first of a sample or of a mean.

        ``mean`` is the mean of the heaviest component, or what stands for it in the family.
        """
        ...

    def modes(self) -> Tensor:
        """Return one valid sequence per component, ``[B, M, H, A]``, that is worth a try.

        With ``warm_candidates`` these are among the candidates of the first iteration, unless the
        proposal has an attribute ``samples_modes`` that is true: `sample` then returns them.
        """
        ...

    def width(self) -> Tensor:
        """Return how wide the proposal is, ``[B]``, in a unit of the family's choice."""
        ...

    def shift(self, fresh: Any) -> Proposal:
        """Return the proposal for the next control step: the warm start.

        ``fresh`` is the proposal of the same family that would begin an episode. It provides the
        last step of the horizon and everything that does not carry over between control steps.
        """
        ...

    def components(self) -> Components:
        """Return the weight, mean and std of each component."""
        ...


@runtime_checkable
class ValueProposal(Proposal, Protocol):
    """A proposal that is refitted to the values of candidates, not to weights of all of them.

    The optimality, λ and κ have no effect on it. `Diagnostics.weights` are what they give.
    """

    def refit_values(self, actions: Tensor, values: Tensor) -> Proposal:
        """Return the refitted proposal; ``values`` ``[B, N]`` are -inf for rejected candidates."""
        ...


@runtime_checkable
class ReturnsProposal(Proposal, Protocol):
    """A proposal that is refitted to the returns of each particle.

    The optimality, λ and κ have no effect on it, as with a `ValueProposal`.
    """

    def refit_returns(self, actions: Tensor, returns: Tensor, values: Tensor) -> Proposal:
        """Return the refitted proposal.

        Args:
            actions: The candidates, ``[B, N, ...]``.
            returns: Of each particle, ``[B, N, P]``; -inf for rejected candidates, NaN for dead
                particles.
            values: The risk of the returns, ``[B, N]``.
        """
        ...


class Family(Protocol[SpaceT]):
    """A kind of proposal: it makes the one that a control step begins with."""

    @property
    def max_components(self) -> int | None:
        """Largest ``num_components`` of the family; None: no limit."""
        ...

    def start(
        self,
        bounds: SpaceT,
        config: PlannerConfig,
        generator: Generator,
        previous: Any,
        batch_size: int,
    ) -> Proposal:
        """Return the proposal that a control step begins with (Algorithm 2, line 7).

        Args:
            bounds: The action space.
            config: The settings of the planner.
            generator: Source of all randomness.
            previous: The final proposal of the previous control step, or None at the first step
                of an episode. With ``warm_start`` the new proposal is ``previous``, shifted.
            batch_size: Number of problems, B.
        """
        ...
