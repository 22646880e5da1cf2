"""A run of a second or two: the toy task from sensors, a model of a few units."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from planet_bayes.config import CollectConfig, Config, LearnConfig, RunConfig
from planet_bayes.data.replay import Replay
from planet_bayes.envs import EnvConfig
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig
from planet_bayes.types import Episode

TINY = Config(
    task="toy_reach",
    seed=3,
    env=EnvConfig(observation=("sensors",), max_steps=12),
    model=ModelConfig(
        num_members=2,
        deter=8,
        stoch=4,
        hidden=8,
        dense_units=8,
        reward_units=8,
        reward_layers=1,
        normalise=True,
    ),
    loss=LossConfig(free_nats=0.0, kl_balance=0.8),
    planner=PlannerConfig(horizon=4, num_trajectories=24, num_iterations=2, num_components=2),
    collect=CollectConfig(episodes=3, seed_episodes=2),
    learn=LearnConfig(
        agent_weight=2.0,
        updates_per_episode=4,
        batch_size=4,
        sequence_length=6,
        ema_decay=0.5,
    ),
    run=RunConfig(threads=1, evaluate_every=2, evaluation_episodes=2, video_every=0),
)


def replaced(config: Any, **groups: Any) -> Any:
    """Return the configuration with fields of its groups, given as dictionaries, replaced."""
    values = {
        name: dataclasses.replace(getattr(config, name), **value)
        if isinstance(value, dict)
        else value
        for name, value in groups.items()
    }
    return dataclasses.replace(config, **values)


def filled_replay(folder: Path, actions: int = 2, name: str = "sensors") -> Replay:
    """Return a replay of a few random episodes of 12 steps and 4 sensors."""
    replay = Replay(folder)
    rng = np.random.default_rng(0)
    for _ in range(4):
        replay.add(
            Episode(
                {name: rng.normal(size=(12, 4)).astype(np.float32)},
                rng.uniform(-1, 1, (12, actions)).astype(np.float32),
                rng.normal(size=12).astype(np.float32),
                np.zeros(12, np.bool_),
            )
        )
    return replay
