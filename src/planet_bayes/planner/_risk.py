"""Risk: how the returns of the particles become one value per candidate.

A risk is a function from returns ``[B, N, P]`` to values ``[B, N]``. NaN marks a dead particle,
which must not count. The returns of a rejected candidate are -inf, and so must its value be.

With ``expectation`` "before", the optimality sees these values. In both settings they rank the
candidates for ``keep_elites``, ``execute`` "best" and `Diagnostics.best_return`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

Risk = Callable[[Tensor], Tensor]


def mean(returns: Tensor) -> Tensor:
    """Risk-neutral: the mean over the living particles."""
    if returns.device.type == "cpu":
        values = returns.mean(-1)
        if not math.isnan(values.sum()):  # no particle is dead
            return values
    return returns.nanmean(-1)
