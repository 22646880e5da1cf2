"""The rows of a run's metrics, as lines of JSON and as CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

from planet_bayes.data import files


def prefix_digest(path: Path, count: int) -> str | None:
    """Return the SHA-256 sum of the first ``count`` lines of a file, if it has that many."""
    lines = files.read_lines(path)
    if len(lines) < count:
        return None
    return hashlib.sha256("".join(line + "\n" for line in lines[:count]).encode()).hexdigest()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics.jsonl up to the first line that is none."""
    rows: list[dict[str, Any]] = []
    for line in files.read_lines(path):
        row = parse_row(line)
        if row is None:
            break
        rows.append(row)
    return rows


def parse_row(line: str) -> dict[str, Any] | None:
    """Return the row in a line of JSON, or None if there is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and "episode" in row else None


def write_csv(rows: list[dict[str, Any]], path: Path) -> list[str]:
    """Write the rows as CSV, a list as its values with spaces between; return the columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    files.write(path, ",".join(names) + "\n" + csv_lines(rows, names) + "\n")
    return names


def csv_lines(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Return rows as lines of CSV, without a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue().removesuffix("\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(str(_cell(item)) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else value
