"""Build a run's world model from its settings and its signature."""

from __future__ import annotations

import torch

from planet_bayes.config import Config
from planet_bayes.models import WorldModel
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
