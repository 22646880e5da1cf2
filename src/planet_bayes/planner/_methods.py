"""Named methods: each is a proposal, an optimality, λ and κ for the same loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planet_bayes.planner._types import PlannerConfig


def _config(defaults: dict[str, Any], settings: dict[str, Any]) -> PlannerConfig:
    return PlannerConfig(**{**defaults, **settings})


def cem(**settings: Any) -> PlannerConfig:
    """Cross-entropy method: one Gaussian, refitted to the top 10 % (Algorithm 1)."""
    return _config({"proposal": "gaussian", "num_components": 1}, settings)


def mppi(**settings: Any) -> PlannerConfig:
    """Model-predictive path integral: one Gaussian, weights exp(R / λ).

    The std is refitted like the mean, as the law says; MPPI is often run with a fixed one.
    """
    defaults = {"proposal": "gaussian", "num_components": 1, "optimality": "exponential"}
    return _config(defaults, settings)


def proportional_cem(**settings: Any) -> PlannerConfig:
    """Proportional CEM: one Gaussian, weights proportional to the return above the worst."""
    defaults = {"proposal": "gaussian", "num_components": 1, "optimality": "proportional"}
    return _config(defaults, settings)


def cma_es(**settings: Any) -> PlannerConfig:
    """CMA-ES: rank weights of the better half, step size and diagonal covariance adapted."""
    defaults = {
        "proposal": "cma",
        "num_components": 1,
        "optimality": "rank",
        "elite_fraction": 0.5,
    }
    return _config(defaults, settings)


def paets(**settings: Any) -> PlannerConfig:
    """PaETS: a mixture of five Gaussians, refitted to the top 10 % (Eq. 18)."""
    return _config({"proposal": "mixture", "num_components": 5}, settings)


METHODS: dict[str, Callable[..., PlannerConfig]] = {
    "cem": cem,
    "mppi": mppi,
    "proportional_cem": proportional_cem,
    "cma_es": cma_es,
    "paets": paets,
}
"""The named methods; each takes any field of `PlannerConfig` as a keyword."""
