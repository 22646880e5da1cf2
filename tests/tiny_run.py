"""A run of a second or two: the toy task from sensors, a model of a few units."""

from pathlib import Path

import numpy as np

from planet_bayes.config import Config, TrainConfig
from planet_bayes.envs import EnvConfig
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig
from planet_bayes.replay import Replay
from planet_bayes.types import Episode

TINY = Config(
    task="toy_reach",
    seed=3,
    threads=1,
    num_members=2,
    num_trajectories=24,
    env=EnvConfig(observation="sensors", max_steps=12),
    model=ModelConfig(
        deter=8,
        stoch=4,
        hidden=8,
        vector_units=8,
        reward_units=8,
        reward_layers=1,
        normalise=True,
    ),
    loss=LossConfig(free_nats=0.0, kl_balance=0.8),
    planner=PlannerConfig(horizon=4, num_iterations=2, num_components=2),
    train=TrainConfig(
        episodes=3,
        seed_episodes=2,
        agent_weight=2.0,
        updates_per_episode=4,
        batch_size=4,
        sequence_length=6,
        averaging=0.5,
        evaluate_every=2,
        evaluation_episodes=2,
        video_every=0,
    ),
)


def filled_replay(folder: Path, actions: int = 2) -> Replay:
    """Return a replay of a few random episodes of 12 steps and 4 sensors."""
    replay = Replay(folder)
    rng = np.random.default_rng(0)
    for _ in range(4):
        replay.add(
            Episode(
                rng.normal(size=(12, 4)).astype(np.float32),
                rng.uniform(-1, 1, (12, actions)).astype(np.float32),
                rng.normal(size=12).astype(np.float32),
            )
        )
    return replay
