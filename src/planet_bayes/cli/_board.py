"""What a person sees while a sweep runs: a line for each start and end, and a live table."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.table import Table

from planet_bayes.sweep.backend import Ended
from planet_bayes.sweep.board import Board
from planet_bayes.sweep.jobs import Job
from planet_bayes.sweep.process import last_lines
from planet_bayes.sweep.standing import standing

LOG_LINES = 8
"""Lines of a failed run's log in the final report."""


class BoardWatcher:
    """Prints starts and ends; in a terminal, above a live table. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> BoardWatcher:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def started(self, job: Job) -> None:
        """Print that a job runs."""
        self.console.print(f"started  {job.name}", soft_wrap=True)

    def ended(self, ended: Ended) -> None:
        """Print that a job is over."""
        job = ended.job
        if ended.failure is not None:
            text = f"failed   {job.name}: {ended.failure}; log {job.log}"
        else:
            now = standing(job)
            text = f"done     {job.name}: evaluation {number(now.evaluation_return)}, "
            text += f"{job.config.collect.episodes} episodes in {duration(now.minutes)}"
        self.console.print(text, soft_wrap=True)

    def refresh(self, board: Board) -> None:
        """Draw the table anew."""
        if self.console.is_terminal:
            self.live.update(table(board), refresh=True)


def table(board: Board) -> Table:
    """Return the state of a sweep: a row for each run that is running or has failed."""
    rows = []
    for job in board.running:
        now = board.look(job)
        episode = "-" if now.episode is None else str(now.episode)
        returns = (number(now.train_return), number(now.evaluation_return))
        progress = f"{episode}/{job.config.collect.episodes}"
        rows.append((job.name, progress, *returns, duration(now.minutes_left)))
    rows += [(ended.job.name, "failed", "", "", "") for ended in board.failed]
    counts = {
        "done": len(board.done),
        "running": len(board.running),
        "waiting": len(board.waiting),
        "failed": len(board.failed),
    }
    result = Table(
        title=", ".join(f"{count} {name}" for name, count in counts.items())
        + f"; time left: {duration(board.minutes_left())}",
        title_justify="left",
    )
    result.add_column("run", overflow="fold")
    for title in ("episode", "return", "evaluation", "time left"):
        result.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result


def report(board: Board, console: Console) -> None:
    """Print what has failed: the reason, the end of the log, and where the log is."""
    for ended in board.failed:
        console.print(f"\n{ended.job.name} failed: {ended.failure}", soft_wrap=True)
        for line in last_lines(ended.job, LOG_LINES):
            console.print(f"  {line}", soft_wrap=True)
        console.print(f"  log: {ended.job.log}", soft_wrap=True)


def number(value: float | None) -> str:
    """Return a return, or a dash if there is none yet."""
    return "-" if value is None else f"{value:.1f}"


def duration(minutes: float | None) -> str:
    """Return a time in its largest fitting unit, or a dash if it is unknown."""
    if minutes is None:
        return "-"
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
