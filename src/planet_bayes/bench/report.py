"""The result of a measurement, as one flat record and as tables."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import torch
from rich.console import RenderableType
from rich.table import Table

from planet_bayes.machine import processor

GEMM = (1000, 400, 600)
"""Rows, inner size and columns of the matrix product that stands for the machine's rate."""


@dataclass(frozen=True)
class Cost:
    """One measurement."""

    seconds: float
    """Median."""
    spread: float
    """Half the distance between the quartiles."""
    peak_mb: float
    """Largest resident memory of the process in the meantime, in megabytes."""
    flops: float = 0.0
    """Operations of the matrix products and convolutions; 0: not counted."""


@dataclass
class Report:
    """All measurements."""

    threads: int
    kernel: str
    """Native kernel that imagines, or ``torch`` without one."""
    preset: str
    ensemble: int
    gemm_rates: list[float] = field(default_factory=list)
    """Operations per second, each sample."""
    plan: dict[int, Cost] = field(default_factory=dict)
    """By number of members."""
    update: dict[int, Cost] = field(default_factory=dict)
    """By number of members, at equal numbers of decoded frames."""
    sample: Cost | None = None
    env_step: Cost | None = None
    """One step of the agent, without an image."""
    render: Cost | None = None
    """Additional cost of the image in a step; None: this machine cannot render."""
    episodes: int = 0
    """Episodes in the replay that was sampled from."""

    @property
    def gemm(self) -> float:
        """Operations per second of the machine's plain matrix product: the median."""
        return statistics.median(self.gemm_rates)

    def floor(self, cost: Cost) -> float:
        """Return the seconds that the arithmetic would take at the machine's rate."""
        return cost.flops / self.gemm

    def ratio(self, cost: Cost) -> float:
        """Return measured time over floor."""
        return cost.seconds / self.floor(cost)

    def flat(self) -> dict[str, float | int | str | None]:
        """Return one flat table of numbers, for JSON."""
        plan, update = self.plan[self.ensemble], self.update[self.ensemble]
        result: dict[str, float | int | str | None] = {
            "preset": self.preset,
            "threads": self.threads,
            "kernel": self.kernel,
            "ensemble": self.ensemble,
            "gemm_gflops": self.gemm / 1e9,
            "plan_s": plan.seconds,
            "plan_floor_s": self.floor(plan),
            "plan_ratio": self.ratio(plan),
            "plan_gflop": plan.flops / 1e9,
            "plan_peak_mb": plan.peak_mb,
            "update_s": update.seconds,
            "update_floor_s": self.floor(update),
            "update_ratio": self.ratio(update),
            "update_gflop": update.flops / 1e9,
            "update_peak_mb": update.peak_mb,
            "sample_s": self.sample.seconds if self.sample else None,
            "sample_peak_mb": self.sample.peak_mb if self.sample else None,
            "replay_episodes": self.episodes,
            "env_step_ms": 1000 * self.env_step.seconds if self.env_step else None,
            "render_ms": 1000 * self.render.seconds if self.render else None,
            "env_peak_mb": max(
                (cost.peak_mb for cost in (self.render, self.env_step) if cost), default=None
            ),
        }
        if self.ensemble != 1 and 1 in self.plan:
            for name, costs in (("plan", self.plan), ("update", self.update)):
                result[f"{name}_s_single"] = costs[1].seconds
                result[f"{name}_ratio_single"] = self.ratio(costs[1])
                result[f"{name}_over_single"] = costs[self.ensemble].seconds / costs[1].seconds
        return result


def tables(report: Report) -> list[RenderableType]:
    """Return the report for a terminal."""
    main = Table("", "E", "time", "±", "GFLOP", "floor", "ratio", "peak MB", box=None)
    for name, costs in (("one plan", report.plan), ("one update", report.update)):
        for members, cost in costs.items():
            main.add_row(
                name,
                str(members),
                _seconds(cost.seconds),
                _seconds(cost.spread),
                f"{cost.flops / 1e9:.3g}",
                _seconds(report.floor(cost)),
                f"{report.ratio(cost):.2f}",
                f"{cost.peak_mb:.0f}",
            )
    others = {
        f"batch of {report.episodes} episodes": report.sample,
        "step, no image": report.env_step,
        "its image": report.render,
    }
    for name, other in others.items():
        if other is not None:
            times = _seconds(other.seconds), _seconds(other.spread)
            main.add_row(name, "", *times, "", "", "", f"{other.peak_mb:.0f}")
    rows, inner, columns = GEMM
    head = (
        f"{processor_and_instructions()}; threads: {report.threads}; preset: {report.preset}\n"
        f"imagination: {_kernel(report.kernel)}\n"
        f"matrix product {rows}×{inner} by {inner}×{columns}, float32: "
        f"{report.gemm / 1e9:.1f} GFLOP/s\n"
        "update: all members learn from the same batch, and each decodes its share of it\n"
    )
    return [head, main]


def processor_and_instructions() -> str:
    """Return the processor's name and its vector instructions."""
    return f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"


def _kernel(name: str) -> str:
    if name == "torch":
        return "PyTorch's operators (no native kernel; install a C++ compiler, then the package)"
    return f"native kernel, {name}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
