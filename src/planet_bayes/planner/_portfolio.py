"""A portfolio of plans: components that search apart and merge where no valley separates them.

PaETS has one elite threshold for all components, which soon feeds only one of them. Here every
component has its own samples and elites. Two components are the same plan if the middle between
their means is as good as the worse of the two: then they merge, and one leaves its samples to the
others. On a problem with one good plan the portfolio becomes the cross-entropy method.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor

from planet_bayes.errors import PlannerError
from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._contract import Components, Proposal
from planet_bayes.planner._gaussian import (
    GaussianFamily,
    components_at,
    draw_noise,
    mixture_log_joint,
    normal_log_prob,
    relative_width,
    shifted,
    weighted_moments,
)
from planet_bayes.planner._noise import ActionNoise
from planet_bayes.planner._optimality import pass_threshold
from planet_bayes.planner._spaces import Bounds

MIN_ELITES = 5
"""Least number of elites of a component, where it has as many candidates and none tie."""
SEARCH_SHARE = 0.3
"""Share of the iterations before components can merge: until then means have hardly moved."""
BEST_SHARE = 1.25
"""Samples of the best component for each sample of another one."""
NEW_STD = 1.0
"""Least std of a new component in units of half the range; one that goes on has ``initial_std``."""
RENEWAL = 4
"""Control steps from one new component to the next."""
GOLDEN_RATIO, NOBODY = 0.6180339887498949, -1


@dataclass(frozen=True)
class Portfolio:
    """Up to M diagonal Gaussians over whole sequences, each refitted to its own elites."""

    mean: Tensor
    """``[B, M, H, A]``."""
    std: Tensor
    """``[B, M, H, A]``."""
    alive: Tensor
    """Which components are sampled, ``[B, M]``."""
    value: Tensor
    """Mean value of the elites of each component, ``[B, M]``; -inf before its first refit."""
    rival: Tensor
    """The better component with the nearest mean, ``[B, M]``, or the component itself."""
    bounds: Bounds
    """The action space; samples are clipped to it."""
    floor: Tensor
    """Lower limit of the refitted std, ``[A]``."""
    elite_fraction: float
    """Elites of a component as a fraction of its candidates."""
    waiting: int
    """Iterations until components can merge."""
    warm_std: float
    """Std of a component that continues a plan, in units of half the action range."""
    control_steps: int = 0
    """Control steps since the start of the episode."""
    samples_modes: ClassVar[bool] = True  # so ``warm_candidates`` has no effect

    @property
    def log_weights(self) -> Tensor:
        """Log of the components' shares of the samples, ``[B, M]``."""
        return self.weights().log()

    def weights(self) -> Tensor:
        """Return the shares of the samples, ``[B, M]``: all alike, the best a little more."""
        shares = self.alive.to(self.mean.dtype)
        known = self.alive & (self.value > -torch.inf)
        best = torch.where(known, self.value, -torch.inf).argmax(-1, keepdim=True)
        bonus = (BEST_SHARE - 1) * known.any(-1, keepdim=True).to(shares)
        shares = shares.scatter_add(1, best, bonus)
        return shares / shares.sum(-1, keepdim=True)

    def draw_noise(self, num: int, generator: Generator) -> ActionNoise:
        """Draw the noise of ``num`` samples per problem."""
        return draw_noise(self.mean, num, generator)

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return clipped candidates ``[B, N, H, A]``, each component with its share of them.

        The means of living components take the first M places, and the midpoints to their rivals
        the next M. Where a component is dead or has no rival, a sample stays.
        """
        batch, num, *_ = noise.normal.shape
        count = self.mean.shape[1]
        if num < 4 * count:
            raise PlannerError(
                f"portfolio: {count} components need at least {4 * count} candidates in an "
                f"iteration, and there are {num}; lower num_components, or raise num_trajectories "
                "or candidate_decay."
            )
        # Any run of multiples of the golden ratio fills [0, 1) evenly.
        places = torch.arange(num, device=self.mean.device, dtype=torch.float64)
        levels = ((places + 0.5) * GOLDEN_RATIO % 1).to(self.mean.dtype).expand(batch, num)
        index = components_at(self.weights(), levels)  # [B, N]
        rows = torch.arange(batch, device=index.device).unsqueeze(-1)
        samples = torch.addcmul(self.mean[rows, index], self.std[rows, index], noise.normal)
        middles = (self.mean + self.mean[rows, self.rival]) / 2
        front = torch.cat([self.mean, middles], 1)  # [B, 2M, H, A]
        used = torch.cat([self.alive, self._contested()], 1)[..., None, None]
        samples[:, : 2 * count] = torch.where(used, front, samples[:, : 2 * count])
        return self.bounds.clip(samples)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density before clipping, ``[B, N]``."""
        return mixture_log_joint(actions, self.log_weights, self.mean, self.std).logsumexp(1)

    def refit(self, actions: Tensor, weights: Tensor) -> Portfolio:
        """Refit to the candidates by their weights in place of values; see `refit_values`."""
        return self.refit_values(actions, weights)

    def refit_values(self, actions: Tensor, values: Tensor) -> Portfolio:
        """Return each component refitted to the best of its own candidates ``[B, N, H, A]``.

        A candidate belongs to the living component under which it is most likely, a mean to its
        own, and a midpoint to none. ``values`` are ``[B, N]``; -inf for rejected candidates.
        """
        count = self.mean.shape[1]
        values = torch.where(values.isnan(), -torch.inf, values)
        contested = self._contested()
        of_means, middles = values[:, :count], values[:, count : 2 * count]
        worse = torch.minimum(of_means, of_means.gather(1, self.rival))
        merged = contested & (middles >= worse) & (middles > -torch.inf)
        owner = self._owners(actions, contested, merged)  # [B, N]
        survive = self.alive & ~merged

        own = owner.unsqueeze(1) == torch.arange(count, device=owner.device).view(1, -1, 1)
        values = torch.where(own, values.unsqueeze(1), -torch.inf)  # [B, M, N]
        elite = _elites(values, self.elite_fraction)
        number = elite.sum(-1)
        refitted = (survive & (number > 0))[..., None, None]
        share = elite.to(actions.dtype) / number.clamp(min=1).unsqueeze(-1)
        mean, std = weighted_moments(actions, share, self.floor)
        best = values.amax(-1, keepdim=True)  # as the offset: the mean of equal values is exact
        below = torch.where(elite, values - best, 0.0)
        value = torch.where(survive, best[..., 0] + (below * share).sum(-1), -torch.inf)
        mean = torch.where(refitted, mean, self.mean)
        return dataclasses.replace(
            self,
            mean=mean,
            std=torch.where(refitted, std, self.std),
            alive=survive,
            value=value,
            rival=_rivals(mean, value, survive),
            waiting=max(0, self.waiting - 1),
        )

    def _contested(self) -> Tensor:
        """Return which components may merge with their rivals now, ``[B, M]``."""
        itself = torch.arange(self.mean.shape[1], device=self.rival.device)
        return self.alive & (self.rival != itself) & (self.waiting == 0)

    def _owners(self, actions: Tensor, contested: Tensor, merged: Tensor) -> Tensor:
        """Return the component that each candidate belongs to, ``[B, N]``, or `NOBODY`."""
        count = self.mean.shape[1]
        itself = torch.arange(count, device=actions.device).expand(len(actions), count)
        likely = normal_log_prob(actions, self.mean, self.std)  # [B, M, N]
        owner = torch.where(self.alive.unsqueeze(-1), likely, -torch.inf).argmax(1)
        owner[:, :count] = torch.where(self.alive, itself, owner[:, :count])
        middles = slice(count, 2 * count)
        owner[:, middles] = owner[:, middles].masked_fill(contested, NOBODY)
        # The rival of a rival can merge too: follow the rivals to one that does not.
        heir = torch.where(merged, self.rival, itself)
        for _ in range(count):
            heir = heir.gather(1, heir)
        return torch.where(owner == NOBODY, NOBODY, heir.gather(1, owner.clamp(min=0)))

    def first_action(self, execute: Literal["sample", "mean"], generator: Generator) -> Tensor:
        """Return the first action of the best component: of its mean or a sample, ``[B, A]``."""
        rows = torch.arange(len(self.mean), device=self.mean.device)
        best = self.weights().argmax(-1)
        action = self.mean[rows, best, 0]
        if execute == "sample":
            noise = self.draw_noise(1, generator).normal[:, 0, 0]
            action = action + self.std[rows, best, 0] * noise
        return self.bounds.clip(action)

    def modes(self) -> Tensor:
        """Return the means, clipped, ``[B, M, H, A]``."""
        return self.bounds.clip(self.mean)

    def width(self) -> Tensor:
        """Return the root mean square of the stds in units of half the action range, ``[B]``."""
        return relative_width(self.components(), self.bounds)

    def shift(self, fresh: Any) -> Proposal:
        """Return the living plans shifted by one step.

        At every `RENEWAL`-th step one dead component begins again and may find a new plan.
        """
        if not isinstance(fresh, Portfolio):
            return shifted(self.mean, fresh)
        steps = self.control_steps + 1
        newborn = ~self.alive & ((~self.alive).cumsum(-1) == 1) & (steps % RENEWAL == 0)
        warm: Any = shifted(self.mean, fresh)
        living = self.alive[..., None, None]
        std = (fresh.warm_std * fresh.bounds.half_range).expand_as(fresh.std)
        return dataclasses.replace(
            warm,
            mean=torch.where(living, warm.mean, fresh.mean),
            std=torch.where(living, std, fresh.std),
            alive=self.alive | newborn,
            value=self.value,
            control_steps=steps,
        )

    def components(self) -> Components:
        """Return the share, mean and std of each component."""
        return Components(self.weights(), self.mean, self.std)


