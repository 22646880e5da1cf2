"""Do requested episodes help more than random ones?

A model is fitted to a few random episodes. Then some more are collected in one of three ways:

- requested: the reset and the actions that lead to the start of a request, its actions, and random
  ones;
- same resets: the resets of these episodes, and random actions. What differs from the first is what
  was requested;
- random: fresh resets and random actions.

A model is fitted to all episodes of each, from the same initial weights, and judged on other
episodes: random ones, and square waves, which lead farther.

python benchmarks/requests.py              # from the root of the repository: minutes of one core
python benchmarks/requests.py --task cheetah_run
python benchmarks/requests.py --read       # the table
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from scipy import stats

from planet_bayes.config import PRESETS, Config
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics.conditions import square_wave
from planet_bayes.diagnostics.foresight import foresee_all
from planet_bayes.diagnostics.fulfil import asking
from planet_bayes.diagnostics.requests import Options as Search
from planet_bayes.diagnostics.requests import Request, find_requests
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.models import WorldModel
from planet_bayes.rng import numpy_stream
from planet_bayes.training.build import build_model
from planet_bayes.training.collect import Policy, collect_random, episode_streams, record
from planet_bayes.training.learner import Learner
from planet_bayes.types import Episode

FIRST, MORE, TESTED = 4, 4, 10
"""Episodes that the first model is fitted to, that are added, and of each kind to judge with."""
HORIZON = 10
RESULTS = Path("results/requests")
ARMS = ("before", "requested", "same resets", "random")
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What is measured."""

    task: str = "toy_reach"
    """The task."""
    seeds: tuple[int, ...] = (500, 501, 502, 503, 504)
    """One comparison for each."""
    updates: int = 2000
    """Updates of each model."""
    read: bool = False
    """Only make the table."""


def settings(task: str, seed: int) -> Config:
    """Return the settings: a smaller `quick`."""
    quick = PRESETS["quick"]
    sizes = {"deter": 40, "stoch": 10, "hidden": 40, "dense_units": 40, "reward_units": 40}
    return dataclasses.replace(
        quick,
        task=task,
        seed=seed,
        env=EnvConfig(observation=("sensors",)),
        model=dataclasses.replace(quick.model, **sizes),  # type: ignore[arg-type]
        learn=dataclasses.replace(quick.learn, batch_size=20, sequence_length=20),
        collect=dataclasses.replace(quick.collect, seed_episodes=FIRST),
    )


def fitted(config: Config, episodes: list[Episode], updates: int) -> WorldModel:
    """Return a model that was fitted to episodes."""
    signature = make_env(config.task, config.env).signature
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder))
        for episode in episodes:
            replay.add(episode)
        collect = dataclasses.replace(config.collect, seed_episodes=len(episodes))
        config = dataclasses.replace(config, collect=collect)
        learner = Learner(build_model(config, signature, "cpu"), config)
        learner.rescale(replay)
        for number in range(updates):
            learner.update(replay, number)
    return learner.acting_model


def requested(
    config: Config, requests: Sequence[Request], first: list[Episode], asked: bool
) -> list[Episode]:
    """Collect what was requested, or random actions after the same resets."""
    env = make_env(config.task, config.env)
    made = []
    for number, request in enumerate(requests):
        streams = episode_streams(config.seed, "collect", request.episode, "cpu")
        rng = numpy_stream(config.seed, "after-request", number)
        policy: Policy = lambda observation, rng=rng: env.signature.action.random(rng)  # noqa: E731
        if asked:
            policy = asking(request, first[request.episode], policy)
        made.append(record(env, env.signature, streams, policy))
    return made


def judged(config: Config, model: WorldModel) -> Row:
    """Return error and disagreement on other episodes, by kind."""
    env, found = make_env(config.task, config.env), {}
    for kind in ("random", "square"):
        episodes = []
        for number in range(TESTED):
            streams = episode_streams(config.seed, f"test-{kind}", number, "cpu")
            policy = (
                square_wave(env.signature, streams)
                if kind == "square"
                else lambda observation, rng=streams.numpy: env.signature.action.random(rng)
            )
            episodes.append(record(env, env.signature, streams, policy))
        seen = foresee_all(model, episodes, HORIZON, 5, config.seed).observations["sensors"]
        found[kind] = {
            "error": float(seen.rmse()[-1]),
            "disagreement": float(seen.disagreement()[-1]),
        }
    return found


def measure(task: str, seed: int, updates: int) -> Row:
    """Compare requested with random episodes, for one seed."""
    config = settings(task, seed)
    env = make_env(config.task, config.env)
    first = [collect_random(config, env, env.signature, number) for number in range(FIRST)]
    before = fitted(config, first, updates)
    found = find_requests(before, env.signature, first, Search(requests=MORE, horizon=HORIZON))
    requests = found.chosen
    more = {
        "requested": requested(config, requests, first, asked=True),
        "same resets": requested(config, requests, first, asked=False),
        "random": [
            collect_random(config, env, env.signature, FIRST + number)
            for number in range(len(requests))
        ],
    }
    return {
        "seed": seed,
        "updates": updates,
        "first_steps": [len(episode) - 1 for episode in first],
        "replayed_steps": [request.step for request in requests],
        "before": judged(config, before),
        **{
            name: judged(config, fitted(config, first + made, updates))
            for name, made in more.items()
        },
    }


def table(rows: list[Row]) -> str:
    """Return the table in Markdown: means over seeds and half of a 95 % interval."""
    titles = ("judged on", "figure", *ARMS, "requested - same resets", "requested - random")
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for kind in ("random", "square"):
        for figure in ("error", "disagreement"):
            parts = {name: np.array([row[name][kind][figure] for row in rows]) for name in ARMS}
            differences = [parts["requested"] - parts[name] for name in ARMS[2:]]
            cells = [_interval(part) for part in (*parts.values(), *differences)]
            lines.append(f"| {kind} | {figure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def main(options: Options) -> None:
    """Measure the missing seeds and print the table."""
    torch.set_num_threads(1)
    path = RESULTS / f"{options.task}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in () if options.read else options.seeds:
        if seed not in {row["seed"] for row in rows}:
            rows.append(measure(options.task, seed, options.updates))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main(tyro.cli(Options))
