"""``planet-bayes explain``."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

if TYPE_CHECKING:
    from planet_bayes.diagnostics.explain.source import Scene
    from planet_bayes.runs import Run


@dataclass(frozen=True)
class Explain:
    """Explain an episode: what the agent saw, expected and planned, as one HTML page.

    By default the agent plays a new episode without exploration noise. An episode that was recorded
    needs no environment: the agent filters it and shows what it would plan. The page needs no
    server and no network.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent."""
    seed: int | None = None
    """Number of the start of the episode that is played. By default 0."""
    episode: int | None = None
    """Number of an episode that the run stores, from 0, in place of a new one."""
    log: Path | None = None
    """File of a logged episode (.npz), in place of a new one."""
    output: Path | None = None
    """The page to write. By default explain.html in the run's folder."""

    def run(self, console: Console) -> int:
        """Record the episode and write the page."""
        import plotly.offline  # noqa: F401  # first: a missing extra is reported at once
        import torch

        from planet_bayes import runs
        from planet_bayes.cli.evaluate import warn
        from planet_bayes.data import files
        from planet_bayes.data.folder import RunFolder
        from planet_bayes.diagnostics.explain.document import explained
        from planet_bayes.diagnostics.explain.html import page
        from planet_bayes.errors import ConfigError

        if sum(part is not None for part in (self.seed, self.episode, self.log)) > 1:
            raise ConfigError("--seed, --episode and --log exclude each other; name one episode.")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed must not be negative, got {self.seed}.")
        target = self.output or RunFolder(self.folder).explanation
        before = time.monotonic()
        run = runs.load_run(self.folder, device="cpu")
        warn(console, run.warnings)
        files.check_target(target)
        torch.set_num_threads(run.config.run.threads or 1)
        with console.status("following the agent through an episode"):
            scene = self._scene(run)
            document = explained(run, scene, self.command())
            text = page(document, "explain")
        files.write(target, text)
        console.print(
            f"{run.config.task}, {scene.title}: return {document['return']:.1f} in "
            f"{document['steps']} steps",
            soft_wrap=True,
        )
        size, seconds = target.stat().st_size / 1e6, time.monotonic() - before
        console.print(f"wrote {target} ({size:.1f} MB, {seconds:.0f} s)", soft_wrap=True)
        return 0

    def command(self) -> str:
        """Return the command that makes the same page."""
        words = ["planet-bayes", "explain", str(self.folder)]
        for name in ("seed", "episode", "log", "output"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}", str(value)]
        return shlex.join(words)

    def _scene(self, run: Run) -> Scene:
        from planet_bayes.diagnostics.explain import source

        if self.log is not None:
            return source.follow_log(run, self.log)
        if self.episode is not None:
            return source.follow_stored(run, self.episode)
        return source.play_start(run, self.seed or 0)
