"""Names of families and optimalities, and the methods that are combinations of them.

Put your own family or optimality into `FAMILIES` or `OPTIMALITIES` to use it by name in a
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from planet_bayes.errors import IMPORT_FIRST, PlannerError, nearest
from planet_bayes.planner._cma import CMA
from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._contract import Family
from planet_bayes.planner._gaussian import GAUSSIAN
from planet_bayes.planner._member_portfolio import MEMBER_PORTFOLIO
from planet_bayes.planner._mixture import MIXTURE
from planet_bayes.planner._optimality import (
    Optimality,
    exponential,
    proportional,
    rank,
    threshold,
)
from planet_bayes.planner._portfolio import PORTFOLIO

PartT = TypeVar("PartT")

FAMILIES: dict[str, Family[Any]] = {
    "gaussian": GAUSSIAN,
    "mixture": MIXTURE,
    "cma": CMA,
    "portfolio": PORTFOLIO,
    "member_portfolio": MEMBER_PORTFOLIO,
}
"""Proposal families by name."""

OPTIMALITIES: dict[str, Optimality] = {
    "threshold": threshold,
    "exponential": exponential,
    "proportional": proportional,
    "rank": rank,
}
"""Optimalities by name."""


def find_family(config: PlannerConfig) -> Family[Any]:
    """Return the family that ``config.proposal`` names."""
    return _named("proposal", config.proposal, FAMILIES)


def find_optimality(config: PlannerConfig) -> Optimality:
    """Return the optimality that ``config.optimality`` names."""
    return _named("optimality", config.optimality, OPTIMALITIES)


def check_components(config: PlannerConfig, family: Family[Any]) -> None:
    """Raise `PlannerError` if the family does not have as many components as the settings say."""
    most = family.max_components
    if most is not None and config.num_components > most:
        raise PlannerError(
            f"num_components is {config.num_components}, but the proposal has at most {most}; set "
            f"num_components to {most}, or choose a proposal with more components, like mixture."
        )


def check_config(config: PlannerConfig) -> None:
    """Raise `PlannerError` if the settings name unknown parts, or parts that do not fit."""
    find_optimality(config)
    check_components(config, find_family(config))


def _named(setting: str, name: str, known: Mapping[str, PartT]) -> PartT:
    if name not in known:
        raise PlannerError(
            f"{setting}: there is no {name!r}{nearest(name, known)} "
            f"Known names: {', '.join(known)}. {IMPORT_FIRST}"
        )
    return known[name]


def _config(defaults: dict[str, Any], settings: dict[str, Any]) -> PlannerConfig:
    return PlannerConfig(**{**defaults, **settings})


def cem(**settings: Any) -> PlannerConfig:
    """Cross-entropy method: one Gaussian, refitted to the top 10 % (Algorithm 1)."""
    return _config({"proposal": "gaussian", "num_components": 1}, settings)


def mppi(**settings: Any) -> PlannerConfig:
    """Model-predictive path integral: one Gaussian, weights exp(R / λ).

    The std is refitted like the mean, as in the law. MPPI often uses a fixed std.
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


def portfolio(**settings: Any) -> PlannerConfig:
    """Portfolio: four Gaussians with their own elites, which merge where no valley parts them."""
    return _config({"proposal": "portfolio", "num_components": 4}, settings)


def member_portfolio(**settings: Any) -> PlannerConfig:
    """Portfolio of five Gaussians, each of which first plans for one member of the model."""
    return _config({"proposal": "member_portfolio", "num_components": 5}, settings)


METHODS: dict[str, Callable[..., PlannerConfig]] = {
    "cem": cem,
    "mppi": mppi,
    "proportional_cem": proportional_cem,
    "cma_es": cma_es,
    "paets": paets,
    "portfolio": portfolio,
    "member_portfolio": member_portfolio,
}
"""Methods by name; each accepts any field of `PlannerConfig` as a keyword."""
