"""The settings of the planner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planet_bayes.errors import PlannerError

MIN_CANDIDATES, MIN_ELITES = 30, 3  # lower limits of candidate_decay, per iteration


@dataclass(frozen=True)
class PlannerConfig:
    """The settings of the optimisation loop. The named methods are values of this record."""

    proposal: str = "mixture"
    """Family of the distribution over action sequences: a name in `FAMILIES`."""
    optimality: str = "threshold"
    """Function from returns to weights: a name in `OPTIMALITIES`."""
    horizon: int = 12
    """Steps imagined ahead (the paper's T)."""
    num_trajectories: int = 1000
    """Trajectories imagined per iteration. Every candidate is imagined by all P particles of the
    model, so an iteration has K = num_trajectories // P candidates."""
    num_iterations: int = 10
    """Iterations of sample, imagine, weigh, refit (U)."""
    num_components: int = 5
    """Components of the proposal (M); must be 1 in families of a single component."""
    temperature: float = 1.0
    """The law's λ, an inverse step size: weights are W^(1/λ)."""
    entropy_weight: float = 0.0
    """The law's κ: weights are multiplied by q^(-κ), which favours unlikely candidates. Here and
    in the refit of a mixture, q is the density before clipping, evaluated at the clipped action."""
    elite_fraction: float = 0.1
    """Fraction of the candidates that pass the threshold, or have a weight by rank."""
    expectation: Literal["before", "after"] = "before"
    """`before`: W = f(E[R]), the paper's heuristic; `after`: W = E[f(R)], its derivation."""
    caution: float = 0.0
    """β: the value of a candidate is the mean of its returns over particles, minus β times their
    std. Negative: optimism."""
    tail: float = 1.0
    """α: the mean is over the worst share α of the particles (CVaR). 1: all. 0: the worst one."""
    initial_std: float = 0.5
    """Std of the proposal at the start of each call, in units of half the action range. The
    paper's σ = ½ is a std in its text and a variance in its appendix: then this is 0.7071."""
    min_std: float = 0.05
    """Lower limit of the refitted std, in the same units; without it, variances reach zero."""
    spread: float = 0.25
    """Std of the random offsets of the component means at the start of an episode, in the same
    units. Components with equal means never separate. The first component has no offset."""
    warm_start: bool = True
    """Start from the previous proposal shifted by one step; else from the middle of the range."""
    execute: Literal["sample", "mean", "best"] = "sample"
    """Returned action: the first of a sequence sampled from the final proposal (the paper's), of
    the mean of its heaviest component, or of the best candidate of the last iteration."""
    warm_candidates: int = 0
    """Number of candidates of the first iteration that are component means instead of samples:
    each mean in turn, the heaviest of the previous plan first, again and again. At least half of
    the candidates are samples. Densities are computed as if all were. A portfolio has its means
    among the candidates of every iteration, and ignores this."""
    keep_elites: int = 0
    """Number of best candidates that an iteration passes on to the next, in place of samples. At
    least half of the candidates are samples. Densities are computed as if all were."""
    candidate_decay: float = 1.0
    """Factor on the number of candidates from one iteration to the next (as in iCEM), down to 30
    candidates or three elites, whichever is more; 1: no decay."""

    def __post_init__(self) -> None:
        for name in ("horizon", "num_trajectories", "num_iterations", "num_components"):
            if getattr(self, name) < 1:
                raise PlannerError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("temperature", "initial_std", "min_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise PlannerError(f"{name} must be positive, got {getattr(self, name)}.")
        for name in ("entropy_weight", "spread", "warm_candidates", "keep_elites"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise PlannerError(f"{name} must not be negative, got {getattr(self, name)}.")
        for name in ("elite_fraction", "candidate_decay"):
            if not 0 < getattr(self, name) <= 1:
                raise PlannerError(f"{name} must be in (0, 1], got {getattr(self, name)}.")
        if not 0 <= self.tail <= 1:
            raise PlannerError(f"tail must be in [0, 1], got {self.tail}.")
        if not abs(self.caution) < float("inf"):
            raise PlannerError(f"caution must be finite, got {self.caution}.")
        if self.expectation == "after" and (self.caution, self.tail) != (0, 1):
            raise PlannerError(
                "caution and tail have no effect on W = E[f(R)]: leave them, or set expectation to "
                "before."
            )
        if self.expectation not in ("before", "after"):
            raise PlannerError(f"expectation must be before or after, got {self.expectation!r}.")
        if self.execute not in ("sample", "mean", "best"):
            raise PlannerError(f"execute must be sample, mean or best, got {self.execute!r}.")

    def num_candidates(self, num_particles: int) -> int:
        """Return K, the number of candidates of an iteration without decay."""
        if self.num_trajectories < num_particles:
            raise PlannerError(
                f"num_trajectories is {self.num_trajectories}, but the model has {num_particles} "
                "particles, and every candidate is imagined by all of them; set num_trajectories "
                f"to at least {num_particles}."
            )
        return self.num_trajectories // num_particles

    def candidates_at(self, iteration: int, num_candidates: int) -> int:
        """Return how many of ``num_candidates`` an iteration has, counted from 0.

        With too few candidates an iteration is useless: its elites say little about a std, and
        components starve by chance. A ``num_candidates`` below that limit is left unchanged.
        """
        least = max(MIN_CANDIDATES, math.ceil(MIN_ELITES / self.elite_fraction))
        decayed = round(num_candidates * self.candidate_decay**iteration)
        return min(num_candidates, max(least, decayed))
