"""Settings on the command line: defaults from a preset or a run, and two lengths of help."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import textwrap
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config
from planet_bayes.errors import ConfigError

Settings = Annotated[Config, tyro.conf.arg(name="")]
"""Type of a command's field ``config``: the settings of a run, by their dotted names."""
PresetName = Literal["quick", "laptop", "small", "paper"]

SHOWN = (
    *("task", "seed", "offline"),
    *("env.observation", "env.image_size", "env.original"),
    *("model.num_members", "model.deter"),
    *("planner.horizon", "planner.num_trajectories", "planner.num_iterations"),
    "planner.num_components",
    *("collect.episodes", "collect.seed_episodes", "collect.overlap"),
    *("learn.updates_per_episode", "learn.learning_rate"),
    *("run.threads", "run.device", "run.evaluate_every", "run.single_environment"),
)
"""The settings that ``--help`` lists; ``--help-all`` lists all."""


def early_options(words: list[str]) -> argparse.Namespace:
    """Return the options that give defaults to others: preset, method, resume and offline."""
    parser = argparse.ArgumentParser("planet-bayes", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--method")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--offline")
    return parser.parse_known_args(words)[0]


def preset_config(early: argparse.Namespace) -> Config:
    """Return the settings of the chosen preset and method, and of an offline run."""
    config = configuration.preset_config(early.preset or "quick", early.method)
    if not early.offline:
        return config
    collect = dataclasses.replace(config.collect, episodes=0, overlap=False)
    return dataclasses.replace(config, offline=early.offline, collect=collect)


def run_settings(words: list[str], command: str) -> tuple[Path, Config]:
    """Return the run that is the first of ``words``, and its settings.

    Without a run, a request for help gets the settings of a preset.
    """
    if not words or words[0].startswith("-"):
        if "--help" in words or "-h" in words:
            return Path("RUN"), PRESETS["quick"]
        raise ConfigError(
            "name the run's folder first, then the settings to change. For a list of them: "
            f"planet-bayes {command} RUN --help"
        )
    from planet_bayes.training import checkpoint  # late: it loads PyTorch, which help does not need

    run = Path(words[0])
    return run, checkpoint.load_config(checkpoint.latest(run))


def abridged_command(kind: type[Any], default: Any) -> tuple[type[Any], Any]:
    """Return a command with the same options, most of them hidden, and its default."""
    config = _abridged(default.config)
    field = ("config", Annotated[type(config), tyro.conf.arg(name="")], config)
    short = dataclasses.make_dataclass(kind.__name__, [field], bases=(kind,), frozen=True)
    values = {entry.name: getattr(default, entry.name) for entry in dataclasses.fields(kind)}
    return short, short(**{**values, "config": config})


def _abridged(config: Any, where: str = "") -> Any:
    """Return the same settings as an instance of a class that hides all except `SHOWN`."""
    kind = type(config)
    hints, texts = typing.get_type_hints(kind), field_docs(kind)
    fields: list[Any] = []
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(config):
        name, value, hint = where + entry.name, getattr(config, entry.name), hints[entry.name]
        if dataclasses.is_dataclass(value):
            value = _abridged(value, f"{name}.")
            hint = type(value)
        elif name in SHOWN:
            first = texts[entry.name].partition(". ")[0].removesuffix(".")
            hint = Annotated[hint, tyro.conf.arg(help=f"{first}.")]
        if not any(known == name or known.startswith(f"{name}.") for known in SHOWN):
            hint = typing.cast(Any, tyro.conf.Suppress)[hint]
        fields.append((entry.name, hint, entry))
        values[entry.name] = value
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True)(**values)


def field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields, each on one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        match before, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found
