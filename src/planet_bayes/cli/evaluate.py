"""``planet-bayes evaluate``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from planet_bayes.config import Config
    from planet_bayes.envs import Policy
    from planet_bayes.runs import Run

BASELINE_EPISODES = 10


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained run: episodes without exploration noise, and a video."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent."""
    episodes: int = 5
    """Number of episodes, planned as one batch."""
    video: bool = True
    """Record one more episode as mp4 in the run's folder."""
    baselines: bool = True
    """Also show the returns of random and zero actions."""
    threads: int = 0
    """CPU threads. 0: as in training."""

    def run(self, console: Console) -> int:
        """Print a table of returns, and write evaluation.json and evaluation.mp4."""
        import torch

        from planet_bayes import runs
        from planet_bayes.data import files
        from planet_bayes.data.folder import RunFolder
        from planet_bayes.training.plan_record import PlanRecord

        run = runs.load_run(self.folder)
        warn(console, run.warnings)
        threads = self.threads or run.config.run.threads
        if threads:
            torch.set_num_threads(threads)
        learned = f"after {run.trained_episodes} episodes"
        if run.config.offline:
            learned = f"offline, from {run.progress.episodes} logged episodes"
        console.print(f"{run.config.task}, {learned}", soft_wrap=True)
        plans = PlanRecord()
        returns = runs.evaluate(run, self.episodes, plans=plans)
        result: dict[str, Any] = {
            "task": run.config.task,
            "episodes": run.trained_episodes,
            "returns": returns,
            "mean": float(np.mean(returns)),
            "std": float(np.std(returns)),
            **plans.summary(),
        }
        table = Table("policy", "mean return", "std", "episodes")
        _add_row(table, "agent", returns)
        if self.baselines:
            for policy, values in _baselines(run.config).items():
                _add_row(table, f"{policy} actions", values)
                result[f"{policy}_returns"] = values
        console.print(table)
        console.print(_plans(run.config.planner.num_components, result), soft_wrap=True)
        paths = RunFolder(self.folder)
        files.write(paths.evaluation, json.dumps(result, indent=2) + "\n")
        if self.video:
            _film(run, paths.evaluation_video, console)
        return 0


def _add_row(table: Table, policy: str, returns: list[float]) -> None:
    table.add_row(policy, f"{np.mean(returns):.1f}", f"{np.std(returns):.1f}", str(len(returns)))


def _plans(components: int, result: dict[str, Any]) -> str:
    """Return what the plans were like, in one line."""
    if components == 1:
        return "plans: one component"
    return (
        f"plans: {result['plan_distinct']:.2f} distinct of {components} components (mean over "
        f"steps), {result['plan_distance']:.2f} apart (Bhattacharyya; above 2 is distinct)"
    )


def _baselines(config: Config) -> dict[Policy, list[float]]:
    """Return the returns of simple policies."""
    from planet_bayes.envs import baseline_returns

    return baseline_returns(config.task, config.env, BASELINE_EPISODES, config.seed)


def _film(run: Run, path: Path, console: Console) -> None:
    """Record an episode. A machine that cannot render still gets the numbers."""
    from planet_bayes import extras
    from planet_bayes.errors import EnvError
    from planet_bayes.rng import torch_stream
    from planet_bayes.training.video import film_episode

    generator = torch_stream(run.config.seed, "evaluate-video", device=run.agent.device)
    try:
        with contextlib.closing(run.make_env()) as env:
            _, total = film_episode(env, run.agent, run.config.seed, generator, path)
    except ImportError as error:
        console.print(f"no video: {extras.advice(error) or error}", soft_wrap=True)
        return
    except EnvError as error:
        console.print(f"no video: {error}", soft_wrap=True)
        return
    console.print(f"video of one more episode (return {total:.1f}): {path}", soft_wrap=True)


def warn(console: Console, messages: Iterable[str]) -> None:
    """Print warnings."""
    for message in messages:
        console.print(f"warning: {message}", soft_wrap=True)
