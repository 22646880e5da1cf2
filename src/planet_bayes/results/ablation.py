"""The paper's ablation of its two uncertainties: tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planet_bayes.results import statistics
from planet_bayes.results.curves import PATTERN, Curve, read_baselines, read_curves
from planet_bayes.results.statistics import Array
from planet_bayes.results.tables import header, row

BASELINE = "planet"
"""The method without either uncertainty."""
COMPARED = "planet_bayes"
"""The method that is compared with each of the others. With `e_only` it differs in M only, and with
`m_only` in E only."""
ORDER = ("planet_bayes", "e_only", "m_only", BASELINE)
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

Methods = dict[str, dict[str, list[Curve]]]
"""Curves by method and task."""


def compares_methods(folder: Path) -> bool:
    """Return whether a folder has results of the baseline and of another method."""
    found = {path.parents[1].name for path in folder.glob(PATTERN)}
    return BASELINE in found and len(found) > 1


def ablation(folder: Path) -> str:
    """Return the tables of each observation: the paper's layout, then comparisons."""
    groups, levels = read_curves(folder), read_baselines(folder)
    observations = list(dict.fromkeys(observation for _, _, observation in groups))
    random = {task: float(policies["random"]["mean"]) for task, policies in levels.items()}
    parts = []
    for observation in observations:
        methods: Methods = {}
        for method in ORDER:
            curves = {
                task: found
                for (name, task, seen), found in groups.items()
                if (name, seen) == (method, observation)
            }
            if curves:
                methods[method] = curves
        if len(observations) > 1:
            parts.append(f"From {observation}:")
        parts += [paper_layout(methods), comparison(methods, random), paired(methods, random)]
    return "\n\n".join(filter(None, parts))


def paper_layout(methods: Methods) -> str:
    """Return mean ± std over seeds and trials, beside the paper's own numbers."""
    tasks = list(dict.fromkeys(task for curves in methods.values() for task in curves))
    lines = header(["method", *(f"`{task}`" for task in tasks), "hours of one core"])
    for method, curves in methods.items():
        cells = [_mean_std(curves.get(task, [])) for task in tasks]
        hours = [curve.cpu_minutes[-1] / 60 for found in curves.values() for curve in found]
        lines.append(row([f"`{method}`", *cells, f"{np.mean(hours):.2f}"]))
    for method in methods:
        numbers = [PAPER[method].get(task) for task in tasks]
        cells = ["" if pair is None else f"*{pair[0]} ± {pair[1]}*" for pair in numbers]
        lines.append(row([f"*{method}, the paper's, from pixels*", *cells, ""]))
    return "\n".join(lines)


def comparison(methods: Methods, random: Mapping[str, float]) -> str:
    """Return interquartile means, and the probability that `COMPARED` is better than each other.

    Returns are normalised: 0 is the mean of random actions, 1 is the paper's PlaNet-Bayes.
    """
    means = {
        method: {
            task: statistics.normalised(
                statistics.run_means(found), random.get(task, 0.0), reference(task)
            )
            for task, found in curves.items()
            if len(statistics.run_means(found))
        }
        for method, curves in methods.items()
    }
    others = compared_with(methods)
    titles = ["", *(f"IQM, `{method}`" for method in methods)]
    titles += [f"P(`{COMPARED}` > `{method}`)" for method in others]
    lines = header(titles)
    tasks = list(dict.fromkeys(task for curves in means.values() for task in curves))
    for task in tasks:
        lines.append(row([f"`{task}`", *_compared(_only(means, task), others)]))
    if len(tasks) > 1:
        shared = [task for task in tasks if all(task in curves for curves in means.values())]
        common = {
            method: {task: curves[task] for task in shared} for method, curves in means.items()
        }
        lines.append(row([f"all {len(shared)}", *_compared(common, others)]))
    return "\n".join(lines)


def paired(methods: Methods, random: Mapping[str, float]) -> str:
    """Return by how much `COMPARED` is better than each other method on the same seeds.

    Differences are in the units of `comparison`. Runs of a seed share seed episodes and the starts
    of all others.
    """
    others = compared_with(methods)
    found: dict[str, dict[str, Array]] = {}
    for method in others:
        for task, curves in methods[COMPARED].items():
            pairs = statistics.differences(curves, methods[method].get(task, []))
            if len(pairs):
                scale = reference(task) - random.get(task, 0.0)
                found.setdefault(method, {})[task] = pairs / scale
    tasks = [task for task in methods.get(COMPARED, {}) if any(task in by for by in found.values())]
    if not tasks:
        return ""
    lines = header(["same seeds (pairs)", *(f"`{COMPARED}` − `{method}`" for method in others)])
    for task in tasks:
        each = [found.get(method, {}).get(task, np.empty(0)) for method in others]
        lines.append(row([f"`{task}`", *(_difference({task: pairs}) for pairs in each)]))
    if len(tasks) > 1:
        cells = [_difference(found.get(method, {})) for method in others]
        lines.append(row(["mean over tasks", *cells]))
    return "\n".join(lines)


def compared_with(methods: Methods) -> list[str]:
    """Return the methods that `COMPARED` is compared with."""
    return [method for method in methods if method != COMPARED] if COMPARED in methods else []


def reference(task: str) -> float:
    """Return the return that counts as 1."""
    return float(PAPER["planet_bayes"].get(task, (FULL_SCORE, 0))[0])


def _only(means: dict[str, dict[str, Array]], task: str) -> dict[str, dict[str, Array]]:
    return {
        method: {task: curves[task]} if task in curves else {} for method, curves in means.items()
    }


def _compared(means: dict[str, dict[str, Array]], others: list[str]) -> list[str]:
    cells = [str(statistics.aggregate_iqm(curves)) if curves else "" for curves in means.values()]
    for method in others:
        both = means[COMPARED].keys() & means[method].keys()
        found = statistics.improvement(means[COMPARED], means[method]) if both else ""
        cells.append(str(found))
    return cells


def _difference(by_task: Mapping[str, Array]) -> str:
    count = sum(map(len, by_task.values()))
    return f"{statistics.mean_over_tasks(by_task)} ({count})" if count else ""


def _mean_std(curves: list[Curve]) -> str:
    mean, std = statistics.mean_and_std(curves)
    count = len(statistics.run_means(curves))
    return f"{mean:.0f} ± {std:.0f} ({count})" if count else ""
