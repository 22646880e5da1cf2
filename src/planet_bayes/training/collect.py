"""Episodes: at random, and with the agent, one or several environments at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor

from planet_bayes.agent import Agent, Carry
from planet_bayes.config import Config
from planet_bayes.errors import EnvError
from planet_bayes.planner import Diagnostics
from planet_bayes.rng import integer_seed, numpy_stream, torch_stream
from planet_bayes.types import Episode

LONGEST = 100_000  # agent steps; an episode that goes on has lost its end


class Stopped(Exception):
    """Someone asked to stop while an episode was under way; the episode is dropped."""


@dataclass
class Recorder:
    """Builds an `Episode`, step by step."""

    observations: list[Any]
    actions: list[Any]
    rewards: list[float]

    @staticmethod
    def begin(observation: Any, num_actions: int) -> Recorder:
        """Start with the first observation; no action led to it and no reward came with it."""
        return Recorder([observation], [np.zeros(num_actions, np.float32)], [0.0])

    def add(self, observation: Any, action: Any, reward: float) -> None:
        """Append the observation, the action that led to it and the reward that came with it."""
        self.observations.append(observation)
        self.actions.append(np.asarray(action, np.float32))
        self.rewards.append(reward)

    def episode(self) -> Episode:
        """Return what was recorded."""
        return Episode(
            observation=np.stack(self.observations),
            action=np.stack(self.actions),
            reward=np.asarray(self.rewards, np.float32),
        )


@dataclass(frozen=True)
class Collected:
    """An episode of the agent, and what its row of the metrics says of it."""

    episode: Episode
    facts: dict[str, float]


def episode_streams(
    seed: int, name: str, number: int, device: torch.device | str
) -> tuple[int, Generator, np.random.Generator]:
    """Return the environment's seed and the agent's and NumPy's streams for an episode."""
    return (
        integer_seed(seed, f"{name}-environment", number),
        torch_stream(seed, f"{name}-agent", number, device=device),
        numpy_stream(seed, f"{name}-numpy", number),
    )


def collect_random(
    env: gymnasium.Env,
    seed: int,
    rng: np.random.Generator,
    absorbing_steps: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Episode:
    """Collect an episode of uniformly random actions (Algorithm 2, line 1)."""

    def policy(_: Any) -> Any:
        if should_stop():
            raise Stopped
        return rng.uniform(-1, 1, _num_actions(env)).astype(np.float32)

    return _collect(env, seed, policy, rng, absorbing_steps)


def collect_episode(
    env: gymnasium.Env,
    agent: Agent,
    seed: int,
    generator: Generator,
    rng: np.random.Generator,
    exploration: float,
    absorbing_steps: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    on_plan: Callable[[Diagnostics], None] = lambda diagnostics: None,
) -> Episode:
    """Collect an episode with the agent and exploration noise (Algorithm 2, lines 4 to 11)."""
    carry = agent.initial()

    def policy(observation: Any) -> Any:
        nonlocal carry
        if should_stop():
            raise Stopped
        action, carry, seen = agent.act(carry, observation[None], generator, exploration)
        on_plan(seen)
        return action[0]

    return _collect(env, seed, policy, rng, absorbing_steps)


def collect_numbered(
    config: Config,
    env: gymnasium.Env,
    agent: Agent,
    number: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Collected:
    """Collect episode ``number`` of a run: a function of it, the settings and the weights."""
    train = config.train
    seed, generator, rng = episode_streams(config.seed, "collect", number, agent.device)
    plans: list[Tensor] = []
    episode = collect_episode(
        env,
        agent,
        seed,
        generator,
        rng,
        train.exploration,
        train.absorbing_steps,
        should_stop,
        lambda seen: plans.append(_plan_facts(seen)),
    )
    total = float(episode.reward.sum(dtype=np.float64))
    return Collected(episode, {"train_return": total, **_summary(plans)})


def _plan_facts(seen: Diagnostics) -> Tensor:
    """Return the three numbers of a plan that are recorded; the rest of it can be forgotten."""
    facts = (seen.effective_components, seen.effective_samples, seen.num_rejected)
    return torch.stack([fact.mean(dtype=torch.float32).cpu() for fact in facts])


def _summary(plans: list[Tensor]) -> dict[str, float]:
    """Return what an episode's plans were like: means over its steps, and what was rejected."""
    components, samples, rejected = torch.stack(plans, 1)
    return {
        "plan_components": float(components.mean()),
        "plan_samples": float(samples.mean()),
        "plan_rejected": float(rejected.sum()),
    }


def _collect(
    env: gymnasium.Env,
    seed: int,
    policy: Callable[[Any], Any],
    rng: np.random.Generator,
    absorbing_steps: int,
) -> Episode:
    observation, _ = env.reset(seed=seed)
    recorder = Recorder.begin(observation, _num_actions(env))
    terminated = truncated = False
    while not (terminated or truncated):
        action = policy(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        recorder.add(observation, action, float(reward))
        if len(recorder.rewards) > LONGEST:
            raise EnvError(
                f"the episode has not ended after {LONGEST} steps; give the environment a limit, "
                "or set --env.max-steps."
            )
    if terminated:
        for _ in range(absorbing_steps):
            action = rng.uniform(-1, 1, _num_actions(env)).astype(np.float32)
            recorder.add(observation, action, 0.0)
    return recorder.episode()


def _num_actions(env: gymnasium.Env) -> int:
    shape = env.action_space.shape
    assert shape is not None
    return shape[0]


def evaluate(
    envs: list[gymnasium.Env],
    agent: Agent,
    seeds: list[int],
    generator: Generator,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Carry], None] = lambda carry: None,
) -> list[float]:
    """Return the returns of one noise-free episode in each environment, planned as one batch.

    ``on_step`` sees the agent's memory each time it has chosen actions, before they are done.
    """
    observations = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    returns = [0.0] * len(envs)
    running = set(range(len(envs)))
    carry = agent.initial(len(envs))
    while running:
        if should_stop():
            raise Stopped
        actions, carry, _ = agent.act(carry, np.stack(observations), generator)
        on_step(carry)
        for index in sorted(running):
            observation, reward, terminated, truncated, _ = envs[index].step(actions[index])
            observations[index] = observation
            returns[index] += float(reward)
            if terminated or truncated:
                running.remove(index)
    return returns
