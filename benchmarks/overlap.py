"""Seconds per episode with and without collecting beside learning.

python benchmarks/overlap.py                  # minutes; needs two idle cores
python benchmarks/overlap.py --preset laptop
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Options:
    """What is trained, and for how long."""

    preset: str = "quick"
    """The preset."""
    episodes: int = 4
    """Episodes collected with the agent; the first is not counted."""


def seconds_per_episode(options: Options, overlap: bool, folder: Path) -> list[float]:
    """Train for a few episodes on one thread; return the time of each except the first."""
    words = [
        *("train", "--preset", options.preset, "--run.threads", "1", "--run", str(folder)),
        *("--collect.episodes", str(options.episodes), "--collect.seed-episodes", "2"),
        *("--learn.first-updates", "0"),  # they precede the first episode, which is not counted
        "--collect.overlap" if overlap else "--collect.no-overlap",
        *("--run.evaluate-every", "0", "--run.evaluation-episodes", "1", "--run.video-every", "0"),
    ]
    subprocess.run(
        [sys.executable, "-m", "planet_bayes.cli", *words], check=True, stdout=subprocess.DEVNULL
    )
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    minutes = [json.loads(line)["minutes"] for line in lines[: options.episodes]]
    return [60 * (after - before) for before, after in pairwise(minutes)]


def main(options: Options) -> None:
    """Measure both ways and print the gain."""
    table = Table("collecting beside learning", "seconds per episode", "mean", box=None)
    means = []
    with tempfile.TemporaryDirectory() as folder:
        for overlap in (False, True):
            times = seconds_per_episode(options, overlap, Path(folder) / str(overlap))
            means.append(sum(times) / len(times))
            shown = " ".join(f"{seconds:.1f}" for seconds in times)
            table.add_row("yes" if overlap else "no", shown, f"{means[-1]:.1f}")
    console = Console()
    console.print(table)
    console.print(f"gain: {means[0] / means[1]:.2f}×")


if __name__ == "__main__":
    main(tyro.cli(Options))
