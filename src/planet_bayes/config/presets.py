"""Presets: complete settings for a purpose."""

from __future__ import annotations

import dataclasses
from typing import Any

from planet_bayes.config.schema import CollectConfig, Config, LearnConfig, RunConfig
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, nearest
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig


def _paper() -> Config:
    return Config(planner=PlannerConfig(min_std=1e-3))


def _laptop() -> Config:
    return Config(
        task="cartpole_swingup",
        env=EnvConfig(image_size=32, blur=5),
        model=ModelConfig(
            deter=100,
            stoch=20,
            hidden=100,
            activation="elu",
            image_bits=8,
            image_depth=8,
            decoder_depth=24,
            decoder_layers=2,
            dense_units=200,
            reward_units=100,
            reward_layers=2,
            latent_noise="mean",
            belief="mean",
            normalise=True,
        ),
        loss=LossConfig(free_nats=0.0, kl_balance=0.8, decode_fraction=0.06),
        planner=PlannerConfig(
            horizon=15,
            num_trajectories=300,
            num_iterations=5,
            initial_std=1.0,
            execute="mean",
            candidate_decay=0.7,
            warm_candidates=5,
            keep_elites=3,
        ),
        collect=CollectConfig(
            episodes=100,
            seed_episodes=100,  # each costs a hundredth of an episode with planning
        ),
        learn=LearnConfig(
            first_updates=3000,
            updates_per_episode=300,
            agent_weight=10.0,
            onset_share=0.3,
            learning_rate=2e-3,
            ema_decay=0.99,
            batch_size=10,
            sequence_length=32,
            batch_sharing="shared",  # own batches cost 2.2 times the time: convolutions encode each
        ),
        run=RunConfig(video_every=20),
    )


def _quick() -> Config:
    laptop = _laptop()
    return dataclasses.replace(
        laptop,
        env=EnvConfig(observation=("sensors",)),
        model=dataclasses.replace(laptop.model, dense_units=100),
        loss=dataclasses.replace(laptop.loss, decode_fraction=1.0),
        collect=dataclasses.replace(laptop.collect, episodes=20),
        learn=dataclasses.replace(
            laptop.learn,
            first_updates=1000,
            updates_per_episode=100,
            onset_share=0.0,
            learning_rate=1e-3,
            batch_size=20,
            batch_sharing="own",
        ),
        run=RunConfig(
            threads=1,  # its products are small: a second thread gains a tenth at best
            video_every=0,
        ),
    )


def _small() -> Config:
    """Return the paper's algorithm with a smaller model, from sensors.

    It departs from `paper` in KL balancing in place of free nats, and in scaled sensors and
    rewards. ``docs/results/paper.md`` says why, and lists where both depart from the paper.
    """
    paper = _paper()
    return dataclasses.replace(
        paper,
        env=EnvConfig(observation=("sensors",)),
        model=dataclasses.replace(
            paper.model,
            deter=48,
            stoch=12,
            hidden=48,
            dense_units=48,
            reward_units=48,
            reward_layers=2,
            normalise=True,
        ),
        loss=LossConfig(free_nats=0.0, kl_balance=0.8),
        collect=dataclasses.replace(paper.collect, episodes=40),
        learn=dataclasses.replace(paper.learn, batch_size=32, sequence_length=32),
        run=RunConfig(threads=1, video_every=0),
    )


PRESETS: dict[str, Config] = {
    "quick": _quick(),
    "laptop": _laptop(),
    "small": _small(),
    "paper": _paper(),
}
"""quick: sensors, minutes. laptop: pixels on 2 CPU cores. small: the paper's algorithm from sensors
at the size of one CPU core. paper: the paper's sizes, for a GPU."""

_OFFICIAL_PLANET = {
    "proposal": "gaussian",
    "warm_start": False,
    "initial_std": 1.0,
    "execute": "mean",
}

METHOD_PLANNERS: dict[tuple[str, str], dict[str, Any]] = {
    ("small", "planet"): _OFFICIAL_PLANET,
    ("paper", "planet"): _OFFICIAL_PLANET,
}
"""Planner settings of a method in a preset, besides M. In `small` and `paper`, PlaNet plans as its
authors' code does. In the other presets the settings of the four methods differ in E and M only."""


def preset_config(preset: str, method: str | None = None) -> Config:
    """Return the settings of a preset, as one of the four methods of the paper's ablation."""
    if preset not in PRESETS:
        hint = nearest(preset, PRESETS)
        raise ConfigError(f"unknown preset {preset!r}{hint} There are {', '.join(PRESETS)}.")
    if method is None:
        return PRESETS[preset]
    config = PRESETS[preset].with_method(method)
    changes = METHOD_PLANNERS.get((preset, method), {})
    return dataclasses.replace(config, planner=dataclasses.replace(config.planner, **changes))
