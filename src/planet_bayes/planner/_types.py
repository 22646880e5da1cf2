"""The planner's contract: what a model must offer, what can be set, what comes back.

Axes: B problems, N candidates, P particles (members × latent samples), H horizon,
A action dimensions, M mixture components.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from torch import Generator, Tensor

StateT = TypeVar("StateT", contravariant=True)

_LEAST_CANDIDATES, _LEAST_ELITES = 30, 3  # where candidate_decay ends
_REDDEST = 4  # noise_colour, beyond which its covariance is singular in double precision


class PlannerError(Exception):
    """An argument that the planner cannot work with, or predictions that are not finite."""


class TrajectoryModel(Protocol[StateT]):
    """Anything that can imagine rewards. ``state`` is the model's own affair."""

    def imagine(self, state: StateT, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[B, N, H, A]`` to rewards ``[B, N, P, H]``.

        A deterministic model returns ``P = 1``; an ensemble, one particle per member.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """The box that actions live in."""

    low: Tensor
    """Smallest action, ``[A]``."""
    high: Tensor
    """Largest action, ``[A]``."""

    def __post_init__(self) -> None:
        if self.low.ndim != 1 or self.low.shape != self.high.shape or len(self.low) == 0:
            raise PlannerError(
                "Bounds: low and high must be vectors of one length, got shapes "
                f"{tuple(self.low.shape)} and {tuple(self.high.shape)}."
            )
        if not self.low.is_floating_point() or self.low.dtype != self.high.dtype:
            raise PlannerError(
                "Bounds: low and high must be of one floating-point type, got "
                f"{self.low.dtype} and {self.high.dtype}."
            )
        if not bool(torch.isfinite(self.high - self.low).all()):
            raise PlannerError("Bounds: low and high must be finite; clip or rescale the actions.")
        if not bool((self.low < self.high).all()):
            raise PlannerError(
                f"Bounds: low must be below high everywhere, got low={self.low.tolist()}, "
                f"high={self.high.tolist()}."
            )

    @staticmethod
    def symmetric(num_actions: int, limit: float = 1.0) -> Bounds:
        """Return the box ``[-limit, limit]^A``."""
        high = torch.full((num_actions,), float(limit))
        return Bounds(low=-high, high=high)

    @property
    def centre(self) -> Tensor:
        """Middle of the box, ``[A]``."""
        return (self.low + self.high) / 2

    @property
    def half_range(self) -> Tensor:
        """Half the box's width, ``[A]``: the unit of every ``std`` in `PlannerConfig`."""
        return (self.high - self.low) / 2

    def to(self, device: torch.device) -> Bounds:
        """Return the same bounds on ``device``."""
        return Bounds(self.low.to(device), self.high.to(device))


@dataclass(frozen=True)
class PlannerConfig:
    """All that can be set about the one loop. The named methods are values of this."""

    proposal: str = "mixture"
    """Family of the distribution over action sequences: gaussian, mixture or cma."""
    optimality: str = "threshold"
    """How returns become weights: threshold, exponential, proportional or rank."""
    horizon: int = 12
    """Steps that are imagined ahead (the paper's T)."""
    num_candidates: int = 200
    """Action sequences sampled in each iteration (K); each is imagined by every particle. In a
    training, num_trajectories says how many, unless it is 0."""
    num_iterations: int = 10
    """Rounds of sample, imagine, weigh, refit (U)."""
    num_components: int = 5
    """Components of the mixture (M); a gaussian or cma proposal takes 1 only."""
    temperature: float = 1.0
    """The law's λ, an inverted step size: weights are W^(1/λ)."""
    entropy_weight: float = 0.0
    """The law's κ: weights are multiplied by q^(-κ), which favours unlikely candidates. Here
    and in a mixture's refit, q is the density before clipping, taken at the clipped action."""
    elite_fraction: float = 0.1
    """Share of candidates that pass the threshold, or carry weight by rank."""
    expectation: Literal["before", "after"] = "before"
    """`before`: W = f(E[R]), the paper's heuristic; `after`: W = E[f(R)], its derivation."""
    initial_std: float = 0.5
    """Std of the proposal at the start of each call, in units of half the action range."""
    min_std: float = 0.05
    """Floor of the refitted std, in the same units; without one, variances reach zero."""
    spread: float = 0.25
    """Random offset of component means at the start of an episode, in the same units.
    Components with equal means never separate; the first component has no offset."""
    respread: float = 0.0
    """The same offset again at every warm start: brings merged components apart."""
    min_component_weight: float = 0.0
    """Floor of each mixture weight as a share of 1/M: above 0, a starved component is still
    sampled and can come back within a call."""
    warm_start: bool = True
    """Start from the previous plan shifted by one step; else from the middle of the range."""
    execute: Literal["sample", "mean", "best"] = "sample"
    """The action returned: first of a sequence sampled from the final proposal (the paper's),
    or of the mean of its heaviest component, or of the last iteration's best candidate."""
    noise_colour: float = 0.0
    """Candidates' noise has a power spectrum of 1 / frequency^this along the horizon: 0 is white
    noise (the paper's), 1 pink, 2 red. Slow changes move a body where white noise averages out.
    Densities are taken as if it were white."""
    keep_elites: int = 0
    """This many of an iteration's best candidates are among the next iteration's, in the place
    of new samples, and the components' means among the first iteration's: what was good is
    not lost by chance. At least half of an iteration's are new. Densities are taken as if all
    had been sampled."""
    candidate_decay: float = 1.0
    """Factor on the number of candidates from one iteration to the next (iCEM's), down to 30 or
    what gives three elites; 1: as many in all of them."""
    converged_std: float = 0.0
    """Stop when the proposal is this narrow, in units of half the action range: the root mean
    square of its components' stds, by mixture weight. It must be above min_std, under which no
    std falls. How far components lie apart does not count, so that two narrow plans are
    converged. 0: do all iterations."""

    def __post_init__(self) -> None:
        for name in ("horizon", "num_candidates", "num_iterations", "num_components"):
            if getattr(self, name) < 1:
                raise PlannerError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("temperature", "initial_std", "min_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise PlannerError(f"{name} must be positive, got {getattr(self, name)}.")
        for name in ("entropy_weight", "spread", "respread", "noise_colour"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise PlannerError(f"{name} must not be negative, got {getattr(self, name)}.")
        if not 0 < self.elite_fraction <= 1:
            raise PlannerError(f"elite_fraction must be in (0, 1], got {self.elite_fraction}.")
        if not 0 <= self.min_component_weight < 1:
            raise PlannerError(
                f"min_component_weight must be in [0, 1), got {self.min_component_weight}."
            )
        if not 0 < self.candidate_decay <= 1:
            raise PlannerError(f"candidate_decay must be in (0, 1], got {self.candidate_decay}.")
        if self.converged_std != 0 and not self.min_std < self.converged_std < float("inf"):
            raise PlannerError(
                f"converged_std must be above min_std, {self.min_std}, under which no std falls, "
                f"or 0 for all iterations; got {self.converged_std}."
            )
        if self.expectation not in ("before", "after"):
            raise PlannerError(f"expectation must be before or after, got {self.expectation!r}.")
        if self.execute not in ("sample", "mean", "best"):
            raise PlannerError(f"execute must be sample, mean or best, got {self.execute!r}.")
        if self.noise_colour > _REDDEST:
            raise PlannerError(
                f"noise_colour must be at most {_REDDEST}, got {self.noise_colour}: beyond, a "
                "sequence is one and the same action."
            )
        if self.keep_elites < 0:
            raise PlannerError(f"keep_elites must not be negative, got {self.keep_elites}.")
        if self.num_components > 1 and self.proposal in ("gaussian", "cma"):
            raise PlannerError(
                f"num_components is {self.num_components}, but a {self.proposal} proposal has one; "
                "set proposal to mixture or num_components to 1."
            )

    def candidates_at(self, iteration: int) -> int:
        """Return how many candidates an iteration samples, counted from 0.

        Fewer than the least are not worth an iteration: their elites say little about a std,
        and components starve by chance. Fewer than that from the start are left as they are.
        """
        least = max(_LEAST_CANDIDATES, math.ceil(_LEAST_ELITES / self.elite_fraction))
        decayed = round(self.num_candidates * self.candidate_decay**iteration)
        return min(self.num_candidates, max(least, decayed))


@functools.cache
def colouring(steps: int, colour: float) -> Tensor:
    """Return the matrix ``[H, H]`` that gives white noise over H steps a power-law spectrum.

    What comes out has unit variance at each step, and the covariance of a stationary process
    with power 1 / f^colour at the frequencies of twice the horizon, so that its end is not
    tied to its beginning. The lowest frequency stands for the mean too.
    """
    period = 2 * steps
    frequency = torch.fft.fftfreq(period, dtype=torch.float64).abs()
    power = frequency.clamp(min=1 / period).pow(-colour)
    covariance = torch.fft.ifft(power).real[:steps]
    lag = (torch.arange(steps)[:, None] - torch.arange(steps)).abs()
    return torch.linalg.cholesky((covariance / covariance[0])[lag])


@dataclass(frozen=True)
class ActionNoise:
    """The randomness of one sampling round, drawn apart so that sampling is a pure function."""

    normal: Tensor
    """Standard normal, ``[B, N, H, A]``."""
    uniform: Tensor
    """Uniform in [0, 1), ``[B, N]``: picks the mixture component."""

    @staticmethod
    def draw(shape: tuple[int, int, int, int], like: Tensor, generator: Generator) -> ActionNoise:
        """Draw noise for ``[B, N, H, A]`` samples with the device and dtype of ``like``."""
        options = {"device": like.device, "dtype": like.dtype}
        normal = torch.randn(shape, generator=generator, **options)  # type: ignore[call-overload]
        uniform = torch.rand(shape[:2], generator=generator, **options)  # type: ignore[call-overload]
        return ActionNoise(normal, uniform)

    def coloured(self, colour: float) -> ActionNoise:
        """Return noise with a spectrum of 1 / frequency^colour over the horizon; 0: as it is."""
        if colour == 0:
            return self
        factor = colouring(self.normal.shape[2], colour).to(self.normal)
        return ActionNoise(torch.einsum("hk,bnka->bnha", factor, self.normal), self.uniform)

    def first(self, num: int) -> ActionNoise:
        """Return the noise of the first ``num`` candidates."""
        return ActionNoise(self.normal[:, :num], self.uniform[:, :num])


class Proposal(Protocol):
    """A distribution over action sequences. All methods are pure: they return new objects."""

    @property
    def mean(self) -> Tensor:
        """Component means, ``[B, M, H, A]``."""
        ...

    @property
    def std(self) -> Tensor:
        """Component standard deviations, ``[B, M, H, A]``."""
        ...

    @property
    def log_weights(self) -> Tensor:
        """Log of the mixture weights, ``[B, M]``; zeros for a single component."""
        ...

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return ``[B, N, H, A]`` samples, not clipped."""
        ...

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density ``[B, N]`` of ``actions`` ``[B, N, H, A]``."""
        ...

    def refit(
        self, actions: Tensor, weights: Tensor, floor: Tensor, weight_floor: float
    ) -> Proposal:
        """Return the proposal that fits ``actions`` weighted by ``weights`` ``[B, N]`` best.

        ``floor`` ``[A]`` is the smallest std; ``weight_floor`` the smallest share of 1/M.
        """
        ...


@dataclass(frozen=True)
class Diagnostics:
    """What the last iteration saw, and why it was the last; nothing is hidden."""

    returns: Tensor
    """Imagined returns, ``[B, N, P]``; -inf for rejected candidates, NaN for dead particles."""
    candidates: Tensor
    """The action sequences that were imagined, ``[B, N, H, A]``."""
    weights: Tensor
    """Normalised weights of the candidates, ``[B, N]``."""
    effective_samples: Tensor
    """1 / Σ w², ``[B]``: how many candidates carry the refit."""
    best_return: Tensor
    """Largest expected return among the candidates at each iteration done, ``[B, U]``."""
    effective_components: Tensor
    """exp(entropy of the mixture weights), ``[B]``: between 1 and M."""
    num_rejected: Tensor
    """Candidates with non-finite returns over all iterations, ``[B]``; they got no weight."""
    num_dead_particles: Tensor
    """Particles that were non-finite for every candidate in the last iteration, ``[B]``."""
    stopped_by: Literal["iterations", "converged", "deadline"]
    """All iterations were done, or the std reached ``converged_std``, or one more was not
    expected to fit into the time budget."""

    @property
    def num_iterations(self) -> int:
        """How many iterations were done, at least 1."""
        return self.best_return.shape[-1]


@dataclass(frozen=True)
class PlanResult:
    """The action to execute, and the proposal to hand to the next call."""

    action: Tensor
    """First action, within bounds, ``[B, A]``."""
    plan: Proposal
    """The final proposal; pass it as ``previous`` at the next step of the same episode."""
    diagnostics: Diagnostics
