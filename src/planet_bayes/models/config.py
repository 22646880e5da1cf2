"""Settings of the world model and its objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planet_bayes.errors import ConfigError, nearest
from planet_bayes.models.rssm import ACTIVATIONS

LATENT_NOISE = ("independent", "shared", "mean")
BELIEFS = ("sample", "mean")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the world model. Where a preset says nothing else, they are PlaNet's."""

    deter: int = 200
    """Units of the GRU (h)."""
    stoch: int = 30
    """Dimensions of the stochastic state (s)."""
    hidden: int = 200
    """Units of the dense layers in the latent dynamics."""
    min_std: float = 0.1
    """Smallest std of prior and posterior."""
    activation: Literal["relu", "elu", "silu"] = "relu"
    """Nonlinearity of all layers but the GRU's."""
    image_depth: int = 32
    """Channels of the first convolution; the others are multiples of it."""
    image_bits: int = 5
    """Bits of an image's numbers that are seen, 1 to 8. With fewer than 8 the rest is noise, as in
    PlaNet, so that no one learns the steps; it also blurs where a thing is."""
    decoder_depth: int = 0
    """Channels of the decoder's last layer but one, likewise; 0: ``image_depth``. To draw a few
    frames well teaches more than to draw many badly (`loss.decode_fraction`)."""
    image_layers: int = 0
    """Dense layers of ``vector_units`` between the state and the image decoder's first. PlaNet has
    none, and so needs many channels to draw something thin from the few numbers that place it."""
    vector_units: int = 200
    """Units of the dense encoder and decoder of sensor observations."""
    vector_layers: int = 2
    """Layers of the dense encoder and decoder."""
    reward_units: int = 300
    """Units of the reward head."""
    reward_layers: int = 3
    """Layers of the reward head."""
    latent_noise: Literal["independent", "shared", "mean"] = "independent"
    """In imagination, each candidate draws its own latent noise (the paper's), or all
    candidates of a member share one draw (their ranking is less noisy), or none is drawn."""
    belief: Literal["sample", "mean"] = "sample"
    """What the agent takes from each member's posterior as the state to plan from: a sample (the
    paper's), or its mean, which is steadier where the posterior is wide. Learning samples."""
    normalise: bool = False
    """Scale each sensor and the reward by mean and std of the episodes so far, so that all count
    alike in the objective; of images, take the mean image away and scale the rest, each pixel
    by its own std and that of all."""
    latent_samples: int = 1
    """Latent trajectories imagined per member and candidate; 1 where no noise is drawn."""

    def __post_init__(self) -> None:
        for name in ("deter", "stoch", "hidden", "image_depth", "vector_units", "vector_layers"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"model.{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("decoder_depth", "image_layers"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"model.{name} must not be negative, got {getattr(self, name)}.")
        for name in ("reward_units", "reward_layers", "latent_samples"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"model.{name} must be at least 1, got {getattr(self, name)}.")
        if self.latent_noise == "mean" and self.latent_samples > 1:
            raise ConfigError(
                f"model.latent_samples is {self.latent_samples}, but with model.latent_noise mean "
                "they would all be the same; choose shared or independent noise."
            )
        if not 1 <= self.image_bits <= 8:
            raise ConfigError(f"model.image_bits must be 1 to 8, got {self.image_bits}.")
        for name, known in (
            ("activation", ACTIVATIONS),
            ("latent_noise", LATENT_NOISE),
            ("belief", BELIEFS),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"model.{name}: there is no {value!r}{nearest(value, known)} "
                    f"There are {', '.join(known)}."
                )
        if not self.min_std > 0:
            raise ConfigError(f"model.min_std must be positive, got {self.min_std}.")


@dataclass(frozen=True)
class LossConfig:
    """The objective: ELBO terms and their weights. Where a preset says nothing else, PlaNet's."""

    free_nats: float = 3.0
    """The KL below this many nats a step costs nothing."""
    kl_balance: float | None = None
    """Share of the KL's gradient that trains the prior; the rest regularises the posterior.
    None: the plain KL of the ELBO."""
    kl_scale: float = 1.0
    """Weight of the KL."""
    reward_scale: float = 10.0
    """Weight of the reward's log likelihood."""
    observation_scale: float = 1.0
    """Weight of the observation's log likelihood: with 1 its Gaussian has unit variance, with
    s a variance of 1 / s. An image that is scaled (``model.normalise``) counts as 30 sensors,
    whatever its size."""
    decode_fraction: float = 1.0
    """Share of its frames, picked at random, that each member decodes; the observation loss
    is scaled so that its expectation stays the same."""

    def __post_init__(self) -> None:
        for name in ("free_nats", "kl_scale", "reward_scale", "observation_scale"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"loss.{name} must not be negative, got {getattr(self, name)}.")
        if self.kl_balance is not None and not 0 <= self.kl_balance <= 1:
            raise ConfigError(f"loss.kl_balance must be in [0, 1], got {self.kl_balance}.")
        if not 0 < self.decode_fraction <= 1:
            raise ConfigError(
                f"loss.decode_fraction must be in (0, 1], got {self.decode_fraction}."
            )
