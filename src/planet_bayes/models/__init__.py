"""The latent world model: RSSM members, shared heads, and their objective."""

from planet_bayes.models.config import LossConfig, ModelConfig
from planet_bayes.models.ensemble import Observed, WorldModel
from planet_bayes.models.networks import preprocess, to_image
from planet_bayes.models.rssm import RSSM, MemberLinear, Normal

__all__ = [
    "RSSM",
    "LossConfig",
    "MemberLinear",
    "ModelConfig",
    "Normal",
    "Observed",
    "WorldModel",
    "preprocess",
    "to_image",
]
