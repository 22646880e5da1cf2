"""Declared experiments: ``experiments/NAME.toml`` lists the runs of a comparison.

```toml
folder = "benchmark"             # results/benchmark, and runs/benchmark while they run
methods = ["planet_bayes"]       # planet, e_only, m_only, planet_bayes
seeds = [0, 1]

[settings]                       # for all runs
collect.episodes = 60

[[runs]]                         # one or more; each may repeat any key above
preset = "quick"
observations = ["sensors"]       # several sources in one run: [["pixels", "sensors"]]
tasks = ["cartpole_swingup", "cup_catch"]

[variants.no-ema]                # optional; each is run with its own settings on top
learn.ema_decay = 0

[solved]                         # optional; the return of an evaluation that solves a task
cup_catch = 800
```

The runs are all combinations of variants, methods, observations, tasks and seeds. TOML has no null:
write ``"None"``.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planet_bayes.errors import ConfigError, nearest
from planet_bayes.results.curves import RunName

if TYPE_CHECKING:
    from planet_bayes.config import Config

SHARED_KEYS = ("preset", "methods", "observations", "tasks", "seeds", "settings")
"""Keys of an experiment and of its groups of runs."""
_LISTS = ("methods", "observations", "tasks", "seeds")


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment."""

    name: RunName
    variant: str
    """Empty if the experiment has none."""
    preset: str
    sources: tuple[str, ...]
    """What the agent observes, as in ``env.observation``."""
    settings: dict[str, Any]
    """Settings by dotted name, besides task, seed, method and observation."""
    folder: Path
    """The run's folder while it trains."""
    archive: Path
    """Folder of results that it is archived in."""

    @property
    def result(self) -> Path:
        """The curve, once it is archived."""
        return self.archive / self.name.path.with_name(f"{self.name.path.name}.csv")

    @property
    def words(self) -> list[str]:
        """Arguments of `planet-bayes` that train it."""
        words = ["train", "--preset", self.preset, "--method", self.name.method]
        words += ["--task", self.name.task, "--seed", str(self.name.seed)]
        return [
            *words,
            "--env.observation",
            *self.sources,
            "--run",
            str(self.folder),
            *self._options,
        ]

    @property
    def resume_words(self) -> list[str]:
        """Arguments of `planet-bayes` that continue it."""
        return ["train", "--resume", str(self.folder), *self._options]

    @property
    def _options(self) -> list[str]:
        return [word for name, value in self.settings.items() for word in option(name, value)]

    @property
    def command(self) -> str:
        """The command line that trains it."""
        return shlex.join(["planet-bayes", *self.words])

    def config(self) -> Config:
        """Return all its settings."""
        from planet_bayes.config import Config, from_dict, preset_config  # late: slow to import

        data = dataclasses.asdict(preset_config(self.preset, self.name.method))
        changes = {"task": self.name.task, "seed": self.name.seed, **self.settings}
        for name, value in {**changes, "env.observation": self.sources}.items():
            *groups, key = name.split(".")
            table = data
            for group in groups:
                table = table.setdefault(group, {})
            table[key] = None if value == "None" else value
        return from_dict(Config, data)


