"""Parts from outside the package: a categorical family, an optimality and a risk of one's own."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import planet_bayes.planner
from planet_bayes.planner import (
    FAMILIES,
    OPTIMALITIES,
    Bounds,
    Family,
    PlannerConfig,
    PlannerError,
    PlanResult,
    Proposal,
    cem,
    mean,
    paets,
    plan,
)
from planning import NAN, PointMass, Quadratic, Table, outputs, seeded
from plugins.optimality import soft_threshold, worst
from plugins.proposal import Categorical, CategoricalFamily, Discrete

CODE = torch.tensor([2, 0, 3, 1, 1])
NUM_CHOICES = 4


@dataclass(frozen=True)
class Lock:
    """Reward 1 at each step whose choice is that of the code."""

    code: Tensor = CODE

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        assert set(actions.unique().tolist()) <= {0.0, 1.0}
        assert (actions.sum(-1) == 1).all()
        right = actions.argmax(-1) == self.code[: actions.shape[2]]
        return right.to(actions.dtype).unsqueeze(2)


def choose(config: PlannerConfig, **options: Any) -> PlanResult:
    options = {"proposal": CategoricalFamily(), **options}
    return plan(Lock(), None, Discrete(NUM_CHOICES), config, seeded(), **options)


def discrete(**settings: Any) -> PlannerConfig:
    return cem(**{"horizon": len(CODE), "num_trajectories": 200, "execute": "mean", **settings})


@pytest.mark.parametrize("optimality", sorted(OPTIMALITIES))
@pytest.mark.parametrize("expectation", ["before", "after"])
def test_the_loop_finds_the_best_of_discrete_sequences(optimality: str, expectation: str) -> None:
    config = discrete(optimality=optimality, expectation=expectation, num_iterations=15)
    result = choose(config, batch_size=2)
    assert isinstance(result.proposal, Categorical)
    assert result.proposal.probs.argmax(-1).tolist() == [CODE.tolist()] * 2
    assert result.action.argmax(-1).tolist() == [CODE[0].item()] * 2
    assert (result.diagnostics.best_return[:, -1] == len(CODE)).all()
    assert result.diagnostics.effective_components.tolist() == [1, 1]
    assert (result.diagnostics.width < 1).all()


@pytest.mark.parametrize("execute", ["sample", "mean", "best"])
def test_every_way_of_acting_returns_a_choice(execute: str) -> None:
    action = choose(discrete(execute=execute, num_iterations=10)).action
    assert sorted(action[0].tolist()) == [0, 0, 0, 1]


def test_all_settings_of_the_loop_apply() -> None:
    config = discrete(keep_elites=3, candidate_decay=0.7, entropy_weight=0.1, num_iterations=6)
    seen = choose(config).diagnostics
    assert (seen.best_return[0].diff() >= 0).all()  # kept elites lose nothing
    assert seen.weights.shape == (1, round(200 * 0.7**5))
    assert choose(config, time_budget=1e-9).diagnostics.stopped_by == "deadline"


def test_a_warm_start_shifts_the_plan() -> None:
    first = choose(discrete())
    again = choose(discrete(num_iterations=1, initial_std=1.0), previous=first.proposal)
    cold = choose(discrete(num_iterations=1, warm_start=False), previous=first.proposal)
    best = first.proposal.components().mean[0, 0].argmax(-1)
    begin = CategoricalFamily().start(
        Discrete(NUM_CHOICES), discrete(), seeded(), first.proposal, 1
    )
    assert begin.probs[0, :-1].argmax(-1).tolist() == best[1:].tolist()
    assert not torch.equal(again.diagnostics.candidates, cold.diagnostics.candidates)
    with pytest.raises(PlannerError, match="previous"):
        choose(discrete(horizon=3), previous=first.proposal)


def test_a_proposal_of_another_family_is_refused_as_a_warm_start() -> None:
    previous = choose(discrete(num_iterations=1)).proposal
    model = Quadratic(torch.zeros(()))
    with pytest.raises(PlannerError, match=r"previous: expected a Gaussian .* got Categorical"):
        plan(model, None, Bounds.symmetric(4), discrete(), seeded(), previous=previous)


def test_one_component_only() -> None:
    with pytest.raises(PlannerError, match="num_components is 5"):
        choose(paets(num_trajectories=20))


def test_a_family_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "categorical", CategoricalFamily())
    config = discrete(num_iterations=4)
    named = choose(dataclasses.replace(config, proposal="categorical"), proposal=None)
    assert torch.equal(outputs(named), outputs(choose(config)))


def test_an_object_wins_over_the_name() -> None:
    result = choose(discrete(proposal="no such name", num_iterations=2))
    assert isinstance(result.proposal, Categorical)
    config = cem(optimality="no such name", horizon=2, num_trajectories=20)
    weighed = plan(
        PointMass(2), None, Bounds.symmetric(2), config, seeded(), optimality=soft_threshold
    )
    assert torch.isfinite(weighed.action).all()


def test_an_optimality_as_object_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMALITIES, "soft", soft_threshold)
    model, bounds = Quadratic(torch.tensor([0.4, -0.6])), Bounds.symmetric(2)
    config = paets(horizon=3, num_trajectories=200, execute="mean")
    given = plan(model, None, bounds, config, seeded(), optimality=soft_threshold)
    named = plan(model, None, bounds, dataclasses.replace(config, optimality="soft"), seeded())
    assert torch.equal(outputs(given), outputs(named))
    assert not torch.equal(outputs(given), outputs(plan(model, None, bounds, config, seeded())))
    torch.testing.assert_close(given.action[0], model.goal, rtol=0, atol=0.1)


def test_an_optimality_of_the_wrong_shape_is_an_error() -> None:
    config = cem(horizon=2, num_trajectories=20)
    with pytest.raises(PlannerError, match="optimality: expected"):
        plan(
            PointMass(2),
            None,
            Bounds.symmetric(2),
            config,
            seeded(),
            optimality=lambda returns, config: returns.mean(-1),
        )


# --- Risk -------------------------------------------------------------------------------------

# The mean prefers the first candidate, the most pessimistic particle the second.
RISKY = torch.tensor([[9.0, -3.0], [1.0, 2.0], [0.0, 0.0], [-5.0, 1.0]])


def weigh(table: Tensor, **options: Any) -> PlanResult:
    config = cem(horizon=1, num_trajectories=len(table), num_iterations=1, elite_fraction=0.25)
    config = dataclasses.replace(config, execute="best", **options.pop("settings", {}))
    return plan(Table(table), None, Bounds.symmetric(1), config, seeded(), **options)


def test_a_risk_replaces_the_mean_over_particles() -> None:
    assert weigh(RISKY).diagnostics.weights.tolist() == [[1, 0, 0, 0]]
    assert torch.equal(outputs(weigh(RISKY, risk=mean)), outputs(weigh(RISKY)))
    careful = weigh(RISKY, risk=worst)
    assert careful.diagnostics.weights.tolist() == [[0, 1, 0, 0]]
    assert careful.diagnostics.best_return.tolist() == [[1]]
    assert torch.equal(careful.action[0], careful.diagnostics.candidates[0, 1, 0])


def test_a_risk_does_not_change_weights_after_the_expectation() -> None:
    settings = {"expectation": "after"}
    neutral = weigh(RISKY, settings=settings).diagnostics.weights
    assert torch.equal(weigh(RISKY, settings=settings, risk=worst).diagnostics.weights, neutral)


def test_a_risk_sees_dead_particles_and_rejected_candidates() -> None:
    table = RISKY.clone()
    table[:, 0] = NAN
    assert weigh(table, risk=worst).diagnostics.weights.tolist() == [[0, 1, 0, 0]]
    table = RISKY.clone()
    table[1, 0] = NAN
    assert weigh(table, risk=worst).diagnostics.weights.tolist() == [[0, 0, 1, 0]]


def test_a_risk_of_the_wrong_shape_is_an_error() -> None:
    with pytest.raises(PlannerError, match="risk: expected"):
        weigh(RISKY, risk=lambda returns: returns)


# --- The contract -----------------------------------------------------------------------------


def test_the_parts_fit_the_protocols() -> None:
    """The type checker would say the same of the plug-ins; here by the names of their methods."""
    for protocol, parts in (
        (Family, [CategoricalFamily(), *FAMILIES.values()]),
        (Proposal, [choose(discrete(num_iterations=1)).proposal]),
    ):
        names = {name for name in vars(protocol) if not name.startswith("_")}
        assert names
        for part in parts:
            assert all(hasattr(part, name) for name in names)


def test_the_loop_knows_no_family_by_name() -> None:
    source = (Path(planet_bayes.planner.__file__).parent / "_plan.py").read_text()
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    assert not names & {"std", "log_weights", "low", "high", "clamp", "half_range"}
    for module in ("_gaussian", "_mixture", "_cma", "_spaces", "_noise"):
        assert f"planner.{module}" not in source


def test_no_import_cycle_in_the_planner() -> None:
    folder = Path(planet_bayes.planner.__file__).parent
    arrows = {
        path.stem: {
            node.module.rsplit(".", 1)[1]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and node.module is not None
            and node.module.startswith("planet_bayes.planner.")
        }
        for path in folder.glob("_[a-z]*.py")
    }
    while arrows:
        free = [name for name, others in arrows.items() if not others & set(arrows)]
        assert free, f"cycle among {sorted(arrows)}"
        for name in free:
            del arrows[name]
