"""Differences between the methods of two experiments: a table in Markdown."""

from __future__ import annotations

from pathlib import Path

from planet_bayes.errors import RunError
from planet_bayes.results.ablation import differences, methods_of, random_levels
from planet_bayes.results.curves import read_baselines, read_curves


def contrast(folder: Path, other: Path) -> str:
    """Return by how much each method of ``folder`` is better than each of ``other``.

    Runs of the same task, observation and seed are compared.

    Args:
        folder: A folder of results with the returns of random actions.
        other: Another folder of results.
    """
    ours, theirs, levels = read_curves(folder), read_curves(other), read_baselines(folder)
    observations = list(dict.fromkeys(observation for _, _, observation in ours))
    parts = []
    for observation in observations:
        methods = methods_of(ours, observation)
        pairs = {
            f"`{name}` − `{against}` of {other.name}": (curves, reference)
            for name, curves in methods.items()
            for against, reference in methods_of(theirs, observation).items()
        }
        table = differences(pairs, random_levels(folder, methods, levels))
        if table and len(observations) > 1:
            table = f"From {observation}:\n\n{table}"
        parts.append(table)
    if not any(parts):
        raise RunError(f"{folder} and {other} have no runs of the same task, observation and seed.")
    return "\n\n".join(filter(None, parts))
