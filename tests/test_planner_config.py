"""Settings: each changes something, and bad ones are refused."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from planet_bayes.errors import PlanetBayesError
from planet_bayes.planner import (
    FAMILIES,
    Bounds,
    PlannerConfig,
    PlannerError,
    PlanResult,
    cem,
    check_config,
    mppi,
    paets,
    plan,
)
from planning import (
    INF,
    NAN,
    PointMass,
    outputs,
    seeded,
)

# For each field: the method on which it must tell, and another value.
KNOBS: dict[str, tuple[PlannerConfig, Any]] = {
    "candidate_decay": (paets(), 0.7),
    "proposal": (cem(), "cma"),
    "optimality": (cem(), "exponential"),
    "horizon": (paets(), 5),
    "num_trajectories": (paets(), 60),
    "num_iterations": (paets(), 4),
    "num_components": (paets(), 3),
    "temperature": (mppi(), 2.0),
    "entropy_weight": (paets(), 0.3),
    "elite_fraction": (paets(), 0.3),
    "expectation": (paets(), "after"),
    "caution": (paets(), 1.0),
    "tail": (paets(), 0.5),
    "initial_std": (paets(), 0.6),
    "min_std": (cem(num_iterations=8), 0.2),
    "spread": (paets(), 0.5),
    "warm_start": (paets(), False),
    "execute": (paets(), "mean"),
    "warm_candidates": (paets(), 3),
    "keep_elites": (paets(), 3),
}


def test_every_setting_has_its_knob_test():
    assert set(KNOBS) == {field.name for field in dataclasses.fields(PlannerConfig)}


@pytest.mark.parametrize("name", KNOBS)
def test_every_setting_changes_something(name):
    base, value = KNOBS[name]
    shrunk: dict[str, Any] = {"num_trajectories": 50, "horizon": 4}
    base = replace(base, num_iterations=max(3, base.num_iterations % 10), **shrunk)
    changed = replace(base, **{name: value})
    assert getattr(base, name) != value

    def run(config: PlannerConfig) -> Tensor:
        previous = None
        if name in ("warm_start", "warm_candidates"):
            previous = plan(PointMass(5), None, Bounds.symmetric(2), base, seeded(9)).proposal
        result = plan(PointMass(5), None, Bounds.symmetric(2), config, seeded(1), previous=previous)
        return outputs(result)

    first, again, other = run(base), run(base), run(changed)
    assert torch.equal(first, again)
    assert first.shape != other.shape or (first - other).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(n, 0) for n in ("horizon", "num_trajectories", "num_iterations", "num_components")],
        *[(n, v) for n in ("temperature", "initial_std", "min_std") for v in (0.0, -1.0, INF, NAN)],
        *[(n, v) for n in ("entropy_weight", "spread") for v in (-0.1, INF, NAN)],
        *[("elite_fraction", v) for v in (0.0, -0.1, 1.1, NAN)],
        *[("candidate_decay", v) for v in (0.0, -0.5, 1.1, INF, NAN)],
        ("warm_candidates", -1),
        ("keep_elites", -1),
        ("expectation", "during"),
        ("execute", "median"),
    ],
)
def test_bad_settings_name_the_field(name, value):
    with pytest.raises(PlannerError, match=name):
        PlannerConfig(**{name: value})


def test_unknown_settings_are_errors():
    with pytest.raises(TypeError, match="num_trajectory"):
        cem(num_trajectory=3)


def ask(config: PlannerConfig, model: Any = None, **options: Any) -> PlanResult:
    return plan(model or PointMass(2), None, Bounds.symmetric(2), config, seeded(), **options)


@pytest.mark.parametrize("proposal", ["gaussian", "cma"])
def test_one_gaussian_has_one_component(proposal: str) -> None:
    config = PlannerConfig(proposal=proposal, num_components=2)
    with pytest.raises(PlannerError, match="num_components is 2, but the proposal has at most 1"):
        ask(config)
    with pytest.raises(PlannerError, match="num_components"):
        check_config(config)
    with pytest.raises(PlannerError, match="num_components"):  # the family is asked, not its name
        ask(paets(), proposal=FAMILIES[proposal])
    check_config(replace(config, num_components=1))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("proposal", "mixtur", "proposal: there is no 'mixtur'; did you mean 'mixture'"),
        ("proposal", "xyz", r"no 'xyz'\. Known names: gaussian, mixture, cma"),
        ("optimality", "treshold", "did you mean 'threshold'"),
        ("optimality", "xyz", "Known names: threshold, exponential, proportional, rank"),
    ],
)
def test_unknown_names_are_errors(name: str, value: str, message: str) -> None:
    config = cem(**{name: value})
    for call in (ask, check_config):
        with pytest.raises(PlannerError, match=message):
            call(config)


def test_errors_of_the_planner_have_the_base_class_of_the_package() -> None:
    assert issubclass(PlannerError, PlanetBayesError)


# --- Trajectories and candidates --------------------------------------------------------------


@dataclass(frozen=True)
class Counted(PointMass):
    """A model that tells the number of its particles."""

    @property
    def num_particles(self) -> int:
        return self.particles


@pytest.mark.parametrize(
    ("trajectories", "particles", "candidates"),
    [(20, 1, 20), (20, 2, 10), (20, 3, 6), (5, 5, 1), (9, 5, 1)],
)
def test_trajectories_are_shared_by_particles(
    trajectories: int, particles: int, candidates: int
) -> None:
    config = paets(horizon=2, num_iterations=2, num_trajectories=trajectories)
    seen = ask(config, Counted(particles)).diagnostics
    assert seen.returns.shape == (1, candidates, particles)
    plain = ask(config, PointMass(particles)).diagnostics  # nothing is known of its particles
    assert plain.returns.shape == (1, trajectories, particles)


def test_fewer_trajectories_than_particles_is_an_error() -> None:
    with pytest.raises(PlannerError, match="num_trajectories is 4, but the model has 5 particles"):
        ask(paets(num_trajectories=4), Counted(5))
