"""``planet-bayes film``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes.diagnostics.film import FilmOptions


@dataclass(frozen=True)
class Film:
    """Film trained agents side by side, in real time, as one GIF."""

    target: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="GIF")]]
    """The animation to write."""
    folders: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]]
    """Folders of runs or of exported agents, from left to right."""
    options: Annotated[FilmOptions, tyro.conf.arg(name="")] = field(default_factory=FilmOptions)

    def run(self, console: Console) -> int:
        """Film all runs and write the animation."""
        import numpy as np
        import torch

        from planet_bayes import runs
        from planet_bayes.diagnostics.film import film, write_gif
        from planet_bayes.errors import ConfigError

        if not self.folders:
            raise ConfigError("name at least one run to film.")
        if self.target.suffix != ".gif":
            raise ConfigError(f"the animation is a GIF; {self.target} does not end in .gif.")
        films = []
        for path in self.folders:
            run = runs.load_run(path, device="cpu")
            torch.set_num_threads(run.config.run.threads or 1)
            frames, total = film(run, self.options)
            console.print(f"{path}: return {total:.0f} in the whole episode", soft_wrap=True)
            films.append(frames)
        write_gif(np.concatenate(films, axis=2), self.target, self.options.rate)
        console.print(f"written: {self.target}", soft_wrap=True)
        return 0
