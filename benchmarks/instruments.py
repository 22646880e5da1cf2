"""Why is a method better? What the runs of an experiment foresee and have seen, with their returns.

Returns do not say why one method is better than another. A run's folder could, but it stays on the
machine that made it. So each run is measured there after it has ended, and the figures are kept
beside its curve, in ``instruments.jsonl``. Nothing is played: a run takes a second.

Of the noise-free episodes of its newest evaluation, which it has not learned from, over the
planner's horizon, with the actions that were taken:

- error: root mean square error of the predicted return, over the std of the real one. 1 is what a
  constant would have.
- bias: mean of predicted minus real return, over the horizon: a reward a step. A planner that
  exploits its model expects more than it gets.
- RMSE/std, error correlation: of the members (see `planet-bayes diagnose`); none with E = 1.
- drawn: share of the members' variance that drawn latent states make, and not weights.

Of the episodes that its agent collected, if it has sensors:

- distance: the typical distance of a step to its nearest neighbour of another episode, among
  `STORED` steps drawn from all: how diverse the data are. The unit is the std of each sensor in the
  seed episodes, which all methods share that have the seed.

And from its curve, means of the last ten: the return of evaluations, that of episodes collected
with noise, and the distinct plans in these.

Run:  python benchmarks/instruments.py experiments/NAME.toml          # measures what is missing
      python benchmarks/instruments.py experiments/NAME.toml --read   # the table alone
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from planet_bayes.data.episode import read_episode
from planet_bayes.data.folder import RunFolder
from planet_bayes.diagnostics.foresight import foresee_all
from planet_bayes.diagnostics.stored import experienced
from planet_bayes.results.experiment import Experiment, PlannedRun, read_experiment
from planet_bayes.results.statistics import NUM_TRIALS
from planet_bayes.results.tables import header, row
from planet_bayes.rng import numpy_stream
from planet_bayes.runs import Run, load_run
from planet_bayes.types import Episode

Array = NDArray[np.float64]

FILE = "instruments.jsonl"
STORED = 2000
"""Steps of the agent that are compared with each other."""
EVERY = 2
"""Steps between the points that are imagined from."""
KEYS = ("variant", "method", "task", "observation", "seed")
COLUMNS = {
    "evaluated": "return",
    "collected": "with noise",
    "error": "error",
    "bias": "bias",
    "ratio": "RMSE/std",
    "error_correlation": "error corr.",
    "drawn": "drawn",
    "distance": "distance",
    "plans": "distinct plans",
}


def key(run: PlannedRun) -> dict[str, Any]:
    """Return what names a run in the file."""
    name = run.name
    values = (run.variant, name.method, name.task, name.observation, name.seed)
    return dict(zip(KEYS, values, strict=True))


def measure(planned: PlannedRun, folder: Path) -> dict[str, Any]:
    """Return the figures of a run that has ended."""
    run = load_run(folder, device="cpu")
    return {**key(planned), **foreseen(run), **visited(run), **curve(planned.result)}


def foreseen(run: Run) -> dict[str, float | None]:
    """Return the figures of what the members foresee of the newest evaluation."""
    horizon = run.config.planner.horizon
    paths = sorted(RunFolder(run.path).held_out.glob("*.npz"))
    episodes = [experienced(read_episode(path)) for path in paths]
    episodes = [one for one in episodes if len(one) > horizon]
    if not episodes:  # all ended early
        return {}
    found = foresee_all(run.agent.model, episodes, horizon, EVERY, run.config.seed, "instruments")
    real, predicted = found.real.sum(1), found.predicted.sum(1)
    returns, share = found.quantities()["return"], found.sampling_share()
    figures = {
        "error": relative(float(returns.rmse()[-1]), float(real.std())),
        "bias": float((predicted - real).mean() / horizon),
        "ratio": float(returns.ratio()[-1]),
        "error_correlation": float(returns.error_correlation()[-1]),
        "drawn": math.nan if share is None else float(share[-1]),
    }
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def relative(error: float, std: float) -> float:
    """Return an error over the std of what it is about; NaN if that is constant."""
    return error / std if std > 0 else math.nan


def visited(run: Run) -> dict[str, float]:
    """Return how far from each other the steps are that the agent collected, if it has sensors."""
    if not run.agent.signature.vector_sizes():
        return {}
    paths = sorted(RunFolder(run.path).episodes.glob("*.npz"))
    count = run.config.collect.seed_episodes
    episodes = [experienced(read_episode(path)) for path in paths]
    seed, own = episodes[:count], episodes[count:]
    return {"distance": distance(seed, own)} if len(own) > 1 else {}


def distance(seed: Sequence[Episode], own: Sequence[Episode]) -> float:
    """Return the geometric mean of the distances of steps to the nearest of another episode.

    Args:
        seed: Episodes of random actions, whose stds are the units.
        own: At least two episodes.
    """
    reference = np.concatenate([sensors(one) for one in seed])
    points = np.concatenate([sensors(one) for one in own])
    number = np.repeat(np.arange(len(own)), [len(one) for one in own])
    drawn = numpy_stream(0, "instruments").permutation(len(points))[:STORED]
    std = reference.std(0)
    moving = std > 0
    points, number = points[drawn][:, moving] / std[moving], number[drawn]
    squares = np.square(points).sum(1)
    apart = squares[:, None] + squares - 2 * points @ points.T
    apart[number[:, None] == number] = np.inf
    nearest = np.sqrt(np.maximum(apart.min(1), 0))
    return float(np.exp(np.log(np.maximum(nearest, 1e-6)).mean()))


def sensors(episode: Episode) -> Array:
    """Return all vector observations of an episode side by side, ``[L + 1, D]``."""
    parts = [part for part in episode.observation.values() if part.ndim == 2]
    return np.concatenate(parts, 1).astype(np.float64)


def curve(path: Path) -> dict[str, float | None]:
    """Return the means of some columns of a run's curve over its last rows."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))

    def mean(column: str) -> float | None:
        values = [float(one[column]) for one in rows if one.get(column)][-NUM_TRIALS:]
        return float(np.mean(values)) if values else None

    columns = {"evaluated": "evaluation_return", "collected": "train_return"}
    return {name: mean(column) for name, column in {**columns, "plans": "plan_distinct"}.items()}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the file, none if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def add(experiment: Experiment, runs: Path) -> list[dict[str, Any]]:
    """Measure the runs that have ended, are on this machine and are not in the file."""
    path = experiment.results / FILE
    rows = read(path)
    known = [{name: one[name] for name in KEYS} for one in rows]
    for planned in experiment.runs:
        folder = runs / planned.folder
        ended = planned.result.is_file() and RunFolder(folder).checkpoints.is_dir()
        if key(planned) in known or not ended:
            continue
        rows.append(measure(planned, folder))
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one row for each task and method: means over seeds (lowest, highest)."""
    lines = header(["task", "method", "seeds", *COLUMNS.values()])
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in sorted(rows, key=itemgetter("task", "seed")):
        groups.setdefault((one["task"], one["variant"] or one["method"]), []).append(one)
    for (task, method), group in groups.items():
        seeds = ", ".join(str(one["seed"]) for one in group)
        cells = [_cell([one.get(name) for one in group]) for name in COLUMNS]
        lines.append(row([f"`{task}`", f"`{method}`", seeds, *cells]))
    return "\n".join(lines)


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    digits = 0 if max(map(abs, known)) >= 10 else 2
    mean, low, high = (f"{one(known):.{digits}f}" for one in (np.mean, min, max))
    return mean if len(known) == 1 else f"{mean} ({low}, {high})"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--read", action="store_true", help="only print the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    experiment = read_experiment(options.experiment)
    root = options.experiment.resolve().parent.parent
    found = read(experiment.results / FILE) if options.read else add(experiment, root)
    if not found:
        parser.error("no run has been measured, and none that has ended is on this machine.")
    print(table(found))


if __name__ == "__main__":
    main()
