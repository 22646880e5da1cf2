"""Evaluation: noise-free episodes from numbered sets of starts, which the model never sees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from planet_bayes.agent import Agent, Carry, Prepared
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.episode import pack
from planet_bayes.data.folder import episode_file, weights_file
from planet_bayes.envs import make_env
from planet_bayes.planner import Diagnostics
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.training.collect import Recorder, never, play
from planet_bayes.training.plan_record import PlanRecord
from planet_bayes.types import Episode


def evaluate_agent(
    config: Config,
    agent: Agent,
    episodes: int,
    starts: int,
    should_stop: Callable[[], bool] = never,
    env: gymnasium.Env[Any, Any] | None = None,
    plans: PlanRecord | None = None,
    recorders: Sequence[Recorder] = (),
) -> list[float]:
    """Return the returns of noise-free episodes.

    Args:
        config: The run's settings.
        agent: The agent.
        episodes: How many.
        starts: Number of the set of starts.
        should_stop: Whether to stop.
        env: An environment to play all episodes in, one after the other. None: the episodes are
            played at the same time, in fresh environments, and planned as one batch.
        plans: Where to record the numbers of the plans.
        recorders: Where to record the first episodes, one for each.
    """

    def on_step(observations: list[Prepared], carry: Carry, diagnostics: Diagnostics) -> None:
        if plans is not None:
            plans.add(diagnostics)

    seeds = [
        integer_seed(config.seed, "evaluate-environment", starts, index)
        for index in range(episodes)
    ]
    generator = torch_stream(config.seed, "evaluate-agent", starts, device=agent.device)
    if env is not None:
        return [
            play([env], agent, [seed], generator, should_stop, on_step, recorders[number:][:1])[0]
            for number, seed in enumerate(seeds)
        ]
    with contextlib.ExitStack() as stack:
        envs: list[gymnasium.Env[Any, Any]] = [
            stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            for _ in range(episodes)
        ]
        return play(envs, agent, seeds, generator, should_stop, on_step, recorders)


def hold_out(folder: Path, episodes: Sequence[Episode], weights: str) -> None:
    """Keep the episodes of an evaluation in a folder, in place of those of the one before.

    Args:
        folder: The folder.
        episodes: The episodes.
        weights: Sum of the weights that played them.
    """
    if folder.exists():
        files.remove_folder(folder)
    with files.new_folder(folder) as new:
        for number, episode in enumerate(episodes):
            files.put(episode_file(new, number), pack(episode))
        files.put(weights_file(new), weights + "\n")
