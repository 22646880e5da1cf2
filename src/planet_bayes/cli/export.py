"""``planet-bayes export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes.cli.evaluate import warn


@dataclass(frozen=True)
class Export:
    """Copy what acting needs, a few MB, to a folder that works without the run."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run."""
    target: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    """The folder to make."""

    def run(self, console: Console) -> int:
        """Export settings, signature and newest weights."""
        from planet_bayes import runs

        target = runs.export(self.folder, self.target)
        warn(console, runs.load_run(self.folder, device="cpu").warnings)
        console.print(f"exported to {target}", soft_wrap=True)
        return 0
