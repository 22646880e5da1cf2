"""The tables of `benchmarks/caution.py`, from its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

NEUTRAL = (0.0, 1.0)
"""Caution and tail of the mean over members."""

Row = dict[str, Any]


def show(rows: list[Row], baselines: Row, bins: Sequence[float]) -> str:
    """Return both tables in Markdown.

    Args:
        rows: Of each training seed.
        baselines: Figures of other policies by name.
        bins: Borders of the bins of the real probability to fall.
    """
    seen = ", ".join(
        f"{row['falls_of_seed_episodes']} + {row['falls_of_agent_episodes']}" for row in rows
    )
    seconds = sum(row["seconds"] for row in rows)
    return "\n".join(
        [
            f"Falls in the training data of each seed (random + agent): {seen}.",
            f"Processor time: {seconds / 60:.1f} minutes.\n",
            *risk_table(rows, baselines),
            "",
            *probe_table(rows, bins),
        ]
    )


def risk_table(rows: list[Row], baselines: Row) -> list[str]:
    """Return a line for each risk and each baseline."""
    titles = "risk", "falls", "return", "without a fall", "distance", "Δ falls", "Δ return"
    lines = [cells(titles), cells(["---"] * len(titles))]
    by_risk = [
        {(one["caution"], one["tail"]): figures(one) for one in row["risks"]} for row in rows
    ]
    neutral = [found[NEUTRAL] for found in by_risk]
    for risk in by_risk[0] if by_risk else []:
        here = [found[risk] for found in by_risk]
        values = [
            with_interval((one[index] for one in here), digits)
            for index, digits in enumerate((2, 1, 1, 2))
        ]
        changes = [
            with_interval(
                (one[index] - base[index] for one, base in zip(here, neutral, strict=True)), digits
            )
            for index, digits in enumerate((2, 1))
        ]
        lines.append(
            cells([risk_name(*risk), *values, *(changes if risk != NEUTRAL else ("", ""))])
        )
    for name, found in baselines.items():
        values = [
            "" if value is None else f"{value:.{digits}f}"
            for value, digits in zip(figures(found), (2, 1, 1, 2), strict=True)
        ]
        lines.append(cells([name, *values, "", ""]))
    return lines


def probe_table(rows: list[Row], bins: Sequence[float]) -> list[str]:
    """Return a line for each bin of the real probability to fall."""
    titles = (
        *("real P(fall)", "points", "imagined return", "real return"),
        *("RMSE", "std of members", "in ±2 std"),
    )
    lines = [cells(titles), cells(["---"] * len(titles))]
    for index, (low, high) in enumerate(itertools.pairwise(bins)):
        here = [row["probe"][index] for row in rows if row["probe"][index]["points"]]
        lines.append(
            cells(
                [
                    f"{low:g} to {high:g}",
                    str(sum(one["points"] for one in here)),
                    with_interval((one["imagined"] for one in here), 1),
                    with_interval((one["real"] for one in here), 1),
                    with_interval((one["squared_error"] ** 0.5 for one in here), 1),
                    with_interval((one["variance"] ** 0.5 for one in here), 1),
                    with_interval((one["inside"] for one in here), 2),
                ]
            )
        )
    return lines


def cells(values: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(values)} |"


def risk_name(caution: float, tail: float) -> str:
    """Return the name of a risk."""
    if (caution, tail) == NEUTRAL:
        return "mean"
    return f"β = {caution:g}" if tail == 1 else f"α = {tail:g}"


def with_interval(values: Iterable[float | None], digits: int) -> str:
    """Return the mean over seeds ± half of its 95 % interval (Student's t)."""
    known = np.array([one for one in values if one is not None])
    if not len(known):
        return ""
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    half = stats.t.ppf(0.975, len(known) - 1) * stats.sem(known)
    return f"{known.mean():.{digits}f} ± {half:.{digits}f}"


def figures(found: Row) -> tuple[Any, ...]:
    """Return falls, return, return without falls and distance of one model or baseline."""
    safe = [total for total, fell in zip(found["returns"], found["falls"], strict=True) if not fell]
    values = found["falls"], found["returns"], safe, found["distances"]
    return tuple(_mean(one) for one in values)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return float(np.mean(known)) if known else None
