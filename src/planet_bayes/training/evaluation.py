"""Evaluation: noise-free episodes from numbered sets of starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium

from planet_bayes.agent import Agent, Carry, Prepared
from planet_bayes.config import Config
from planet_bayes.envs import make_env
from planet_bayes.planner import Diagnostics
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.training.collect import Recorder, never, play
from planet_bayes.training.plan_record import PlanRecord


def evaluate_agent(
    config: Config,
    agent: Agent,
    episodes: int,
    starts: int,
    should_stop: Callable[[], bool] = never,
    env: gymnasium.Env[Any, Any] | None = None,
    plans: PlanRecord | None = None,
    recorder: Recorder | None = None,
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
        recorder: Where to record the first episode.
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
            play([env], agent, [seed], generator, should_stop, on_step, recorded)[0]
            for seed, recorded in zip(seeds, [recorder, *[None] * episodes], strict=False)
        ]
    with contextlib.ExitStack() as stack:
        envs: list[gymnasium.Env[Any, Any]] = [
            stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            for _ in range(episodes)
        ]
        return play(envs, agent, seeds, generator, should_stop, on_step, recorder)
