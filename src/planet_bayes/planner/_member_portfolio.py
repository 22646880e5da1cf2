"""A portfolio in which each component first plans for one member of the model.

Where members disagree, each has a best plan of its own, and these are the modes of the posterior
over plans. A search by the members' mean finds one of them at best. Here component m searches by
the return of member m mod P, until it knows that member's plan. Then all components are judged by
the mean over members, and merge where they are the same plan.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._contract import Proposal
from planet_bayes.planner._portfolio import PORTFOLIO, Portfolio
from planet_bayes.planner._spaces import Bounds

APART_SHARE = 0.6
"""Share of the iterations in which components plan apart. The last iteration is never one."""


@dataclass(frozen=True)
class MemberPortfolio(Portfolio):
    """A `Portfolio` whose components plan apart for some iterations, each for one member."""

    apart: int = 0
    """Iterations that are still planned apart."""

    def refit_returns(self, actions: Tensor, returns: Tensor, values: Tensor) -> MemberPortfolio:
        """Return each component refitted to the best of its own candidates ``[B, N, H, A]``.

        While components plan apart, a candidate has the return of its component's member, and
        nothing merges. A member that is dead has the value of all in its place.

        Args:
            actions: The candidates.
            returns: Of each member, ``[B, N, P]``; -inf for rejected candidates, NaN for members
                that are dead.
            values: Of all members together, ``[B, N]``.
        """
        if self.apart:
            nothing = self.alive.new_zeros(self.alive.shape)
            member = self._owners(actions, nothing, nothing) % returns.shape[-1]  # [B, N]
            own = returns.gather(2, member.unsqueeze(-1)).squeeze(-1)
            values = own.where(~own.isnan(), values)
        refitted: Any = self.refit_values(actions, values)
        return dataclasses.replace(refitted, apart=max(0, self.apart - 1))


@dataclass(frozen=True)
class MemberPortfolioFamily:
    """The family of `MemberPortfolio`; a control step begins as with a `Portfolio`."""

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
        begin: Any = PORTFOLIO.start(bounds, config, generator, previous, batch_size)
        apart = min(round(APART_SHARE * config.num_iterations), config.num_iterations - 1)
        fields = {**vars(begin), "waiting": max(begin.waiting, apart)}
        return MemberPortfolio(**fields, apart=apart)


MEMBER_PORTFOLIO = MemberPortfolioFamily()
