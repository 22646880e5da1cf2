"""Build a run's world model and agent from its settings and its signature."""

from __future__ import annotations

import torch

from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.models import (
    BeliefFilter,
    ImportanceFilter,
    LatentModel,
    ParticleFilter,
    WorldModel,
)
from planet_bayes.rng import torch_stream
from planet_bayes.spaces import Signature


def build_model(config: Config, signature: Signature, device: torch.device | str) -> WorldModel:
    """Return the world model of ``config`` with its initial weights."""
    return WorldModel(
        signature.observation,
        signature.action.size,
        config.model,
        torch_stream(config.seed, "initialise"),
    ).to(device)


def build_agent(config: Config, model: WorldModel, signature: Signature) -> Agent:
    """Return the agent of ``config`` that acts with ``model``."""
    return Agent(model, signature, config.planner, build_filter(config, model))


def build_filter(config: Config, model: WorldModel) -> BeliefFilter | None:
    """Return the filter that ``agent.belief`` names; None for the inference model alone."""
    latent = LatentModel(model, config.loss.observation_scale)
    match config.agent.belief:
        case "importance":
            return ImportanceFilter(latent)
        case "particle_filter":
            return ParticleFilter(latent, config.agent.latent_particles)
    return None
