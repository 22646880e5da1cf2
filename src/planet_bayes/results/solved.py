"""Environment steps that runs need until an evaluation solves their task, by variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planet_bayes.results.curves import Curve, Group, read_variants
from planet_bayes.results.statistics import Array, Interval, over_tasks
from planet_bayes.results.tables import header, row


@dataclass(frozen=True)
class Solved:
    """When a run solved its task."""

    steps: int
    """Environment steps before the first evaluation that reached the level; those before the last
    evaluation, if none did."""
    reached: bool

    @staticmethod
    def of(curve: Curve, level: float) -> Solved | None:
        """Return when a run's evaluation first was at least ``level``; None: it has no evaluation.

        One evaluation is the mean over its episodes.
        """
        steps = 0
        for steps, value in _evaluations(curve):
            if value >= level:
                return Solved(steps, True)
        return Solved(steps, False) if curve.evaluations else None

    def __str__(self) -> str:
        return f"{self.steps}" if self.reached else f"> {self.steps}"


def solved_table(folder: Path, names: Sequence[str], levels: Mapping[str, float]) -> str:
    """Return one row for each variant of an experiment, and one for each difference.

    A cell has the steps of each seed, and their mean with a 95 % bootstrap interval over seeds. A
    run that never reached the level counts with the steps of its last evaluation (``>``), so means
    are lower bounds then. The last rows have the differences from the first variant's means.

    Args:
        folder: The experiment's folder of results.
        names: The variants; those without results are left out.
        levels: The return that solves a task, by task.
    """
    archived = read_variants(folder)
    variants = {name: archived[name] for name in names if name in archived}
    groups = sorted({group for curves in variants.values() for group in curves})
    groups = [group for group in groups if group[1] in levels]
    lines = header(["steps until", *(f"`{task}` ≥ {levels[task]:g}" for _, task, _ in groups)])
    found: dict[str, dict[Group, list[Solved]]] = {}
    for name, curves in variants.items():
        found[name] = {
            group: [one for one in (Solved.of(c, levels[group[1]]) for c in curves[group]) if one]
            for group in groups
            if group in curves
        }
    for name, solved in found.items():
        lines.append(row([name, *(_listed(solved.get(group, [])) for group in groups)]))
    first, *others = found
    for name in others:
        cells = [
            _difference(found[name].get(group, []), found[first].get(group, [])) for group in groups
        ]
        lines.append(row([f"{name} − {first}", *cells]))
    return "\n".join(lines)


def _evaluations(curve: Curve) -> list[tuple[int, float]]:
    pairs = zip(curve.steps, curve.evaluation_return, strict=True)
    return [(steps, value) for steps, value in pairs if value is not None]


def _listed(solved: Sequence[Solved]) -> str:
    if not solved:
        return ""
    mean = over_tasks(lambda sample: sample.mean(-1), [_steps(solved)])
    return f"{', '.join(map(str, solved))}; mean {_rounded(mean)}"


def _difference(one: Sequence[Solved], other: Sequence[Solved]) -> str:
    if not one or not other:
        return ""
    samples = [_steps(one), _steps(other)]
    return _rounded(over_tasks(lambda left, right: left.mean(-1) - right.mean(-1), samples))


def _steps(solved: Sequence[Solved]) -> Array:
    return np.array([one.steps for one in solved], np.float64)


def _rounded(found: Interval) -> str:
    value = f"{found.value:.0f}"
    return value if np.isnan(found.low) else f"{value} [{found.low:.0f}, {found.high:.0f}]"
