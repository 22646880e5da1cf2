"""``planet-bayes train``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes import plugins
from planet_bayes.cli._settings import PresetName, Settings, early_options, preset_config
from planet_bayes.cli.watch import StopRequest, Watcher
from planet_bayes.config import PRESETS, Config, MethodName
from planet_bayes.data.folder import RunFolder
from planet_bayes.envs import TASKS
from planet_bayes.errors import ConfigError


@dataclass(frozen=True)
class Train:
    """Train an agent.

    The preset gives the settings that are not named.
    """

    preset: PresetName = "quick"
    """quick: sensors, minutes on one CPU core. laptop: pixels, hours. paper: for a GPU."""
    method: MethodName | None = None
    """A method of the paper's ablation: sets num_members, num_components or both to 1. None: as the
    preset has them."""
    folder: Annotated[Path | None, tyro.conf.arg(name="run", metavar="FOLDER")] = None
    """Folder of the run. None: a new one under runs/."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Continue the run in this folder, with its own settings. What may change: run.*,
    collect.episodes, learn.learning_rate, learn.ema_decay, env.timeout."""
    config: Settings = field(default_factory=lambda: PRESETS["quick"])
    saved: tyro.conf.Suppress[tyro.conf.Fixed[Config | None]] = None

    @classmethod
    def defaults(cls, words: list[str]) -> Train:
        """Return the settings of the preset and method, or of the run to resume."""
        early = early_options(words)
        if early.offline is not None:
            _check_offline(early.offline, early.resume, words)
        if early.resume is None:
            return cls(config=preset_config(early))
        from planet_bayes import runs

        for name in ("preset", "method"):
            if getattr(early, name) is not None:
                raise ConfigError(
                    f"--{name} and --resume exclude each other: a run keeps its settings."
                )
        saved = runs.resume_config(early.resume)
        return cls(config=saved, saved=saved)

    def run(self, console: Console) -> int:
        """Train, with a row for each episode, until the end or Ctrl-C."""
        from planet_bayes import runs
        from planet_bayes.training import distributed

        config = self.config
        if config.offline and self.resume is None:
            config = runs.offline_config(config, config.offline)
        path = self.folder or runs.default_folder(config)
        console.quiet = console.quiet or distributed.is_follower()
        if self.resume is not None:
            if self.folder is not None:
                raise ConfigError(
                    "--run and --resume exclude each other; --resume names the folder."
                )
            assert self.saved is not None
            config, path = runs.resumed(self.saved, config), self.resume
        _check_task(config.task)
        console.print(
            f"{config.method} on {config.task} from {config.env.label}, seed {config.seed}, "
            f"{f'offline from {config.offline}, ' if config.offline else ''}run folder {path}",
            soft_wrap=True,
        )
        # torchrun passes on Ctrl-C, which has reached this process already.
        repeats = distributed.num_processes() > 1
        with StopRequest(console, repeats) as stop, Watcher(console, config) as watcher:
            _, ended = runs.train(
                config,
                path,
                resume=self.resume is not None,
                should_stop=stop.requested,
                report=watcher,
            )
        if not ended:
            command = f"{_command()} train --resume {quote(str(path))}"
            console.print(f"stopped; continue with:  {command}", soft_wrap=True)
            return stop.exit_code
        console.print(_conclusion(config, path, watcher.rows > 0), soft_wrap=True)
        return 0


def _check_offline(folder: str, resume: Path | None, words: list[str]) -> None:
    """Refuse what has no effect in a run that collects nothing."""
    if not folder:
        raise ConfigError("--offline needs the name of a folder with episodes.")
    if resume is not None:
        raise ConfigError("--offline and --resume exclude each other: a run keeps its episodes.")
    for word in words:
        if word.startswith("--collect."):
            raise ConfigError(
                f"{word.partition('=')[0]} has no effect with --offline, which collects nothing; "
                "leave it out."
            )


def _check_task(task: str) -> None:
    """Refuse a task that no environment has, before anything is printed or opened."""
    import gymnasium

    if task not in TASKS and task not in gymnasium.registry and ":" not in task:
        from planet_bayes.envs.external import make_external

        make_external(task, list(TASKS))


def _conclusion(config: Config, path: Path, trained: bool) -> str:
    """Return what to do next. ``trained``: in this call, and not before."""
    folder, name = RunFolder(path), quote(str(path))
    if trained:
        lines = [f"\ndone. The run is in {path}. Look at:"]
    elif config.offline:
        lines = [f"\n{path} was finished before: it has learned offline. Look at:"]
    else:
        episodes = config.collect.episodes
        lines = [
            f"\n{path} was finished before, after {episodes} episodes. To continue:",
            f"  {_command()} train --resume {name} --collect.episodes {2 * episodes}",
            "Look at:",
        ]
    videos = sorted(folder.videos.glob("*.mp4"))
    if videos:
        lines.append(f"  {videos[-1]}   the agent, beside what its model reconstructs")
    tensorboard = Path(_program()).with_name("tensorboard")
    return "\n".join(
        [
            *lines,
            f"  {folder.table}   the learning curve",
            f"  {tensorboard} --logdir {name}   the same in a browser",
            f"  {_command()} evaluate {name}   its returns, beside random actions",
        ]
    )


def _command() -> str:
    """Return how a command begins that works like this one: with the same imports."""
    return " ".join([_program(), *(f"--import {quote(name)}" for name in plugins.registering())])


def _program() -> str:
    """Return how this program was called, so that printed commands work as they are."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "planet-bayes" else "planet-bayes"
