"""The paper's ablation of its two uncertainties: tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planet_bayes.errors import RunError
from planet_bayes.results import statistics
from planet_bayes.results.curves import (
    BASELINES,
    PATTERN,
    Baselines,
    Cost,
    Curve,
    Group,
    hours,
    read_baselines,
    read_costs,
    read_curves,
)
from planet_bayes.results.statistics import Array
from planet_bayes.results.tables import header, row

COMPARED = "planet_bayes"
"""The method that is compared with each of the others. With `e_only` it differs in M, and with
`m_only` in E."""
ORDER = ("planet_bayes", "e_only", "m_only", "planet")
"""Methods in the order of the paper's table."""
PAPER: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "planet_bayes": {
        "cup_catch": (842, 187),
        "finger_spin": (818, 54),
        "cheetah_run": (1738, 300),
        "walker_run": (1099, 153),
    },
    "e_only": {
        "cup_catch": (797, 219),
        "finger_spin": (557, 296),
        "cheetah_run": (1577, 329),
        "walker_run": (1031, 167),
    },
    "m_only": {
        "cup_catch": (515, 431),
        "finger_spin": (304, 260),
        "cheetah_run": (1101, 280),
        "walker_run": (896, 99),
    },
    "planet": {
        "cup_catch": (719, 325),
        "finger_spin": (289, 284),
        "cheetah_run": (1282, 295),
        "walker_run": (845, 131),
    },
}
"""The paper's own table, from 64×64 pixels: mean and std over 4 seeds and the last 10 trials."""
FULL_SCORE = 1000.0
"""Return that counts as 1 on tasks that the paper does not have."""

Curves = dict[str, list[Curve]]
"""Curves of one method by task."""
Methods = dict[str, Curves]
"""Curves by method and task."""


def compares_methods(folder: Path) -> bool:
    """Return whether a folder has results of PlaNet-Bayes and of another method."""
    found = {path.parents[1].name for path in folder.glob(PATTERN)}
    return COMPARED in found and len(found & {*ORDER}) > 1


def ablation(folder: Path) -> str:
    """Return the tables of each observation: the paper's layout, then comparisons."""
    groups, levels, costs = read_curves(folder), read_baselines(folder), read_costs(folder)
    observations = list(dict.fromkeys(observation for _, _, observation in groups))
    parts = []
    for observation in observations:
        methods = methods_of(groups, observation)
        if len(observations) > 1:
            parts.append(f"From {observation}:")
        random = random_levels(folder, methods, levels)
        parts += [
            paper_layout(methods, costs),
            comparison(methods, random),
            paired(methods, random),
        ]
    return "\n\n".join(filter(None, parts))


def methods_of(groups: Mapping[Group, list[Curve]], observation: str) -> Methods:
    """Return the curves of one observation by method and task, methods in the order of `ORDER`."""
    methods: Methods = {}
    for method in ORDER:
        curves = {
            task: found
            for (name, task, seen), found in groups.items()
            if (name, seen) == (method, observation)
        }
        if curves:
            methods[method] = curves
    return methods


def random_levels(folder: Path, methods: Methods, levels: Baselines) -> dict[str, float]:
    """Return the mean return of random actions in each task, which counts as 0."""
    tasks = dict.fromkeys(task for curves in methods.values() for task in curves)
    missing = [task for task in tasks if "random" not in levels.get(task, {})]
    if missing:
        raise RunError(
            f"{folder / BASELINES} has no random actions for {', '.join(missing)}. Write it: "
            f"planet-bayes archive {folder} --baselines --tasks {' '.join(tasks)}"
        )
    return {task: float(levels[task]["random"]["mean"]) for task in tasks}


def paper_layout(methods: Methods, costs: Mapping[Group, Cost]) -> str:
    """Return mean ± std over seeds and trials, beside the paper's own numbers.

    Hours are of the runs that all methods have, at common costs if these are known.
    """
    tasks = _tasks(methods)
    lines = header(["method", *(f"`{task}`" for task in tasks), "hours of one core"])
    common = {task: alike(methods, task) for task in tasks}
    for method, curves in methods.items():
        cells = [_mean_std(curves.get(task, [])) for task in tasks]
        found = [one for by in common.values() if len(by) == len(methods) for one in by[method]]
        spent = f"{np.mean([hours(one, costs)[-1] for one in found]):.2f}" if found else ""
        lines.append(row([f"`{method}`", *cells, spent]))
    for method in methods:
        numbers = [PAPER[method].get(task) for task in tasks]
        cells = ["" if pair is None else f"*{pair[0]} ± {pair[1]}*" for pair in numbers]
        lines.append(row([f"*{method}, the paper's, from pixels*", *cells, ""]))
    return "\n".join(lines)


