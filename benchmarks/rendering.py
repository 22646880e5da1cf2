"""The cost of a camera frame, and its difference from the suite's own rendering.

Each task is driven by random actions, and both renderings are made of the same states: stock is
dm_control's `physics.render` with the model's own settings, now is what an environment of this
package returns. Times are medians, by the clock with the range of the middle 80 % of frames, and
of all threads' CPU, which other programs disturb less. Differences are absolute, in units of
1/255, over all pixels and channels.

Run:  python benchmarks/rendering.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Column, Table

from planet_bayes.envs import TASKS, gl


@dataclass(frozen=True)
class Options:
    """What is measured."""

    tasks: tuple[str, ...] = (
        "cheetah_run",
        "walker_run",
        "cup_catch",
        "finger_spin",
        "cartpole_swingup",
    )
    """Names of suite tasks."""
    size: int = 64
    """Pixels on a side."""
    states: int = 50
    """States of each task."""
    episode: int = 10
    """States of an episode, before the next one starts."""
    seed: int = 0
    """Of the episodes and of the actions."""


@dataclass(frozen=True)
class Result:
    """Both renderings of a task, by frame."""

    stock: NDArray[np.float64]
    """``[frames, 2]``, milliseconds by the clock and of CPU."""
    now: NDArray[np.float64]
    """The same."""
    difference: NDArray[np.int64]
    """``[frames, size, size, 3]``."""


def timed(render: Callable[[], NDArray[np.uint8]]) -> tuple[NDArray[np.int64], list[float]]:
    """Return a frame, and its milliseconds by the clock and of CPU."""
    render()  # not counted: it may have to wait for another context's work
    start = time.perf_counter(), time.process_time()
    frame = render()
    stop = time.perf_counter(), time.process_time()
    return frame.astype(np.int64), [1e3 * (b - a) for a, b in zip(start, stop, strict=True)]


def measure(task: str, options: Options) -> Result:
    """Render the same states both ways, in turns, so that a busy machine slows both."""
    from planet_bayes.envs import suite  # late: it loads MuJoCo, which reads the backend once

    env: Any = suite.make(TASKS[task], original=False, image_size=options.size)
    env.action_space.seed(options.seed)
    generator = np.random.default_rng(options.seed)
    stock, now, difference = [], [], []
    for index in range(options.states):
        if index % options.episode == 0:
            env.reset(seed=options.seed + index)
        for _ in range(generator.integers(1, 30)):
            env.step(env.action_space.sample())
        reference, before = timed(env.unwrapped.render)
        frame, after = timed(env.render)
        stock.append(before)
        now.append(after)
        difference.append(np.abs(frame - reference))
    env.close()
    return Result(np.array(stock), np.array(now), np.stack(difference))


def spread(milliseconds: NDArray[np.float64]) -> str:
    """Return the median, and the range of the middle 80 %."""
    low, middle, high = np.quantile(milliseconds, [0.1, 0.5, 0.9])
    return f"{middle:.1f} ({low:.0f}–{high:.0f})"


def main(options: Options) -> None:
    """Measure every task and print a table."""
    gl.choose_backend()
    names = ("stock, ms", "now, ms", "CPU, ms", "mean", "max")
    table = Table(
        Column("task", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in names),
        title=f"{options.size}×{options.size}, {options.states} states; mean, largest difference",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for task in options.tasks:
        result = measure(task, options)
        table.add_row(
            task,
            spread(result.stock[:, 0]),
            spread(result.now[:, 0]),
            f"{np.median(result.stock[:, 1]):.1f} → {np.median(result.now[:, 1]):.1f}",
            f"{result.difference.mean():.3f}",
            str(result.difference.max()),
        )
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
