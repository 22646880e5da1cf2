"""``planet-bayes tasks``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table


@dataclass(frozen=True)
class Tasks:
    """List the tasks: observation and action spaces, control range and action repeat."""

    def run(self, console: Console) -> int:
        """Print the table."""
        from planet_bayes.envs import describe_tasks

        titles = ("task", "sensors", "state", "actions", "range", "repeat", "steps")
        table = Table(*(Column(title, no_wrap=True) for title in titles), box=None)
        notes = []
        for task in describe_tasks():
            low, high = task.control_range
            table.add_row(
                task.name,
                str(task.sensors),
                str(task.state),
                str(task.action_size),
                f"{low:g} … {high:g}",
                str(task.action_repeat),
                str(task.episode_steps),
            )
            notes.append(f"  {task.name}: {task.note}.")
        console.print(table)
        console.print("\n".join(["", *notes, ""]))
        console.print(
            "Pixels are 64×64×3 (32×32×3 in laptop). Sensors and state are vectors of the length "
            "shown.\n"
            "Other tasks: any Gymnasium id with a Box action space (Pendulum-v1), and your own "
            "environment as package.module:function. --env.original selects the suite's own "
            "version of the paper's tasks."
        )
        return 0
