"""Tables of results, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from planet_bayes.errors import RunError
from planet_bayes.results.curves import (
    PATTERN,
    Baselines,
    Curve,
    Group,
    RunName,
    has_variants,
    read_baselines,
    read_curves,
    read_variants,
)
from planet_bayes.results.experiment import option
from planet_bayes.results.statistics import NUM_TRIALS, mean_over_tasks, on_same_seeds

if TYPE_CHECKING:
    from planet_bayes.config import Config

BASELINE = "baseline"
"""Folder of the runs without a change: the first row of a table of variants."""
_OF_IMAGES = ("env.blur", "env.image_size", "model.image_", "model.decoder_")
"""Settings, by the start of their names, that have no effect without images."""


@dataclass(frozen=True)
class Result:
    """The last evaluations of a run, at most `NUM_TRIALS`."""

    median: float
    lowest: float
    highest: float
    count: int

    @staticmethod
    def of(curve: Curve) -> Result:
        """Return the result of a curve; NaN if it has no evaluation."""
        last = curve.evaluations[-NUM_TRIALS:]
        values = last or [float("nan")]
        return Result(statistics.median(values), min(values), max(values), len(last))

    def __str__(self) -> str:
        few = "" if self.count == NUM_TRIALS else f" of {self.count}"
        return f"{self.median:.0f} ({self.lowest:.0f}, {self.highest:.0f}){few}"


def table(folder: Path, variants: Sequence[str] = ()) -> str:
    """Return the table of a folder of results: of its tasks, or of its variants if it has any.

    Args:
        folder: The folder.
        variants: Names of the variants in their declared order, if that is known.
    """
    if any(folder.glob(PATTERN)):
        return task_table(folder)
    if has_variants(folder):
        return variant_table(folder, variants)
    raise RunError(
        f"{folder} has no curves: expected [<variant>/]<method>/<task>-<observation>/seed-<n>.csv "
        "in it."
    )


def task_table(folder: Path) -> str:
    """Return one row for each task: the last evaluations of each seed, beside simple policies."""
    levels, groups = read_baselines(folder), read_curves(folder)
    methods = {method for method, _, _ in groups}
    titles = ["task", "observation", "return by seed (lowest, highest)", "episodes"]
    titles += ["hours of one core", "random", "zero"]
    if len(methods) > 1:
        titles.insert(0, "method")
    lines = header(titles)
    for (method, task, observation), curves in groups.items():
        cells = [
            f"`{task}`",
            observation,
            "; ".join(str(Result.of(curve)) for curve in curves),
            ", ".join(str(curve.episode[-1]) for curve in curves),
            ", ".join(f"{curve.cpu_minutes[-1] / 60:.1f}" for curve in curves),
            _mean_std(levels, task, "random"),
            _mean_std(levels, task, "zero"),
        ]
        lines.append(row([f"`{method}`", *cells] if len(methods) > 1 else cells))
    return "\n".join(lines)


def variant_table(folder: Path, declared: Sequence[str] = ()) -> str:
    """Return one row for each variant of an experiment: the last evaluation of each seed.

    Below are the differences from the baseline, or else from the first declared variant, on the
    same seeds: means with Student's 95 % intervals.

    Args:
        folder: The experiment's folder of results.
        declared: Names of the variants in their declared order, if that is known.
    """
    variants = read_variants(folder)
    names = sorted(variants, key=lambda name: (name != BASELINE, name))
    references = [name for name in (BASELINE, *declared[:1]) if name in variants]
    groups: list[Group] = sorted({group for curves in variants.values() for group in curves})
    lines = header(["variant", *(f"`{task}`" for _, task, _ in groups)])
    for name in names:
        cells = [
            ", ".join(f"{_last(curve):.0f}" for curve in variants[name].get(group, []))
            for group in groups
        ]
        lines.append(row([name, *cells]))
    others = [name for name in names if name not in references[:1]]
    for name in others if references else ():
        cells = [_difference(variants[name], variants[references[0]], group) for group in groups]
        if any(cells):
            lines.append(row([f"{name} − {references[0]}", *cells]))
    levels = read_baselines(folder)
    for policy in ("random", "zero") if levels else ():
        cells = [_mean_std(levels, task, policy) for _, task, _ in groups]
        lines.append(row([f"{policy} actions", *cells]))
    return "\n".join(lines)


def _mean_std(levels: Baselines, task: str, policy: str) -> str:
    """Return the return of a simple policy as text, empty where it is not known."""
    known = levels.get(task, {}).get(policy)
    return f"{known['mean']:.0f} ± {known['std']:.0f}" if known else ""


def _difference(
    left: Mapping[Group, Sequence[Curve]], right: Mapping[Group, Sequence[Curve]], group: Group
) -> str:
    """Return the mean difference of last evaluations on the same seeds; empty without two."""
    one, other = (
        {curve.run.seed: _last(curve) for curve in side.get(group, []) if curve.evaluations}
        for side in (left, right)
    )
    gains = on_same_seeds(one, other)
    return mean_over_tasks([gains]).text(0) if len(gains) > 1 else ""


def _last(curve: Curve) -> float:
    return curve.evaluations[-1] if curve.evaluations else float("nan")


def header(titles: list[str]) -> list[str]:
    """Return the first two lines of a table in Markdown."""
    return [row(titles), "|" + "---|" * len(titles)]


def row(cells: list[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def unlike_presets(folder: Path) -> str:
    """Return a list of the settings in which runs differ from the nearest preset, if any do."""
    from planet_bayes import config as configuration  # late: it imports PyTorch

    paths = sorted(folder.glob("*/*/seed-*[0-9].json"))
    several = len({RunName.of(path).method for path in paths}) > 1
    found: dict[str, list[str]] = {}
    for path in paths:
        flags = departures(configuration.load(path))
        run = RunName.of(path)
        if flags:
            name = f"`{run.task}` from {run.observation}, seed {run.seed}"
            name = f"`{run.method}`, {name}" if several else name
            found.setdefault(flags, []).append(name)
    return "\n".join(f"- `{flags}`: {'; '.join(names)}" for flags, names in found.items())


def departures(config: Config) -> str:
    """Return what to add to the command line of the nearest preset to get these settings.

    Task, seed, method and what may change when a run is resumed are left out, but not the learning
    rate and the averaging of weights.
    """
    from planet_bayes.config import PRESETS, differences, is_resumable, preset_config

    counted = ("learn.learning_rate", "learn.ema_decay")

    def is_counted(name: str) -> bool:
        return name in counted or (name not in ("task", "seed") and not is_resumable(name))

    found = [
        sorted(filter(is_counted, differences(preset_config(preset, config.method), config)))
        for preset in PRESETS
    ]
    names = min(found, key=len)
    if "pixels" not in config.env.sources.values():
        names = [name for name in names if not name.startswith(_OF_IMAGES)]
    words = [option(name, attrgetter(name)(config)) for name in names]
    return " ".join(word for part in words for word in part)
