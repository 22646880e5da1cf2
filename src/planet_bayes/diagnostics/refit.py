"""Fit a new model to the episodes of a run, and measure its foresight on held-out ones.

It takes minutes where a run takes hours, because nothing is collected. Use it to try a change of
the model or of its objective.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planet_bayes.checks import at_least
from planet_bayes.config import Config
from planet_bayes.data.episode import read_episode
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics.foresight import Foresight, foresee, join
from planet_bayes.errors import ConfigError
from planet_bayes.rng import torch_stream
from planet_bayes.runs import load_run
from planet_bayes.training.build import build_model
from planet_bayes.training.learner import Learner
from planet_bayes.types import Episode

POINT_DISTANCE = 3
"""Steps of a held-out episode between the points that are imagined from."""


@dataclass(frozen=True)
class RefitOptions:
    """How long a model is fitted, and how it is judged."""

    updates: int = 1000
    """Gradient updates."""
    report_every: int = 500
    """Updates between reports."""
    hold_out: int = 4
    """Hold out each episode whose number is a multiple of this."""
    horizon: int = 15
    """Steps imagined ahead."""

    def __post_init__(self) -> None:
        at_least(self, "", 1, "updates", "report_every", "horizon")
        at_least(self, "", 2, "hold_out")


@dataclass(frozen=True)
class Fit:
    """One report of a fit."""

    updates: int
    """Updates so far."""
    losses: dict[str, float]
    """Means since the last report."""
    foresight: Foresight
    """On the held-out episodes."""


def split(
    folder: Path, hold_out: int, unnamed: str = ""
) -> tuple[dict[int, Episode], list[Episode]]:
    """Return the episodes to fit, by number, and the held-out ones.

    The folder is only read, so the run may still be in progress. ``unnamed`` is the name of the
    observation in files of version 0.1.
    """
    episodes = [read_episode(path, unnamed=unnamed) for path in sorted(folder.glob("*.npz"))]
    held = episodes[hold_out - 1 :: hold_out]
    if not held:
        raise ConfigError(f"{folder} has {len(episodes)} episodes, fewer than {hold_out}.")
    kept = {index: one for index, one in enumerate(episodes) if (index + 1) % hold_out}
    return kept, held


def refit(run: Path, config: Config, options: RefitOptions) -> Iterator[Fit]:
    """Fit a model of ``config`` to the episodes of ``run``, and report now and then."""
    signature = load_run(run, device="cpu").agent.signature
    name = next(iter(signature.observation))
    kept, held = split(RunFolder(run).episodes, options.hold_out, name)
    held = [episode for episode in held if len(episode) > options.horizon]
    if not held:
        raise ConfigError(f"no held-out episode is longer than the horizon, {options.horizon}.")
    # Some seed episodes are held out. The others must still be drawn as seed episodes.
    seeds = max(1, sum(index < config.collect.seed_episodes for index in kept))
    collect = dataclasses.replace(config.collect, seed_episodes=seeds)
    config = dataclasses.replace(config, collect=collect)
    learner = Learner(build_model(config, signature, "cpu"), config)
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder))
        for episode in kept.values():
            replay.add(episode)
        learner.rescale(replay)
        sums: dict[str, float] = {}
        count = 0
        for number in range(options.updates):
            for term, value in learner.update(replay, number).items():
                sums[term] = sums.get(term, 0.0) + value
            count += 1
            if count == options.report_every or number + 1 == options.updates:
                stream = torch_stream(config.seed, "refit", number)
                model = learner.acting_model
                parts = [
                    foresee(model, episode, options.horizon, POINT_DISTANCE, stream)
                    for episode in held
                ]
                losses = {term: value / count for term, value in sums.items()}
                yield Fit(number + 1, losses, join(parts))
                sums, count = {}, 0
