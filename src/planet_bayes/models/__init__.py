"""The latent world model: latent dynamics, modalities, heads, and their objective.

Importing this package does not load PyTorch: its settings are read where nothing is computed.
"""

from typing import TYPE_CHECKING

from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.models.config import LossConfig, ModelConfig
    from planet_bayes.models.heads import HEADS, Head, RewardHead
    from planet_bayes.models.modalities import MODALITIES, Image, Modality, ModalityNetwork, Vector
    from planet_bayes.models.posterior import POSTERIORS, Dropout, Ensemble, Posterior, Snapshots
    from planet_bayes.models.rssm import RSSM, Dense, Filtered, LayerShape, Normal, Weights
    from planet_bayes.models.weighted_filter import (
        BeliefFilter,
        ImportanceFilter,
        LatentModel,
        ParticleFilter,
        Particles,
        StateSpace,
    )
    from planet_bayes.models.world_model import WorldModel

__all__ = [
    "HEADS",
    "MODALITIES",
    "POSTERIORS",
    "RSSM",
    "BeliefFilter",
    "Dense",
    "Dropout",
    "Ensemble",
    "Filtered",
    "Head",
    "Image",
    "ImportanceFilter",
    "LatentModel",
    "LayerShape",
    "LossConfig",
    "Modality",
    "ModalityNetwork",
    "ModelConfig",
    "Normal",
    "ParticleFilter",
    "Particles",
    "Posterior",
    "RewardHead",
    "Snapshots",
    "StateSpace",
    "Vector",
    "Weights",
    "WorldModel",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "config": ("LossConfig", "ModelConfig"),
        "heads": ("HEADS", "Head", "RewardHead"),
        "modalities": ("MODALITIES", "Image", "Modality", "ModalityNetwork", "Vector"),
        "posterior": ("POSTERIORS", "Dropout", "Ensemble", "Posterior", "Snapshots"),
        "rssm": ("RSSM", "Dense", "Filtered", "LayerShape", "Normal", "Weights"),
        "weighted_filter": (
            *("BeliefFilter", "ImportanceFilter", "LatentModel"),
            *("ParticleFilter", "Particles", "StateSpace"),
        ),
        "world_model": ("WorldModel",),
    },
)
