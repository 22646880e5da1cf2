"""``planet-bayes suggest``."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planet_bayes.diagnostics.requests import Request, Requests
    from planet_bayes.runs import Run
    from planet_bayes.types import Episode

MAX_SHOWN = 8
"""Entries of a vector that a table shows."""


@dataclass(frozen=True)
class Suggest:
    """Say where another episode would reduce the members' disagreement most.

    Starts from moments of the run's stored episodes and imagines random actions. Prints the
    requests: where to start, what to do, and where that leads. A figure is in requests.png in the
    run's folder.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run."""
    requests: int = 5
    """Requests at most."""
    horizon: int | None = None
    """Steps imagined ahead; by default those of the planner."""
    moments: int = 400
    """Starts, drawn from all stored steps."""
    random: int = 15
    """Random action sequences from each start."""
    log: Path | None = None
    """Start from the episodes in this folder instead of those of the run."""
    replay: bool = False
    """Replay the episodes up to the starts in the environment, to see whether they are reached."""
    json: Path | None = None
    """Write the requests with all their actions to this file."""

    def run(self, console: Console) -> int:
        """Print the requests and write the files."""
        import torch

        from planet_bayes import runs
        from planet_bayes.data import files
        from planet_bayes.data.folder import RunFolder
        from planet_bayes.diagnostics.requests import Options, find_requests
        from planet_bayes.diagnostics.requests_figure import draw

        run = runs.load_run(self.folder, device="cpu")
        torch.set_num_threads(run.config.run.threads or 1)
        horizon = run.config.planner.horizon if self.horizon is None else self.horizon
        options = Options(self.requests, horizon, self.moments, self.random)
        if self.replay and self.log is not None:
            raise ConfigError("--replay needs the run's own episodes, whose seeds are known.")
        paths = RunFolder(self.folder)
        for path in filter(None, (paths.requests_figure, self.json)):
            files.check_target(path)
        names, episodes = self._episodes(run)
        with console.status(f"imagining from {len(episodes)} episodes"):
            found = find_requests(run.agent.model, run.agent.signature, episodes, options)
        _print(console, found, horizon, names)
        draw(found, f"{run.config.task}: data requests", paths.requests_figure)
        seeds = [self._seed(run, one) for one in found.chosen]
        self._print_starts(console, found, seeds, run, episodes)
        if self.json is not None:
            facts = {"task": run.config.task, "usual": found.usual, "steps": found.steps}
            rows = [
                {**_plain(one, seed), "file": names[one.episode]}
                for one, seed in zip(found.chosen, seeds, strict=True)
            ]
            files.write(self.json, json.dumps({**facts, "requests": rows}, indent=1) + "\n")
        console.print(f"wrote {paths.requests_figure}", soft_wrap=True)
        return 0

    def _episodes(self, run: Run) -> tuple[list[str], list[Episode]]:
        """Return the names of the files, and the episodes."""
        from planet_bayes.data.folder import RunFolder, episode_file
        from planet_bayes.diagnostics.stored import experienced
        from planet_bayes.training.offline import logged_episode, logged_paths

        if self.log is None and not any(RunFolder(run.path).episodes.glob("*.npz")):
            raise ConfigError(
                f"{run.path} holds no episodes, as exported agents do not; name a folder of "
                "episodes with --log."
            )
        folder = RunFolder(run.path).episodes if self.log is None else self.log
        paths = logged_paths(folder)
        for number in range(len(paths) if self.log is None else 0):
            if episode_file(folder, number) not in paths:
                raise ConfigError(
                    f"episode {number} of the run is missing from {folder}, and the seeds of "
                    f"starts are found by counting. `planet-bayes train --resume {run.path}` makes "
                    "it again, or name the folder with --log."
                )
        signature = run.agent.signature
        return (
            [path.name for path in paths],
            [experienced(logged_episode(path, signature)) for path in paths],
        )

    def _seed(self, run: Run, request: Request) -> int | None:
        from planet_bayes.diagnostics.fulfil import reset_seed

        return None if self.log is not None else reset_seed(run.config, request.episode)

    def _print_starts(
        self,
        console: Console,
        found: Requests,
        seeds: list[int | None],
        run: Run,
        episodes: list[Episode],
    ) -> None:
        from planet_bayes.diagnostics.fulfil import reached

        known = [f"{rank}: seed {seed}" for rank, seed in enumerate(seeds, 1) if seed is not None]
        if known:
            console.print(
                "Reach a start by env.reset(seed=…) and the first actions of its episode, up to "
                f"its step. {', '.join(known)}.",
                soft_wrap=True,
            )
        if self.replay:
            with closing(run.make_env()) as env:
                for rank, request in enumerate(found.chosen, 1):
                    answer = reached(env, run.agent.signature, run.config, episodes, request)
                    console.print(f"start {rank} reached by replaying: {answer}", soft_wrap=True)


def _print(console: Console, found: Requests, horizon: int, names: Sequence[str]) -> None:
    console.print(
        f"Requests from {found.steps} stored steps. Usual disagreement {horizon} steps ahead: "
        f"{found.usual:.3g} (median over actions that were taken).",
        soft_wrap=True,
    )
    titles = ("", "start", "actions", "leads to", "disagreement", "visits", "gain")
    table = Table(*titles, box=None, pad_edge=False)
    for rank, one in enumerate(found.chosen, 1):
        table.add_row(
            *(str(rank), f"{names[one.episode]}\nstep {one.step}\n{_values(one.start)}"),
            *(_actions(one), _values(one.end)),
            f"{one.disagreement:.3g} ({one.disagreement / max(found.usual, 1e-9):.1f} ×)",
            *(f"{one.visits:.0f}", f"{one.gain:.3g}"),
        )
    console.print(table)


def _values(vectors: Mapping[str, Any]) -> str:
    """Return entries of vectors by name; an image has none."""
    lines = []
    for name, values in vectors.items():
        shown = " ".join(f"{value:.3g}" for value in values[:MAX_SHOWN])
        lines.append(f"{name} {shown}{' …' if len(values) > MAX_SHOWN else ''}")
    return "\n".join(lines) or "images"


def _actions(request: Request) -> str:
    mean = request.actions.mean(0)
    shown = " ".join(f"{value:+.2f}" for value in mean[:MAX_SHOWN])
    return f"mean {shown}{' …' if len(mean) > MAX_SHOWN else ''}"


def _plain(request: Request, seed: int | None) -> dict[str, Any]:
    """Return a request as JSON has it."""
    facts = dict(vars(request))
    for name in ("start", "end"):
        facts[name] = {key: values.tolist() for key, values in facts[name].items()}
    return {**facts, "actions": request.actions.tolist(), "seed": seed}
