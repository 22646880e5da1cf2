"""A table of what a training's end is without one of its settings.

``python -m planet_bayes.experiments.changes results/without`` reads an experiment (see `archive`)
from each folder in it, one for each change, and prints in Markdown the last evaluation of each
run, the mean of its episodes, by task and seed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from planet_bayes.experiments.figures import Curve, evaluations, read_experiment

PLAIN = "nothing"
"""The folder of the runs in which nothing was changed: the first row."""


def last(curve: Curve) -> float:
    """Return a run's last evaluation."""
    seen = evaluations(curve)
    return seen[-1] if seen else float("nan")


def table(folder: Path) -> str:
    """Return the table."""
    found = {path.name: read_experiment(path) for path in folder.iterdir() if path.is_dir()}
    names = sorted(found, key=lambda name: (name != PLAIN, name))
    tasks = sorted({task for curves in found.values() for task in curves})
    titles = [f"`{task.split('/')[1].rsplit('-', 1)[0]}`" for task in tasks]
    lines = [f"| without | {' | '.join(titles)} |", "|" + "---|" * (1 + len(tasks))]
    for name in names:
        cells = [
            ", ".join(f"{last(curve):.0f}" for curve in found[name].get(task, [])) for task in tasks
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