def _elites(values: Tensor, fraction: float) -> Tensor:
    """Return which candidates ``[B, M, N]`` are elites; values are -inf for those of others."""
    number = (values > -torch.inf).sum(-1, keepdim=True)  # [B, M, 1]
    least = number.clamp(max=MIN_ELITES)
    wanted = torch.maximum((fraction * number).round().long(), least)
    return pass_threshold(values, wanted)


def _rivals(mean: Tensor, value: Tensor, alive: Tensor) -> Tensor:
    """Return the better living component with the nearest mean, or the component itself."""
    better = (value.unsqueeze(1) > value.unsqueeze(2)) & alive.unsqueeze(1)  # [B, M, M]
    flat = mean.flatten(2)
    distance = (flat.unsqueeze(2) - flat.unsqueeze(1)).square().sum(-1)
    nearest = torch.where(better, distance, torch.inf).argmin(-1)
    itself = torch.arange(mean.shape[1], device=mean.device).expand_as(nearest)
    return torch.where(better.any(-1), nearest, itself)


def first_portfolio(
    mean: Tensor,
    std: Tensor,
    bounds: Bounds,
    floor: Tensor,
    *,
    elite_fraction: float,
    waiting: int,
    warm_std: float,
) -> Portfolio:
    """Return a portfolio with these moments ``[B, M, H, A]`` in which all components live."""
    alive = torch.ones(mean.shape[:2], dtype=torch.bool, device=mean.device)
    rival = torch.arange(mean.shape[1], device=mean.device).expand(mean.shape[:2])
    unknown = mean.new_full(mean.shape[:2], -torch.inf)
    std = torch.maximum(std, NEW_STD * bounds.half_range)
    return Portfolio(
        *(mean, std, alive, unknown, rival, bounds, floor),
        elite_fraction=elite_fraction,
        waiting=waiting,
        warm_std=warm_std,
    )


@dataclass(frozen=True)
class PortfolioFamily:
    """The family of portfolios; a control step begins as in `GaussianFamily`."""

    max_components: int | None = None

    def start(
        self,
        bounds: Bounds,
        config: PlannerConfig,
        generator: Generator,
        previous: Any,
        batch_size: int,
    ) -> Proposal:
        """Return the proposal that a control step begins with."""
        used = (config.optimality, config.expectation, config.entropy_weight)
        if used != ("threshold", "before", 0):
            raise PlannerError(
                "portfolio: each component has its own elites by the value of the candidates; set "
                "optimality to threshold, expectation to before and entropy_weight to 0."
            )
        make = partial(
            first_portfolio,
            elite_fraction=config.elite_fraction,
            waiting=max(1, round(SEARCH_SHARE * config.num_iterations)),
            warm_std=config.initial_std,
        )
        return GaussianFamily(make, None).start(bounds, config, generator, previous, batch_size)


PORTFOLIO = PortfolioFamily()