@dataclass(frozen=True)
class Experiment:
    """A declared experiment."""

    path: Path
    """The TOML file."""
    results: Path
    """Folder of its curves. With variants, each has a folder in it."""
    runs: tuple[PlannedRun, ...]
    solved: dict[str, float] = field(default_factory=dict)
    """The return of an evaluation that solves a task, by task. `planet-bayes table` then counts the
    steps until then."""

    @property
    def tasks(self) -> list[str]:
        """The tasks, each once."""
        return list(dict.fromkeys(run.name.task for run in self.runs))

    @property
    def variants(self) -> list[str]:
        """The variants in their declared order; one without a name if there are none."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    def missing(self) -> list[PlannedRun]:
        """Return the runs whose results are not archived yet."""
        return [run for run in self.runs if not run.result.is_file()]


def read_experiment(path: Path, root: Path | None = None) -> Experiment:
    """Read a declared experiment.

    Args:
        path: The TOML file.
        root: Folder of ``results`` and ``runs``; by default the one that ``experiments`` is in.
    """
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a readable experiment: {error}.") from error
    if root is None:
        root = path.parent.parent if len(path.parts) > 1 else Path("..")
    _check_keys(path, data, (*SHARED_KEYS, "folder", "runs", "variants", "solved"))
    if not isinstance(data.get("folder"), str):
        raise ConfigError(f"{path}: folder must name a folder under results/.")
    folder, variants = Path(data["folder"]), data.get("variants", {"": {}})
    runs: list[PlannedRun] = []
    for variant, extra in variants.items():
        for group in data.get("runs", [{}]):
            _check_keys(path, group, SHARED_KEYS)
            settings = {**_flat(data.get("settings", {})), **_flat(group.get("settings", {}))}
            merged = {**data, **group, "settings": settings | _flat(extra)}
            runs += _expand(path, merged, variant, root, folder / variant)
    return Experiment(path, root / "results" / folder, tuple(runs), _solved(path, data, runs))


def is_declared(source: Path) -> bool:
    """Return whether a path names a declared experiment, and not a folder of results."""
    return source.suffix == ".toml"


def results_folder(source: Path) -> Path:
    """Return the folder of results of a declared experiment, or ``source`` itself."""
    if not is_declared(source):
        return source
    experiment = read_experiment(source)
    if len(experiment.missing()) == len(experiment.runs):
        raise ConfigError(
            f"no run of {source} has a result yet. Train them: planet-bayes sweep {source}"
        )
    return experiment.results


def _expand(
    path: Path, group: dict[str, Any], variant: str, root: Path, folder: Path
) -> list[PlannedRun]:
    group = {"methods": ["planet_bayes"], **group}
    for key in ("preset", *_LISTS):
        if key not in group:
            raise ConfigError(f"{path}: {key} is missing.")
    for key in _LISTS:
        if not isinstance(group[key], list) or not group[key]:
            raise ConfigError(f"{path}: {key} must be a list of at least one, got {group[key]!r}.")
    runs = []
    for method, observation, task, seed in itertools.product(*(group[key] for key in _LISTS)):
        sources = (observation,) if isinstance(observation, str) else tuple(observation)
        label = "+".join(source.rpartition("=")[2] for source in sources)
        name = RunName(method, task, label, seed)
        runs.append(
            PlannedRun(
                name=name,
                variant=variant,
                preset=group["preset"],
                sources=sources,
                settings=group["settings"],
                folder=Path("runs") / folder / name.path,
                archive=root / "results" / folder,
            )
        )
    return runs


def _solved(path: Path, data: dict[str, Any], runs: list[PlannedRun]) -> dict[str, float]:
    """Return the levels of ``[solved]``, each of which needs variants and a task of the runs."""
    levels: dict[str, Any] = data.get("solved", {})
    tasks = {run.name.task for run in runs}
    if levels and "variants" not in data:
        raise ConfigError(f"{path}: solved compares variants, and none is declared.")
    for task, level in levels.items():
        if task not in tasks:
            raise ConfigError(f"{path}: solved: no run has the task {task!r}{nearest(task, tasks)}")
        if isinstance(level, bool) or not isinstance(level, int | float):
            raise ConfigError(f"{path}: solved.{task} must be a return, got {level!r}.")
    return {task: float(level) for task, level in levels.items()}


def _check_keys(path: Path, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}{nearest(key, known)}")


def _flat(table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Return nested tables as one, by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{where}{key}.")
        else:
            flat[where + key] = value
    return flat


def option(name: str, value: Any) -> list[str]:
    """Return the words that set a setting on the command line."""
    if isinstance(value, bool):
        group, dot, key = name.rpartition(".")
        name = name if value else f"{group}{dot}no-{key}"
        return [_flag(name)]
    if isinstance(value, list | tuple):
        return [_flag(name), *map(str, value)]
    if isinstance(value, float):
        short = f"{value:g}"
        return [_flag(name), short if float(short) == value else repr(value)]
    return [_flag(name), str(value)]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
