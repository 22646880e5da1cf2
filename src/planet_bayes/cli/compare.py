"""``planet-bayes compare``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Compare:
    """Compare two to four agents on the same starts, side by side on one HTML page."""

    folders: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]]
    """Folders of runs or of exported agents of one task."""
    episodes: int = 5
    """Starts. The first is shown in full, and the table has the returns of all."""
    output: Path = Path("compare.html")
    """The page to write."""

    def run(self, console: Console) -> int:
        """Play the episodes, print the returns, and write the page."""
        import plotly.offline  # noqa: F401  # first: a missing extra is reported at once
        import torch

        from planet_bayes import runs
        from planet_bayes.cli.evaluate import warn
        from planet_bayes.data import files
        from planet_bayes.diagnostics.explain.comparison import MAX_RUNS, MIN_RUNS, check, compared
        from planet_bayes.diagnostics.explain.html import page
        from planet_bayes.errors import ConfigError

        if not MIN_RUNS <= len(self.folders) <= MAX_RUNS:
            raise ConfigError(f"name {MIN_RUNS} to {MAX_RUNS} runs, got {len(self.folders)}.")
        if self.episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {self.episodes}.")
        found = [runs.load_run(folder, device="cpu") for folder in self.folders]
        for run in found:
            warn(console, run.warnings)
        check(found)
        files.check_target(self.output)
        torch.set_num_threads(found[0].config.run.threads or 1)
        with console.status("") as status:
            document = compared(
                found, self.episodes, self.command(), lambda name: status.update(f"playing: {name}")
            )
        table = Table("run", "mean return", "std", "lowest", "highest")
        for facts, known in zip(document["runs"], document["returns"], strict=True):
            figures = (f"{known[name]:.1f}" for name in ("mean", "std", "low", "high"))
            table.add_row(facts["run"], *figures)
        console.print(table)
        files.write(self.output, page(document, "compare"))
        size = self.output.stat().st_size / 1e6
        console.print(f"wrote {self.output} ({size:.1f} MB)", soft_wrap=True)
        return 0

    def command(self) -> str:
        """Return the command that makes the same page."""
        words = ["planet-bayes", "compare", *map(str, self.folders)]
        return shlex.join([*words, "--episodes", str(self.episodes), "--output", str(self.output)])
