"""Fit a new model to the episodes of a run, and measure its foresight on some that are held out.

``python -m planet_bayes.experiments.refit runs/NAME --updates 1000`` takes minutes where a run
takes hours, because nothing is collected: the place to try a change of the model or of its
objective, such as ``--loss.observation-scale 10``. What is not named is as the run has it.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from planet_bayes.config import at_least
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.diagnose import Foresight, foresee, join
from planet_bayes.experiments.settings import OnRun, call, parse
from planet_bayes.models import WorldModel
from planet_bayes.replay import Replay, read_episode
from planet_bayes.rng import torch_stream
from planet_bayes.training.learner import Learner
from planet_bayes.types import Episode


@dataclass(frozen=True)
class Options(OnRun):
    """What is fitted, for how long, and how it is judged."""

    updates: int = 1000
    """Gradient updates."""
    report_every: int = 500
    """Updates between the lines of the table."""
    hold_out: int = 4
    """Every so many-th episode is held out."""
    horizon: int = 15
    """Steps imagined ahead."""


def split(folder: Path, hold_out: int) -> tuple[dict[int, Episode], list[Episode]]:
    """Return the episodes to fit, by number, and those held out.

    The folder is only read, so it may be that of a run that is going on.
    """
    if hold_out < 2:
        raise ConfigError(f"hold_out must be at least 2, got {hold_out}.")
    episodes = [read_episode(path) for path in sorted(folder.glob("*.npz"))]
    held = episodes[hold_out - 1 :: hold_out]
    if not held:
        raise ConfigError(f"{folder} has {len(episodes)} episodes, fewer than {hold_out}.")
    kept = {index: one for index, one in enumerate(episodes) if (index + 1) % hold_out}
    return kept, held


def refit(options: Options) -> Iterator[tuple[int, dict[str, float], Foresight]]:
    """Fit, and yield the updates done, the mean losses since, and the foresight, now and then."""
    at_least(options, "", 1, "updates", "report_every", "horizon")
    config = options.config
    torch.set_num_threads(config.threads or 1)
    kept, held = split(options.run / "episodes", options.hold_out)
    held = [episode for episode in held if len(episode) > options.horizon]
    if not held:
        raise ConfigError(f"no held-out episode is longer than the horizon, {options.horizon}.")
    # Some seed episodes are held out, and the others are still to be drawn like seed episodes.
    seeds = max(1, sum(index < config.train.seed_episodes for index in kept))
    train = dataclasses.replace(config.train, seed_episodes=seeds)
    config = dataclasses.replace(config, train=train)
    first = kept[0]
    model = WorldModel(
        first.observation.shape[1:],
        first.action.shape[1],
        config.members,
        config.model,
        torch_stream(config.seed, "initialise"),
    )
    learner = Learner(model, config)
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder))
        for episode in kept.values():
            replay.add(episode)
        learner.rescale(replay)
        sums: dict[str, float] = {}
        count = 0
        for number in range(options.updates):
            for name, value in learner.update(replay, number).items():
                sums[name] = sums.get(name, 0.0) + value
            count += 1
            if count == options.report_every or number + 1 == options.updates:
                stream = torch_stream(config.seed, "refit", number)
                seen = [
                    foresee(learner.acting, episode, options.horizon, 3, stream) for episode in held
                ]
                yield number + 1, {name: value / count for name, value in sums.items()}, join(seen)
                sums, count = {}, 0


def main(words: list[str]) -> None:
    """Print a line of losses, errors and correlations for every so many updates."""
    options = parse(Options, words)
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"After every {options.report_every} of {options.updates} updates: mean losses since; then "
        "for steps ahead the error of the reward / that of a constant, r the correlation of returns"
    )
    for updates, losses, seen in refit(options):
        steps = [step for step in (1, 3, 5, 10, 15, 20) if step <= options.horizon]
        error, right, constant = seen.error(), seen.correlation(), seen.real.std(0)
        parts = [
            f"{step}: {error[step - 1]:.2f}/{constant[step - 1]:.2f} r {right[step - 1]:.2f}"
            for step in steps
        ]
        terms = " ".join(f"{name} {value:.3g}" for name, value in losses.items())
        console.print(f"{updates}  {terms}\n      " + "  ".join(parts))


if __name__ == "__main__":
    call(main)
