"""The command line: ``planet-bayes COMMAND …``, one module of this package for each command.

A module that defines a dataclass with a method ``run(console) -> int`` is a command of the module's
name. The fields are its options (by tyro) and the docstring is its help text. A classmethod
``defaults(words)``, if there is one, returns the instance that gives the defaults. Modules are
imported when they are needed.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planet_bayes import __version__, extras, plugins
from planet_bayes.errors import ConfigError, PlanetBayesError, nearest

if TYPE_CHECKING:
    from rich.console import Console

LISTED_FIRST = ("train", "evaluate", "export", "tasks")
_HELP = ("-h", "--help", "--help-all")
_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from rich.console import Console  # late: an installation without extras does not have it

        return _run(words, Console(highlight=False, markup=False, emoji=False))
    except ImportError as error:
        advice = extras.advice(error)
        if advice is None:
            raise
        print(f"error: {advice}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has left, as in `planet-bayes table … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (PlanetBayesError, OSError) as error:
        return _failed(str(error))
    except (MemoryError, RuntimeError) as error:
        # PyTorch has a type of its own for the GPU's memory, and none for the machine's.
        reason = str(error) or "there was not enough"
        if not isinstance(error, MemoryError) and not _MEMORY.search(reason):
            raise
        return _failed(
            f"out of memory: {reason.splitlines()[0]}. Lower learn.batch_size, "
            "learn.sequence_length, planner.num_trajectories or the sizes of the model."
        )
    except KeyboardInterrupt:
        return 130


def _run(words: list[str], console: Console) -> int:
    words = _without_imports(words)
    if not words or words[0] in _HELP:
        _list_commands(console)
        return 0 if words else 2
    if words[0] == "--version":
        console.print(f"planet-bayes {__version__}")
        return 0
    kind = find(words[0])
    if kind is None:
        known = list(summaries())
        raise ConfigError(
            f"unknown command {words[0]!r}{nearest(words[0], known)} There are {', '.join(known)}."
        )
    from planet_bayes.cli._parsing import parse  # late: tyro takes a moment to load

    return parse(kind, words[0], words[1:]).run(console)


def _without_imports(words: list[str]) -> list[str]:
    """Import the modules that ``--import`` names, and return the words after them.

    Settings and files may then name the parts that these modules register.
    """
    words = [part for word in words for part in _split_import(word)]
    while words and words[0] == "--import":
        if len(words) == 1:
            raise ConfigError("--import: name a module, as in planet-bayes --import parts train.")
        plugins.register(words[1])
        words = words[2:]
    if "--import" in words:
        raise ConfigError("--import comes before the command: planet-bayes --import MODULE …")
    return words


def _split_import(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("--import=") else [word]


def find(name: str) -> type[Any] | None:
    """Return the command of a name, if there is one."""
    if name.startswith("_") or name not in _modules():
        return None
    module = importlib.import_module(f"{__name__}.{name}")
    for kind in vars(module).values():
        own = dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
        if own and isinstance(kind, type) and hasattr(kind, "run"):
            return kind
    return None


def commands() -> dict[str, type[Any]]:
    """Return all commands by name, in the order of a listing."""
    found = {name: kind for name in _modules() if (kind := find(name)) is not None}
    return {name: found[name] for name in _ordered(found)}


def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def summaries() -> dict[str, str]:
    """Return the first line of every command's help, in the order of a listing.

    The modules are parsed, not imported: they would load PyTorch, which takes seconds.
    """
    found: dict[str, str] = {}
    for name in _modules():
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not name.startswith("_") and _is_command(node):
                found[name] = (ast.get_docstring(node) or "").splitlines()[0]
    return {name: found[name] for name in _ordered(found)}


def _is_command(node: ast.ClassDef) -> bool:
    functions = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
    return bool(node.decorator_list) and "run" in functions


def _ordered(names: Iterable[str]) -> list[str]:
    return [*LISTED_FIRST, *(name for name in names if name not in LISTED_FIRST)]


def _list_commands(console: Console) -> None:
    console.print(
        "usage: planet-bayes [--import MODULE] COMMAND [OPTIONS]\n\n"
        "Uncertainty-aware latent model-predictive control.\n\ncommands:"
    )
    for name, summary in summaries().items():
        console.print(f"  {name:<10} {summary}", soft_wrap=True)
    console.print(
        "\n`planet-bayes COMMAND --help` describes a command.\n"
        "--import MODULE (repeatable) imports a module that registers parts of your own."
    )


def _failed(message: str) -> int:
    from rich.console import Console

    errors = Console(stderr=True, highlight=False, emoji=False)
    errors.print("[red]error:[/]", end=" ")
    errors.print(message, soft_wrap=True, markup=False)
    return 2
