"""How fast runs learn, by variant: steps until an evaluation solves the task, and areas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planet_bayes.results.curves import Curve, Group, read_variants
from planet_bayes.results.statistics import Array, mean_over_tasks, on_same_seeds
from planet_bayes.results.tables import header, row

BySeed = dict[int, "Solved"]


@dataclass(frozen=True)
class Solved:
    """When a run solved its task."""

    steps: int
    """The agent's steps before the first evaluation that reached the level, those of the seed
    episodes included; those before the last evaluation, if none did."""
    reached: bool

    @staticmethod
    def of(curve: Curve, level: float) -> Solved:
        """Return when an evaluation of a run, the mean of its episodes, first reached ``level``."""
        steps = 0
        for steps, value in _evaluations(curve):
            if value >= level:
                return Solved(steps, True)
        return Solved(steps, False)

    def __str__(self) -> str:
        return f"{self.steps}" if self.reached else f"> {self.steps}"


def solved_table(folder: Path, names: Sequence[str], levels: Mapping[str, float]) -> str:
    """Return one row for each variant of an experiment, and one for each difference.

    A cell has the steps of each seed, how many runs solved the task, and a mean if any did. A run
    that never reached the level (``>``) may need any number of steps more. So means are restricted:
    up to the last evaluation that all runs of the task have, and a run that was not there yet
    counts with that. Differences are from the first variant, on the same seeds, with Student's
    interval; there is none if no run of one side solved the task. Variants whose runs have a single
    evaluation are left out: it cannot say when.

    Args:
        folder: The experiment's folder of results.
        names: The variants; those without results are left out.
        levels: The return that solves a task, by task.
    """
    timed, groups = _timed(folder, names, levels)
    lines = header(["steps until", *(f"`{task}` ≥ {levels[task]:g}" for _, task, _ in groups)])
    found: dict[str, list[BySeed]] = {
        name: [
            {one.run.seed: Solved.of(one, levels[group[1]]) for one in runs[group]}
            for group in groups
        ]
        for name, runs in timed.items()
    }
    last = [[_evaluations(one)[-1][0] for by in timed.values() for one in by[g]] for g in groups]
    ends = [min(steps, default=0) for steps in last]
    for name, solved in found.items():
        lines.append(row([name, *map(_listed, solved, ends)]))
    names = list(found)
    for name in names[1:]:
        cells = map(_difference, found[name], found[names[0]], ends)
        lines.append(row([f"{name} − {names[0]}", *cells]))
    return "\n".join(lines)


def area_table(folder: Path, names: Sequence[str], tasks: Collection[str]) -> str:
    """Return the mean of all evaluations of a run, by variant: the area under its curve.

    A cell has the mean over seeds and their number. Below are differences from the first variant on
    the same seeds. Intervals are Student's. As in `solved_table`, variants whose runs have a single
    evaluation are left out.

    Args:
        folder: The experiment's folder of results.
        names: The variants; those without results are left out.
        tasks: The tasks that count.
    """
    timed, groups = _timed(folder, names, tasks)
    lines = header(["mean of all evaluations", *(f"`{task}`" for _, task, _ in groups)])
    means = {
        name: [
            {one.run.seed: float(np.mean(one.evaluations)) for one in runs[group]}
            for group in groups
        ]
        for name, runs in timed.items()
    }
    for name, by_group in means.items():
        lines.append(
            row([name, *(_interval(np.array(list(by_seed.values()))) for by_seed in by_group)])
        )
    for name in list(means)[1:]:
        pairs = zip(means[name], next(iter(means.values())), strict=True)
        cells = (_interval(on_same_seeds(one, other)) for one, other in pairs)
        lines.append(row([f"{name} − {next(iter(means))}", *cells]))
    return "\n".join(lines)


def _interval(values: Array) -> str:
    return f"{mean_over_tasks([values]).text(0)} ({len(values)})" if len(values) else ""


def _timed(
    folder: Path, names: Sequence[str], tasks: Collection[str]
) -> tuple[dict[str, dict[Group, list[Curve]]], list[Group]]:
    """Return the runs with several evaluations by variant and group, and the groups."""
    archived = read_variants(folder)
    variants = {name: archived[name] for name in names if name in archived}
    groups = sorted({group for curves in variants.values() for group in curves})
    groups = [group for group in groups if group[1] in tasks]
    timed = {
        name: {
            group: [one for one in curves.get(group, []) if len(one.evaluations) > 1]
            for group in groups
        }
        for name, curves in variants.items()
    }
    return {name: runs for name, runs in timed.items() if any(runs.values())}, groups


def _evaluations(curve: Curve) -> list[tuple[int, float]]:
    pairs = zip(curve.steps, curve.evaluation_return, strict=True)
    return [(steps, value) for steps, value in pairs if value is not None]


def _listed(solved: BySeed, end: int) -> str:
    if not solved:
        return ""
    steps = ", ".join(map(str, solved.values()))
    reached = sum(one.reached for one in solved.values())
    if not reached:
        return f"{steps}; 0 of {len(solved)}"
    mean = mean_over_tasks([np.array([float(min(one.steps, end)) for one in solved.values()])])
    return f"{steps}; {reached} of {len(solved)}, mean up to {end}: {mean.text(0)}"


def _difference(one: BySeed, other: BySeed, end: int) -> str:
    seeds = one.keys() & other.keys()
    sides = [[side[seed] for seed in sorted(seeds)] for side in (one, other)]
    if not all(any(run.reached for run in side) for side in sides):
        return ""
    left, right = (np.array([float(min(run.steps, end)) for run in side]) for side in sides)
    return mean_over_tasks([left - right]).text(0)
