"""The cost of a plan and of an update as a function of E, K, the horizon and the image size.

    python benchmarks/scaling.py            # some minutes; writes the table and the figure

Each point is measured as `planet-bayes bench` does. Points of one panel take turns, so that a
slow phase of the machine affects all of them.
"""

from __future__ import annotations

import csv
import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch
import tyro
from rich.console import Console

from planet_bayes.bench.measure import Work, fill, interleaved, planning, updating
from planet_bayes.bench.report import Report, processor_and_instructions
from planet_bayes.config import PRESETS, Config
from planet_bayes.data.replay import Replay

HERE = Path(__file__).parent
ACTIONS = 6


@dataclass(frozen=True)
class Options:
    """How cost grows."""

    threads: int = 1
    """CPU threads."""
    repeats: int = 3
    """Times that each point is measured, after a warm-up."""
    batch: int = 10
    """Sequences of 50 steps in an update; the paper has 50."""
    table: Path = HERE / "scaling.csv"
    """Where the numbers go."""
    figure: Path = HERE.parent / "docs" / "images" / "scaling.png"
    """Where the figure goes."""


@dataclass(frozen=True)
class Panel:
    """One curve: what is varied, and the work at each value."""

    title: str
    axis: str
    works: dict[int, Work]


def _plans(base: Config) -> list[Panel]:
    def plan(members: int = 5, trajectories: int = 1000, horizon: int = 12) -> Work:
        planner = dataclasses.replace(base.planner, horizon=horizon, num_trajectories=trajectories)
        return planning(dataclasses.replace(base, planner=planner), members, ACTIONS)

    title = "one plan"
    members = {count: plan(members=count) for count in (1, 2, 5, 10)}
    candidates = {count: plan(trajectories=5 * count) for count in (50, 100, 200, 400)}
    horizons = {steps: plan(horizon=steps) for steps in (6, 12, 24)}
    return [
        Panel(title, "members E (1000 trajectories in all)", members),
        Panel(title, "candidates K (E = 5)", candidates),
        Panel(title, "horizon T", horizons),
    ]


def _updates(base: Config, replays: dict[int, Replay]) -> list[Panel]:
    def update(members: int = 5, size: int = 64) -> Work:
        config = dataclasses.replace(base, env=dataclasses.replace(base.env, image_size=size))
        return updating(config, members, ACTIONS, replays[size])

    title = f"one update of {base.learn.batch_size}×{base.learn.sequence_length} frames"
    return [
        Panel(title, "members E (equal decoded frames)", {e: update(e) for e in (1, 2, 5, 10)}),
        Panel(title, "image size (E = 5)", {size: update(size=size) for size in (32, 64)}),
    ]


def main(options: Options) -> None:
    """Measure all panels; write table and figure."""
    torch.set_num_threads(options.threads)
    console = Console()
    base = PRESETS["paper"]
    base = dataclasses.replace(
        base, learn=dataclasses.replace(base.learn, batch_size=options.batch)
    )
    rows: list[dict[str, object]] = []
    drawn: list[tuple[Panel, list[float], list[float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        replays = {}
        for size in (32, 64):
            sized = dataclasses.replace(base.env, image_size=size)
            config = dataclasses.replace(base, env=sized)
            replays[size] = fill(Path(folder) / str(size), config, ACTIONS, 3)
        for panel in [*_plans(base), *_updates(base, replays)]:
            report = Report(options.threads, "paper", 5)
            costs = interleaved(report, panel.works, options.repeats)
            times = [cost.seconds for cost in costs.values()]
            floors = [report.floor(cost) for cost in costs.values()]
            drawn.append((panel, times, floors))
            for (value, cost), floor in zip(costs.items(), floors, strict=True):
                rows.append(
                    {
                        "work": panel.title,
                        "varied": panel.axis,
                        "value": value,
                        "seconds": f"{cost.seconds:.4f}",
                        "floor_s": f"{floor:.4f}",
                        "ratio": f"{cost.seconds / floor:.3f}",
                        "gemm_gflops": f"{report.gemm / 1e9:.1f}",
                    }
                )
                console.print("  ".join(str(entry) for entry in rows[-1].values()))
    with open(options.table, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    _draw(drawn, options)
    console.print(f"{options.table}\n{options.figure}")


def _draw(drawn: list[tuple[Panel, list[float], list[float]]], options: Options) -> None:
    matplotlib.use("Agg")
    figure, axes = plt.subplots(1, len(drawn), figsize=(3.2 * len(drawn), 3), layout="tight")
    for axis, (panel, times, floors) in zip(axes, drawn, strict=True):
        values = list(panel.works)
        axis.plot(values, times, "o-", label="measured")
        axis.plot(values, floors, ":", color="0.4", label="its arithmetic at the GEMM rate")
        axis.set(title=panel.title, xlabel=panel.axis, ylabel="seconds", ylim=(0, None))
        axis.set_xticks(values)
    axes[0].legend(fontsize=7)
    figure.suptitle(f"{processor_and_instructions()}, {options.threads} thread(s)", fontsize=9)
    figure.savefig(options.figure, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Options))
