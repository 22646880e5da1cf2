"""The tables of `docs/results/confidence.md`, from files of `planet-bayes calibrate --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read(folder: Path) -> list[Row]:
    """Return the figures of all files of a folder, in the order of their names."""
    return [{**json.loads(path.read_text()), "name": path.stem} for path in _paths(folder)]


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def bands_table(rows: Sequence[Row]) -> str:
    """Return the coverage on later episodes: the lowest and the highest over steps ahead."""
    lines = [
        "| agent | quantity | coverage | with tracking | rank correlation |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        for quantity, held in row["held"].items():
            parts = (held[key] for key in ("calibrated", "adapted", "rank_correlation"))
            cells = " | ".join(map(_range, parts))
            lines.append(f"| {row['name']} | {quantity} | {cells} |")
    return "\n".join(lines)


def alarms_table(rows: Sequence[Row]) -> str:
    """Return the rate of false alarms."""
    lines = ["| agent | return | steps | false alarms in 1000 steps |", "|---|---|---|---|"]
    for row in rows:
        rate = f"{1000 * row['false_alarms']:.1f}"
        lines.append(f"| {row['name']} | {row['total']:.0f} | {row['steps']} | {rate} |")
    return "\n".join(lines)


def changes_table(rows: Sequence[Row]) -> str:
    """Return what each change did: return, AUROC, alarms, and coverage without / with tracking."""
    lines = [
        "| agent | change | return | AUROC | alarms | coverage: reward | return | sensors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for change, one in row["noticed"].items():
            first = f"{one['total']:.0f} | {_number(one['auroc'])} | {_number(one['alarms'])}"
            names = ["reward", "return", *(key for key in one["adapted"] if _is_sensor(key))]
            cells = [
                f"{_number(one['calibrated'][key])} / {_number(one['adapted'][key])}"
                for key in names
            ]
            cells = [*cells[:2], ", ".join(cells[2:]) or "–"]
            lines.append(f"| {row['name']} | {change} | {first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _is_sensor(name: str) -> bool:
    return name not in ("reward", "return")


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.2f} to {max(known):.2f}" if known else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def tables(folder: Path) -> str:
    """Return all tables of a folder in Markdown."""
    rows = read(folder)
    return "\n\n".join([bands_table(rows), alarms_table(rows), changes_table(rows)])