def comparison(methods: Methods, random: Mapping[str, float]) -> str:
    """Return interquartile means, and the probability that `COMPARED` is better than each other.

    Returns are normalised: 0 is the mean of random actions, 1 is the paper's PlaNet-Bayes. In each
    task only the seeds count that all methods have; a method without a run of the task does not.
    The last row has the tasks that all methods have.
    """
    others = compared_with(methods)
    titles = ["runs of each", *(f"IQM, `{method}`" for method in methods)]
    titles += [f"P(`{COMPARED}` > `{method}`)" for method in others]
    lines = header(titles)
    scaled: dict[str, dict[str, Array]] = {}
    for task in _tasks(methods):
        zero, one = random[task], reference(task)
        scaled[task] = {
            method: statistics.normalised(statistics.run_means(curves), zero, one)
            for method, curves in alike(methods, task).items()
        }
    for task, means in scaled.items():
        lines.append(_compared(f"`{task}`", {task: means}, methods))
    complete = {task: means for task, means in scaled.items() if len(means) == len(methods)}
    if len(complete) > 1:
        lines.append(_compared(f"{len(complete)} tasks", complete, methods))
    return "\n".join(lines)


def paired(methods: Methods, random: Mapping[str, float]) -> str:
    """Return by how much `COMPARED` is better than each other method on the same seeds."""
    pairs = {
        f"`{COMPARED}` − `{method}`": (methods[COMPARED], methods[method])
        for method in compared_with(methods)
    }
    return differences(pairs, random)


def differences(pairs: Mapping[str, tuple[Curves, Curves]], random: Mapping[str, float]) -> str:
    """Return by how much the first of each pair is better than the second on the same seeds.

    Differences are in the units of `comparison`. Runs of a seed share seed episodes and the starts
    of all others. The last row has the tasks of all columns.

    Args:
        pairs: Two methods' curves by task, by the title of their column.
        random: The mean return of random actions by task.
    """
    found: dict[str, dict[str, Array]] = {}
    for title, (ours, theirs) in pairs.items():
        for task in ours:
            both = alike({"ours": ours, "theirs": theirs}, task)
            if len(both) == 2:
                one, other = map(statistics.run_means, both.values())
                scale = reference(task) - random[task]
                found.setdefault(task, {})[title] = (one - other) / scale
    if not found:
        return ""
    lines = header(["same seeds (pairs)", *pairs])
    for task, by in found.items():
        cells = [_difference([by[title]] if title in by else []) for title in pairs]
        lines.append(row([f"`{task}`", *cells]))
    shared = [task for task, by in found.items() if len(by) == len(pairs)]
    if len(shared) > 1:
        cells = [_difference([found[task][title] for task in shared]) for title in pairs]
        lines.append(row([f"mean of {len(shared)} tasks", *cells]))
    return "\n".join(lines)


def alike(methods: Methods, task: str) -> dict[str, list[Curve]]:
    """Return the runs of a task by method: of the seeds that all methods have that have any."""
    by_seed = {
        name: {curve.run.seed: curve for curve in curves.get(task, []) if curve.evaluations}
        for name, curves in methods.items()
    }
    by_seed = {name: runs for name, runs in by_seed.items() if runs}
    shared = set.intersection(*map(set, by_seed.values())) if by_seed else set()
    return {
        name: [runs[seed] for seed in sorted(shared)] for name, runs in by_seed.items() if shared
    }


def compared_with(methods: Methods) -> list[str]:
    """Return the methods that `COMPARED` is compared with."""
    return [method for method in methods if method != COMPARED] if COMPARED in methods else []


def reference(task: str) -> float:
    """Return the return that counts as 1."""
    return float(PAPER["planet_bayes"].get(task, (FULL_SCORE, 0))[0])


def _tasks(methods: Methods) -> list[str]:
    return list(dict.fromkeys(task for curves in methods.values() for task in curves))


def _compared(title: str, scaled: Mapping[str, Mapping[str, Array]], methods: Methods) -> str:
    """Return the row of some tasks: normalised means of runs by task and method."""
    by_method = {
        method: {task: means[method] for task, means in scaled.items() if method in means}
        for method in methods
    }
    cells = [str(statistics.aggregate_iqm(means)) if means else "" for means in by_method.values()]
    for method in compared_with(methods):
        ours, theirs = by_method[COMPARED], by_method[method]
        several = ours and theirs and min(map(len, theirs.values())) > 1
        cells.append(str(statistics.improvement(ours, theirs)) if several else "")
    count = max(sum(map(len, means.values())) for means in by_method.values())
    return row([f"{title} ({count})", *cells])


def _difference(samples: list[Array]) -> str:
    count = sum(map(len, samples))
    return f"{statistics.mean_over_tasks(samples)} ({count})" if count else ""


def _mean_std(curves: list[Curve]) -> str:
    mean, std = statistics.mean_and_std(curves)
    count = len(statistics.run_means(curves))
    return f"{mean:.0f} ± {std:.0f} ({count})" if count else ""
