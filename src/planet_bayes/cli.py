"""The command line: ``planet-bayes train``, ``evaluate``, ``bench`` and ``tasks``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Column, Table

from planet_bayes import bench, files, runs
from planet_bayes.config import PRESETS, Config
from planet_bayes.envs import TASKS, describe_tasks, random_return
from planet_bayes.errors import ConfigError, EnvError, PlanetBayesError, nearest
from planet_bayes.planner import PlannerError
from planet_bayes.rng import torch_stream
from planet_bayes.training import checkpoint
from planet_bayes.training.video import film_episode
from planet_bayes.watch import StopRequest, Watcher

PresetName = Literal["quick", "laptop", "paper"]


_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


@dataclass(frozen=True)
class Train:
    """Train an agent. Every setting below can be set; the preset gives the rest."""

    preset: PresetName = "quick"
    """quick: sensors, about twelve minutes on one CPU core. laptop: pixels, for hours on
    the same. paper: the paper's sizes, for a GPU."""
    run: Path | None = None
    """Folder for the run; by default one under runs/, named after what is run."""
    resume: Path | None = None
    """Go on with the run in this folder, from its last checkpoint. Its settings are kept;
    how long it lasts, how often it is looked at, on what it runs, the learning rate and the
    averaging of weights may be changed."""
    config: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=lambda: PRESETS["quick"]
    )


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained run: episodes without exploration noise, and a video."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    episodes: int = 5
    """How many episodes, planned as one batch."""
    video: bool = True
    """Record one more episode as mp4, in the run's folder."""
    baselines: bool = True
    """Also show what random actions and the zero action return."""
    threads: int = 0
    """CPU threads; 0: as in training."""


@dataclass(frozen=True)
class Bench:
    """Measure planning, learning, sampling and simulating against the CPU's own rate.

    Best on an otherwise idle machine. Every size below can be set; the preset gives the rest.
    """

    preset: PresetName = "quick"
    """Sizes to start from; paper takes some minutes."""
    json: bool = False
    """Print one JSON object and nothing else."""
    repeats: int = 5
    """How often a plan is timed after the warm-up; an update about half as often."""
    actions: int = 6
    """Dimensions of the action."""
    episodes: int = 1000
    """Episodes in the replay that is sampled from: a temporary file each, of 3 MB at 64×64."""
    single: Annotated[bool, tyro.conf.FlagConversionOff] = True
    """Also measure one member, at equal numbers of trajectories and decoded frames."""
    config: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff] = (
        dataclasses.field(default_factory=lambda: PRESETS["quick"])
    )


@dataclass(frozen=True)
class Export:
    """Copy a run's settings and newest weights, a few MB, to a folder that can act elsewhere."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    to: tyro.conf.Positional[Path]
    """The folder to make."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks: observation and action spaces, control range and action repeat."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(highlight=False)
    try:
        command = _parse(words)
        if isinstance(command, Train):
            return _train(command, console)
        if isinstance(command, Evaluate):
            return _evaluate(command, console)
        if isinstance(command, Bench):
            return _bench(command, console)
        if isinstance(command, Export):
            folder = runs.export(command.run, command.to)
            _warn(console, checkpoint.newest_sound(command.run).damaged.values())
            console.print(f"exported to {folder}", soft_wrap=True, markup=False)
            return 0
        return _tasks(console)
    except (PlanetBayesError, PlannerError, OSError) as error:
        return _failed(str(error))
    except (MemoryError, RuntimeError) as error:
        # PyTorch has a type of its own for the GPU's memory, and none for the machine's.
        said = str(error) or "there was not enough"
        if not isinstance(error, MemoryError) and not _MEMORY.search(said):
            raise
        return _failed(
            f"out of memory: {said.splitlines()[0]}. Lower train.batch_size or "
            "train.sequence_length, num_trajectories, or the sizes of the model."
        )
    except KeyboardInterrupt:
        return 130


def _failed(message: str) -> int:
    errors = Console(stderr=True, highlight=False)
    errors.print("[red]error:[/]", end=" ")
    errors.print(message, soft_wrap=True, markup=False)
    return 2


