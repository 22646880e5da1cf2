"""A table of committed curves.

``python -m planet_bayes.experiments.summary results/learns`` reads what `figures` reads, and
prints in Markdown, for each task and seed, the median of the last ten noise-free evaluations, each
the mean of its episodes, and the hours of one core, beside what random actions return.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from planet_bayes.experiments.figures import Curve, evaluations, read_experiment

LAST = 10
"""Evaluations that a result is the median of."""


def result(curve: Curve) -> tuple[float, int]:
    """Return the median of the last evaluations of a run, and how many there were, up to ten."""
    seen = evaluations(curve)[-LAST:]
    return (statistics.median(seen) if seen else float("nan")), len(seen)


def table(folder: Path) -> str:
    """Return the table."""
    path = folder / "baselines.json"
    levels = json.loads(path.read_text()) if path.is_file() else {}
    lines = [
        "| task | observation | "
        + "return by seed | episodes | hours of one core | random | zero |",
        "|" + "---|" * 7,
    ]
    for name, curves in read_experiment(folder).items():
        task, observation = name.split("/")[1].rsplit("-", 1)
        returns, notes = [], []
        for curve in curves:
            value, count = result(curve)
            returns.append(f"{value:.0f}" + ("" if count == LAST else f" (of {count})"))
            notes.append((curve.episode[-1], curve.cpu_minutes[-1] / 60))
        known = levels.get(task, {})
        random = f"{known['random']['mean']:.0f} ± {known['random']['std']:.0f}" if known else ""
        zero = f"{known['zero']['mean']:.0f}" if known else ""
        lines.append(
            f"| `{task}` | {observation} | {', '.join(returns)} | "
            f"{', '.join(str(episodes) for episodes, _ in notes)} | "
            f"{', '.join(f'{hours:.1f}' for _, hours in notes)} | "
            f"{random} | {zero} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
