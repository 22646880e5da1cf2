"""Variational-inference MPC for any model: it needs PyTorch only.

```python
result = plan(model, state, Bounds.symmetric(2), paets(horizon=20), torch.Generator())
```

``model`` is any object with ``imagine(state, actions, generator) -> rewards``. Importing
this package does not load PyTorch: its settings are read where nothing is computed.
"""

from typing import TYPE_CHECKING

from planet_bayes.errors import PlannerError
from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.planner._cma import SeparableCMA
    from planet_bayes.planner._config import PlannerConfig
    from planet_bayes.planner._contract import (
        Components,
        Family,
        Noise,
        Proposal,
        ReturnsProposal,
        TrajectoryModel,
        ValueProposal,
    )
    from planet_bayes.planner._deadline import Deadline
    from planet_bayes.planner._gaussian import Gaussian, GaussianFamily
    from planet_bayes.planner._member_portfolio import MemberPortfolio
    from planet_bayes.planner._methods import (
        FAMILIES,
        METHODS,
        OPTIMALITIES,
        cem,
        check_config,
        cma_es,
        member_portfolio,
        mppi,
        paets,
        portfolio,
        proportional_cem,
    )
    from planet_bayes.planner._mixture import Mixture
    from planet_bayes.planner._noise import ActionNoise
    from planet_bayes.planner._optimality import Optimality
    from planet_bayes.planner._plan import plan
    from planet_bayes.planner._portfolio import Portfolio
    from planet_bayes.planner._result import Diagnostics, PlanResult
    from planet_bayes.planner._risk import Risk, cautious, mean, weighted_mean
    from planet_bayes.planner._spaces import Bounds

__all__ = [
    "FAMILIES",
    "METHODS",
    "OPTIMALITIES",
    "ActionNoise",
    "Bounds",
    "Components",
    "Deadline",
    "Diagnostics",
    "Family",
    "Gaussian",
    "GaussianFamily",
    "MemberPortfolio",
    "Mixture",
    "Noise",
    "Optimality",
    "PlanResult",
    "PlannerConfig",
    "PlannerError",
    "Portfolio",
    "Proposal",
    "ReturnsProposal",
    "Risk",
    "SeparableCMA",
    "TrajectoryModel",
    "ValueProposal",
    "cautious",
    "cem",
    "check_config",
    "cma_es",
    "mean",
    "member_portfolio",
    "mppi",
    "paets",
    "plan",
    "portfolio",
    "proportional_cem",
    "weighted_mean",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "_cma": ("SeparableCMA",),
        "_config": ("PlannerConfig",),
        "_contract": (
            "Components",
            "Family",
            "Noise",
            "Proposal",
            "ReturnsProposal",
            "TrajectoryModel",
            "ValueProposal",
        ),
        "_deadline": ("Deadline",),
        "_gaussian": ("Gaussian", "GaussianFamily"),
        "_member_portfolio": ("MemberPortfolio",),
        "_methods": (
            *("FAMILIES", "METHODS", "OPTIMALITIES", "check_config"),
            *("cem", "cma_es", "member_portfolio", "mppi", "paets", "portfolio"),
            "proportional_cem",
        ),
        "_mixture": ("Mixture",),
        "_noise": ("ActionNoise",),
        "_optimality": ("Optimality",),
        "_plan": ("plan",),
        "_portfolio": ("Portfolio",),
        "_result": ("Diagnostics", "PlanResult"),
        "_risk": ("Risk", "cautious", "mean", "weighted_mean"),
        "_spaces": ("Bounds",),
    },
)
