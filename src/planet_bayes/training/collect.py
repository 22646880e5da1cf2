"""Episodes: with random actions, and with the agent, in one or several environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Generator

from planet_bayes.agent import Agent, Carry, Prepared
from planet_bayes.config import Config
from planet_bayes.errors import EnvError
from planet_bayes.models.curiosity import CuriousImagination
from planet_bayes.planner import Diagnostics, TrajectoryModel
from planet_bayes.rng import integer_seed, numpy_stream, torch_stream
from planet_bayes.spaces import Signature
from planet_bayes.training.plan_record import PlanRecord
from planet_bayes.types import Belief, Episode

MAX_EPISODE_STEPS = 100_000
"""Agent steps after which an episode is taken for endless."""

Policy = Callable[[Prepared], Any]


class Stopped(Exception):
    """Someone asked to stop while an episode was under way; the episode is dropped."""


class Streams(NamedTuple):
    """The randomness of one episode."""

    env_seed: int
    agent: Generator
    numpy: np.random.Generator


def episode_streams(seed: int, name: str, number: int, device: torch.device | str) -> Streams:
    """Return the streams of episode ``number`` of a kind."""
    return Streams(
        integer_seed(seed, f"{name}-environment", number),
        torch_stream(seed, f"{name}-agent", number, device=device),
        numpy_stream(seed, f"{name}-numpy", number),
    )


def never() -> bool:
    """Return False: no one asks to stop."""
    return False


@dataclass
class Recorder:
    """Builds an `Episode` step by step."""

    observations: list[Prepared] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminals: list[bool] = field(default_factory=list)

    def add(self, observation: Prepared, action: Any, reward: float, terminal: bool) -> None:
        """Append the observation, the action that led to it and the reward that came with it."""
        self.observations.append(observation)
        self.actions.append(np.asarray(action, np.float32))
        self.rewards.append(reward)
        self.terminals.append(terminal)

    def episode(self) -> Episode:
        """Return the recorded episode."""
        names = self.observations[0]
        return Episode(
            {name: np.stack([one[name] for one in self.observations]) for name in names},
            action=np.stack(self.actions),
            reward=np.asarray(self.rewards, np.float32),
            terminal=np.asarray(self.terminals, np.bool_),
        )


@dataclass(frozen=True)
class Collected:
    """An episode of the agent, and the facts that its row of the metrics records."""

    episode: Episode
    facts: dict[str, float]


def collect_random(
    config: Config,
    env: gymnasium.Env[Any, Any],
    signature: Signature,
    number: int,
    should_stop: Callable[[], bool] = never,
) -> Episode:
    """Collect episode ``number`` of a run with random actions (Algorithm 2, line 1)."""
    streams = episode_streams(config.seed, "collect", number, "cpu")

    def policy(_: Prepared) -> Any:
        if should_stop():
            raise Stopped
        return signature.action.random(streams.numpy)

    return record(env, signature, streams, policy, config.collect.absorbing_steps)


def collect_episode(
    config: Config,
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    number: int,
    should_stop: Callable[[], bool] = never,
) -> Collected:
    """Collect episode ``number`` of a run: a function of it, the settings and the weights."""
    streams, settings = (
        episode_streams(config.seed, "collect", number, agent.device),
        config.collect,
    )
    weight = settings.curiosity_at(number - settings.seed_episodes)
    return collect_with_agent(
        *(env, agent, streams, settings.exploration, settings.absorbing_steps, should_stop),
        imagination=CuriousImagination(agent.model, weight) if weight > 0 else None,
    )


def collect_with_agent(
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    streams: Streams,
    exploration: float,
    absorbing_steps: int = 0,
    should_stop: Callable[[], bool] = never,
    imagination: TrajectoryModel[Belief] | None = None,
) -> Collected:
    """Collect an episode with the agent and exploration noise (Algorithm 2, lines 4 to 11).

    ``imagination`` is the planner's model; None: that of the agent's world model.
    """
    carry = agent.initial()
    plans = PlanRecord()

    def policy(observation: Prepared) -> Any:
        nonlocal carry
        if should_stop():
            raise Stopped
        action, carry, diagnostics = agent.act_on_prepared(
            carry, [observation], streams.agent, exploration, imagination=imagination
        )
        plans.add(diagnostics)
        return action[0]

    episode = record(env, agent.signature, streams, policy, absorbing_steps)
    total = float(episode.reward.sum(dtype=np.float64))
    return Collected(episode, {"train_return": total, **plans.summary()})


def record(
    env: gymnasium.Env[Any, Any],
    signature: Signature,
    streams: Streams,
    policy: Policy,
    absorbing_steps: int = 0,
) -> Episode:
    """Record one episode.

    Args:
        env: The environment.
        signature: Prepares the observations.
        streams: The episode's randomness.
        policy: Maps a prepared observation to an action in [-1, 1].
        absorbing_steps: Steps without reward that are appended after a terminal state.
    """
    raw, _ = env.reset(seed=streams.env_seed)
    observation = signature.prepare(raw)
    recorder = Recorder()
    recorder.add(observation, np.zeros(signature.action.size), 0.0, False)
    terminated = truncated = False
    while not (terminated or truncated):
        action = policy(observation)
        raw, reward, terminated, truncated, _ = env.step(action)
        observation = signature.prepare(raw)
        recorder.add(observation, action, float(reward), terminated)
        if len(recorder.rewards) > MAX_EPISODE_STEPS:
            raise EnvError(
                f"the episode has not ended after {MAX_EPISODE_STEPS} steps; give the environment "
                "a limit, or set --env.max-steps."
            )
    if terminated:
        for _ in range(absorbing_steps):
            recorder.add(observation, signature.action.random(streams.numpy), 0.0, True)
    return recorder.episode()


def play(
    envs: list[gymnasium.Env[Any, Any]],
    agent: Agent,
    seeds: list[int],
    generator: Generator,
    should_stop: Callable[[], bool] = never,
    on_step: Callable[[list[Prepared], Carry, Diagnostics], None] = lambda *_: None,
    recorders: Sequence[Recorder] = (),
) -> list[float]:
    """Return the returns of one noise-free episode in each environment, planned as one batch.

    ``on_step`` gets the prepared observations, the agent's memory and the planner's diagnostics
    after the agent chose actions and before they are executed. ``recorders`` get the episodes of
    the first environments.
    """
    prepare = agent.signature.prepare
    observations: list[Prepared] = [
        prepare(env.reset(seed=seed)[0]) for env, seed in zip(envs, seeds, strict=True)
    ]
    returns = [0.0] * len(envs)
    running = set(range(len(envs)))
    for observation, recorder in zip(observations, recorders, strict=False):
        recorder.add(observation, np.zeros(agent.signature.action.size), 0.0, False)
    carry = agent.initial(len(envs))
    while running:
        if should_stop():
            raise Stopped
        actions, carry, diagnostics = agent.act_on_prepared(carry, observations, generator)
        on_step(observations, carry, diagnostics)
        for index in sorted(running):
            raw, reward, terminated, truncated, _ = envs[index].step(actions[index])
            observations[index] = prepare(raw)
            returns[index] += float(reward)
            if index < len(recorders):
                recorders[index].add(observations[index], actions[index], float(reward), terminated)
            if terminated or truncated:
                running.remove(index)
    return returns
