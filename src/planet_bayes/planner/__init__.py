"""Variational-inference MPC, usable alone: bring a model, get actions.

```python
result = plan(model, state, Bounds.symmetric(2), paets(horizon=20), torch.Generator())
```

``model`` is any object with ``imagine(state, actions, generator) -> rewards``.
"""

from planet_bayes.planner._cma import SeparableCMA
from planet_bayes.planner._deadline import Deadline
from planet_bayes.planner._methods import METHODS, cem, cma_es, mppi, paets, proportional_cem
from planet_bayes.planner._optimality import Optimality
from planet_bayes.planner._plan import OPTIMALITIES, PROPOSALS, plan
from planet_bayes.planner._proposals import Gaussian, Mixture
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

__all__ = [
    "METHODS",
    "OPTIMALITIES",
    "PROPOSALS",
    "ActionNoise",
    "Bounds",
    "Deadline",
    "Diagnostics",
    "Gaussian",
    "Mixture",
    "Optimality",
    "PlanResult",
    "PlannerConfig",
    "PlannerError",
    "Proposal",
    "SeparableCMA",
    "TrajectoryModel",
    "cem",
    "cma_es",
    "mppi",
    "paets",
    "plan",
    "proportional_cem",
]
