"""What a person sees while a run trains: a progress bar, a row per episode, an orderly stop."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from planet_bayes.config import Config
from planet_bayes.training.events import (
    Evaluating,
    Event,
    IterationDone,
    Problem,
    SeedEpisode,
    Updated,
    VideoWritten,
)


class StopRequest:
    """Turns the first Ctrl-C or SIGTERM into a request. The second Ctrl-C exits at once.

    With ``repeats`` it does not: a launcher repeats the first one.
    """

    def __init__(self, console: Console, repeats: bool = False) -> None:
        self.console, self.repeats = console, repeats
        self.signal = 0
        self.announced = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Return whether a stop was requested, and announce it once: a handler must not print."""
        if self.signal and not self.announced:
            self.announced = True
            advice = "" if self.repeats else " (Ctrl-C again exits without it)"
            self.console.print(f"stopping: writing a checkpoint{advice} …")
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        """128 + the signal, as in shells: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal if self.signal else 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT and not self.repeats:
            raise KeyboardInterrupt
        self.signal = self.signal or number  # schedulers may send SIGTERM more than once


_COLUMNS = (
    ("episode", "episode", 7, "{:d}"),
    ("steps", "steps", 7, "{:d}"),
    ("train_return", "return", 8, "{:.1f}"),
    ("evaluation_return", "evaluation", 10, "{:.1f}"),
    ("loss_observation", "obs loss", 9, "{:.3f}"),
    ("loss_reward", "rew loss", 9, "{:.4f}"),
    ("loss_kl_nats", "KL", 7, "{:.2f}"),
    ("minutes", "minutes", 7, "{:.1f}"),
)


LEARNING_SHARE = 0.5
"""Share of learning in the work of an iteration; the rest is acting."""


def _more_work(config: Config) -> float:
    """Return how much more work than another the first iteration is: it has more updates."""
    first, others = config.learn.first_updates, config.learn.updates_per_episode
    return LEARNING_SHARE * max(0.0, first / others - 1) if others else 0.0


class Watcher:
    """Prints events; in a terminal, with a live bar and the time left."""

    def __init__(self, console: Console, config: Config) -> None:
        self.console, self.config = console, config
        self.bar = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.more = _more_work(config)
        self.total = config.collect.episodes + 1 + self.more
        self.task = self.bar.add_task("seed episodes", total=self.total, left="")
        self.began: tuple[float, float] | None = None
        self.iteration = 0
        self.learning = False
        """Whether an update was shown."""
        self.rows = 0
        """Finished iterations that were shown."""

    def __enter__(self) -> Watcher:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case SeedEpisode(done, total):
                self.bar.update(self.task, description=f"seed episode {done}/{total}")
                if done == total:
                    done_so = "logged episodes are copied"
                    if not self.config.offline:
                        done_so = "seed episodes are collected"
                    self._print_without_bar(f"{total} {done_so}")
            case Updated(iteration, done, total):
                if not self.learning:
                    self._print_without_bar(f"episode {iteration}: learning, {total} updates")
                self.iteration, self.learning = iteration, True
                share = done / total
                work = LEARNING_SHARE * share + (self.more if iteration else self.more * share)
                self._move(iteration + work, f"episode {iteration}: learning {done}/{total}")
            case Evaluating(episodes):
                self._move(None, f"episode {self.iteration}: {episodes} evaluations")
            case IterationDone(row):
                self._row(row)
                self.iteration = row["episode"] + 1
                self._move(self.iteration + self.more, f"episode {self.iteration}")
            case VideoWritten(path, episode_return):
                text = f"video (return {episode_return:.1f}): {path}"
                self.console.print(text, soft_wrap=True, markup=False)
            case Problem(message):
                self.console.print(message, style="yellow", markup=False, soft_wrap=True)

    def _print_without_bar(self, text: str) -> None:
        """Print what the bar would show: in a file, minutes may pass before the first row."""
        if not self.console.is_terminal:
            self.console.print(text)

    def _move(self, completed: float | None, text: str) -> None:
        if completed is None:
            self.bar.update(self.task, description=text)
            return
        now = time.monotonic()
        if self.began is None and self.rows:  # the first iteration has more updates than others
            self.began = (now, completed)
        began, start = self.began or (now, completed)
        left = ""
        if completed - start >= 0.5:
            pace = (now - began) / (completed - start)
            seconds = pace * (self.total - completed)
            left = f"about {self._minutes(seconds)} left"
        self.bar.update(self.task, completed=completed, description=text, left=left)

    @staticmethod
    def _minutes(seconds: float) -> str:
        return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"

    def _row(self, data: dict[str, Any]) -> None:
        if not self.rows:
            self.console.print("  ".join(f"{title:>{width}}" for _, title, width, _ in _COLUMNS))
        cells = []
        for name, _, width, form in _COLUMNS:
            cells.append(f"{form.format(data[name]) if name in data else '':>{width}}")
        self.console.print("  ".join(cells))
        self.rows += 1
