"""The curves of finished runs, as they are stored under ``results/``.

The curve of a run is ``FOLDER/<method>/<task>-<observation>/seed-<n>.csv``, and its settings are
beside it in ``seed-<n>.json``. The commits that it was made from are in ``seed-<n>.commits.json``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planet_bayes.errors import RunError

PATTERN = "*/*/seed-*.csv"
BASELINES = "baselines.json"
COSTS = "costs.json"


@dataclass(frozen=True, order=True)
class RunName:
    """What distinguishes a run from the others of an experiment."""

    method: str
    task: str
    observation: str
    """The sources, such as sensors or pixels+sensors."""
    seed: int

    @staticmethod
    def of(path: Path) -> RunName:
        """Return the name of the run whose curve or settings are at ``path``."""
        try:
            method, body = path.parts[-3:-1]
            task, dash, observation = body.rpartition("-")
            seed = int(path.stem.removeprefix("seed-"))
            if dash:
                return RunName(method, task, observation, seed)
        except ValueError:
            pass
        raise RunError(f"{path}: expected <method>/<task>-<observation>/seed-<n>.csv.")

    @property
    def path(self) -> Path:
        """Path within an experiment's folder, without a suffix."""
        return Path(self.method) / f"{self.task}-{self.observation}" / f"seed-{self.seed}"

    @property
    def group(self) -> tuple[str, str, str]:
        """Method, task and observation: what seeds are compared within."""
        return self.method, self.task, self.observation


@dataclass(frozen=True)
class Curve:
    """One run's curve."""

    run: RunName
    episode: list[int]
    train_return: list[float | None]
    evaluation_return: list[float | None]
    cpu_minutes: list[float]
    steps: list[int]
    """Steps of the agent so far, those of the seed episodes included, and those of evaluations
    not. The environment may repeat each action for several steps of its own."""
    updates: list[int] = field(default_factory=list)
    """Gradient updates so far."""

    @property
    def evaluations(self) -> list[float]:
        """The noise-free evaluations, in their order."""
        return [value for value in self.evaluation_return if value is not None]


def read_curve(path: Path) -> Curve:
    """Read a metrics.csv that was archived as a result."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> list[float | None]:
        return [float(row[name]) if row.get(name) else None for row in rows]

    return Curve(
        run=RunName.of(path),
        episode=[int(row["episode"]) for row in rows],
        train_return=column("train_return"),
        evaluation_return=column("evaluation_return"),
        cpu_minutes=[float(row["cpu_minutes"]) for row in rows],
        steps=[int(row["steps"]) for row in rows],
        updates=[int(row["updates"]) for row in rows if row.get("updates")],
    )


Group = tuple[str, str, str]
"""Method, task and observation."""


def read_curves(folder: Path) -> dict[Group, list[Curve]]:
    """Return the curves in a folder of results, by method, task and observation."""
    groups: dict[Group, list[Curve]] = {}
    for path in sorted(folder.glob(PATTERN)):
        curve = read_curve(path)
        groups.setdefault(curve.run.group, []).append(curve)
    if not groups:
        raise RunError(
            f"{folder} has no curves: expected <method>/<task>-<observation>/seed-<n>.csv in it."
        )
    return groups


def has_variants(folder: Path) -> bool:
    """Return whether a folder of results has variants, each with curves, and none of its own."""
    return not any(folder.glob(PATTERN)) and any(folder.glob(f"*/{PATTERN}"))


def read_variants(folder: Path) -> dict[str, dict[Group, list[Curve]]]:
    """Return the curves in each variant's folder of an experiment, by the variant's name."""
    found = {path.name: path for path in sorted(folder.iterdir()) if any(path.glob(PATTERN))}
    return {name: read_curves(path) for name, path in found.items()}


Baselines = dict[str, dict[str, dict[str, Any]]]
"""Mean and std of the returns of simple policies, by task and policy."""


def read_baselines(folder: Path) -> Baselines:
    """Return the baselines in a folder of results; empty if there is no file."""
    path = folder / BASELINES
    return json.loads(path.read_text()) if path.is_file() else {}


@dataclass(frozen=True)
class Cost:
    """Processor time of one method on one task, in seconds."""

    random_step: float
    """Of a step with a random action."""
    step: float
    """Of a step with the agent."""
    update: float
    """Of a gradient update."""

    def hours(self, curve: Curve) -> list[float]:
        """Return what the agent of each row has cost: seed episodes, learning and collecting.

        The row's own episode is collected afterwards. Evaluations do not count.
        """
        seed, updates = curve.steps[0], curve.updates or [0] * len(curve.steps)
        return [
            (self.random_step * seed + self.step * (steps - seed) + self.update * learned) / 3600
            for steps, learned in zip(curve.steps, updates, strict=True)
        ]


def read_costs(folder: Path) -> dict[Group, Cost]:
    """Return the costs in a folder of results; empty if there is no file.

    ``benchmarks/method_costs.py`` measures all methods in turn on one machine. So their hours
    compare, which those of runs on several machines do not.
    """
    path = folder / COSTS
    facts: dict[str, dict[str, dict[str, float]]] = (
        json.loads(path.read_text())["seconds"] if path.is_file() else {}
    )
    found = {}
    for method, by_body in facts.items():
        for body, seconds in by_body.items():
            task, _, observation = body.rpartition("-")
            found[method, task, observation] = Cost(**seconds)
    return found


def hours(curve: Curve, costs: Mapping[Group, Cost]) -> list[float]:
    """Return the hours of one core after each row: at common costs if given, or as measured."""
    if costs and curve.run.group not in costs:
        method, task, observation = curve.run.group
        raise RunError(
            f"{COSTS} has no costs of {method} on {task}-{observation}: measure them with "
            "benchmarks/method_costs.py, or remove the file."
        )
    if costs:
        return costs[curve.run.group].hours(curve)
    return [minutes / 60 for minutes in curve.cpu_minutes]