def _parse(words: list[str]) -> Train | Evaluate | Export | Bench | Tasks:
    """Parse the words; the preset, or the run to resume, gives the defaults of the rest."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    first.add_argument("--resume", type=Path)
    known, _ = first.parse_known_args(words)
    preset = known.preset or "quick"
    if preset not in PRESETS:
        hint = nearest(preset, PRESETS)
        raise ConfigError(f"unknown preset {preset!r}{hint} There are {', '.join(PRESETS)}.")
    config = PRESETS[preset]
    if known.resume is not None:
        if known.preset is not None:
            raise ConfigError("--preset and --resume exclude each other: a run keeps its settings.")
        config = runs.resume_config(known.resume)
    commands = (
        Annotated[
            Train,
            tyro.conf.subcommand("train", default=Train(config=config)),
            tyro.conf.FlagConversionOff,
        ]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate"), tyro.conf.FlagConversionOff]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Bench, tyro.conf.subcommand("bench", default=Bench(config=config))]
        | Annotated[Tasks, tyro.conf.subcommand("tasks")]
    )
    return tyro.cli(
        commands,
        prog="planet-bayes",
        description="Uncertainty-aware latent model-predictive control.",
        args=words,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )


def _train(command: Train, console: Console) -> int:
    config, path = command.config, command.run
    if command.resume is not None:
        if path is not None:
            raise ConfigError("--run and --resume exclude each other; --resume names the folder.")
        config, path = runs.resume_config(command.resume, config), command.resume
    path = path or runs.default_folder(config)
    console.print(
        f"{config.method} on {config.task} from {config.env.observation}, seed {config.seed}, "
        f"run folder {path}",
        soft_wrap=True,
        markup=False,
    )
    with StopRequest(console) as stop, Watcher(console, config) as watcher:
        _, ended = runs.train(
            config,
            path,
            resume=command.resume is not None,
            should_stop=stop.requested,
            report=watcher,
        )
    if not ended:
        console.print(
            f"stopped; go on with:  {_program()} train --resume {quote(str(path))}",
            soft_wrap=True,
            markup=False,
        )
        return stop.exit_code
    if watcher.rows:
        lines = [f"\ndone. The run is in {path}. Look at:"]
    else:
        lines = [
            f"\n{path} was finished before, after {config.train.episodes} episodes. To go on:",
            f"  {_program()} train --resume {quote(str(path))} "
            f"--train.episodes {2 * config.train.episodes}",
            "Look at:",
        ]
    videos = sorted((path / "videos").glob("*.mp4"))
    if videos:
        lines.append(f"  {videos[-1]}   the agent, beside what its model reconstructs")
    lines.append(f"  {path / 'metrics.csv'}   the curve")
    beside = Path(_program()).with_name("tensorboard")
    lines.append(f"  {beside} --logdir {quote(str(path))}   the same, to watch")
    lines.append(f"  {_program()} evaluate {quote(str(path))}   how good it is, beside baselines")
    console.print("\n".join(lines), soft_wrap=True, markup=False)
    return 0


def _program() -> str:
    """Return how this program was called, so that what is printed can be typed."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "planet-bayes" else "planet-bayes"


def _evaluate(command: Evaluate, console: Console) -> int:
    run = runs.load_run(command.run)
    _warn(console, run.warnings)
    threads = command.threads or run.config.threads
    if threads:
        torch.set_num_threads(threads)
    console.print(f"{run.config.task}, after {run.progress.episodes} episodes of experience")
    returns = runs.evaluate(run, command.episodes)
    result: dict[str, object] = {
        "task": run.config.task,
        "episodes": run.progress.episodes,
        "returns": returns,
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
    }
    table = Table("policy", "mean return", "std", "episodes")
    table.add_row("agent", f"{np.mean(returns):.1f}", f"{np.std(returns):.1f}", str(len(returns)))
    if command.baselines:
        config = run.config
        plain = dataclasses.replace(config.env, observation="state", sensors=())
        if config.task not in TASKS:
            plain = config.env
        for policy in ("random", "zero"):
            values = random_return(config.task, plain, 10, config.seed, policy)
            mean, std = float(np.mean(values)), float(np.std(values))
            table.add_row(f"{policy} actions", f"{mean:.1f}", f"{std:.1f}", str(len(values)))
            result[f"{policy}_returns"] = values
    console.print(table)
    files.write(command.run / "evaluation.json", json.dumps(result, indent=2) + "\n")
    if command.video:
        _film(run, command.run / "evaluation.mp4", console)
    return 0


def _warn(console: Console, messages: Iterable[str]) -> None:
    for message in messages:
        console.print(f"warning: {message}", soft_wrap=True, markup=False)


def _film(run: runs.Run, path: Path, console: Console) -> None:
    """Record an episode; a machine that cannot render has the numbers all the same."""
    env = run.make_env()
    generator = torch_stream(run.config.seed, "evaluate-video", device=run.agent.device)
    try:
        _, total = film_episode(env, run.agent, run.config.seed, generator, path)
    except EnvError as error:
        console.print(f"no video: {error}", soft_wrap=True, markup=False)
        return
    finally:
        env.close()
    console.print(
        f"video of one more episode (return {total:.1f}): {path}", soft_wrap=True, markup=False
    )


def _bench(command: Bench, console: Console) -> int:
    config = command.config
    if config.threads:
        torch.set_num_threads(config.threads)
    quiet = Console(stderr=True, highlight=False)
    with quiet.status("measuring") as status:
        report = bench.bench(
            config,
            command.preset,
            num_actions=command.actions,
            repeats=command.repeats,
            episodes=command.episodes,
            single=command.single,
            progress=lambda what: status.update(f"measuring: {what}"),
        )
    if command.json:
        print(json.dumps(report.flat(), indent=2))
        return 0
    for line in bench.tables(report):
        console.print(line)
    return 0


def _tasks(console: Console) -> int:
    titles = ("task", "sensors", "state", "actions", "range", "repeat", "steps")
    table = Table(*(Column(title, no_wrap=True) for title in titles), box=None)
    notes = []
    for task in describe_tasks():
        low, high = task.control_range
        table.add_row(
            task.name,
            str(task.sensors[0]),
            str(task.state[0]),
            str(task.action_size),
            f"{low:g} … {high:g}",
            str(task.action_repeat),
            str(task.episode_steps),
        )
        notes.append(f"  {task.name}: {task.note}.")
    console.print(table)
    console.print("\n".join(["", *notes, ""]))
    console.print(
        "Pixels are 64×64×3 (32×32×3 in laptop); sensors and state are vectors of the length "
        "shown.\n"
        "Also: any Gymnasium id with a Box action space (Pendulum-v1), and your own environment "
        "as package.module:function. --env.original True gives the suite's own version of the "
        "paper's tasks."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
