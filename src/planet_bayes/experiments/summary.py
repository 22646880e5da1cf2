"""A table of committed curves.

``python -m planet_bayes.experiments.summary results/learns`` reads what `figures` reads, and
prints in Markdown, for each task and seed, the median of the last ten noise-free evaluations, each
the mean of its episodes, the lowest and the highest of them, and the hours of one core, beside what
random actions return. Below it are the settings in which a run is unlike today's presets.
"""

from __future__ import annotations

import json
import statistics
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config, differences
from planet_bayes.experiments.figures import Curve, evaluations, read_experiment
from planet_bayes.runs import RESUMABLE

LAST = 10
"""Evaluations that a result is the median of."""

FREE = {"task", "seed", "method", *RESUMABLE} - {"train.learning_rate", "train.averaging"}
"""What may differ between runs of the same settings."""

OF_IMAGES = ("env.blur", "env.oversampling", "env.image_size", "model.image", "model.decoder")
"""What does nothing where there are none."""


def result(curve: Curve) -> tuple[float, float, float, int]:
    """Return median, least and most of the last evaluations, and how many there were, up to ten."""
    seen = evaluations(curve)[-LAST:]
    values = seen or [float("nan")]
    return statistics.median(values), min(values), max(values), len(seen)


def table(folder: Path) -> str:
    """Return the table."""
    path = folder / "baselines.json"
    levels = json.loads(path.read_text()) if path.is_file() else {}
    lines = [
        "| task | observation | return by seed (lowest, highest) | episodes | hours of one core | "
        "random | zero |",
        "|" + "---|" * 7,
    ]
    for name, curves in read_experiment(folder).items():
        task, observation = name.split("/")[1].rsplit("-", 1)
        returns, notes = [], []
        for curve in curves:
            median, least, most, count = result(curve)
            few = "" if count == LAST else f" of {count}"
            returns.append(f"{median:.0f} ({least:.0f}, {most:.0f}){few}")
            notes.append((curve.episode[-1], curve.cpu_minutes[-1] / 60))
        known = levels.get(task, {})
        random, zero = (
            f"{known[policy]['mean']:.0f} ± {known[policy]['std']:.0f}" if known else ""
            for policy in ("random", "zero")
        )
        lines.append(
            f"| `{task}` | {observation} | {'; '.join(returns)} | "
            f"{', '.join(str(episodes) for episodes, _ in notes)} | "
            f"{', '.join(f'{hours:.1f}' for _, hours in notes)} | "
            f"{random} | {zero} |"
        )
    return "\n".join(lines)


def unlike(folder: Path) -> str:
    """Return a list of the settings in which runs differ from the nearest preset, if any do."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*/*/seed-*.json")):
        flags = departures(configuration.load(path))
        task, observation = path.parent.name.rsplit("-", 1)
        name = f"`{task}` from {observation}, seed {path.stem.removeprefix('seed-')}"
        if flags:
            found.setdefault(flags, []).append(name)
    return "\n".join(f"- `{flags}`: {'; '.join(names)}" for flags, names in found.items())


def departures(config: Config) -> str:
    """Return what to add to the command line of the nearest preset to have these settings."""
    found = [sorted(differences(preset, config) - FREE) for preset in PRESETS.values()]
    names = min(found, key=len)
    if config.env.observation != "pixels":
        names = [name for name in names if not name.startswith(OF_IMAGES)]
    return " ".join(f"--{name.replace('_', '-')} {_value(config, name)}" for name in names)


def _value(config: Config, name: str) -> Any:
    value = attrgetter(name)(config)
    return f"{value:g}" if isinstance(value, float) else value


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
    if others := unlike(Path(sys.argv[1])):
        print(f"\nUnlike today's presets:\n\n{others}")
