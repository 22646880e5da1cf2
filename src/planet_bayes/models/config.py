"""Settings of the world model and its objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from planet_bayes.checks import at_least, between, one_of
from planet_bayes.errors import ConfigError

Activation = Literal["relu", "elu", "silu"]
LatentNoise = Literal["independent", "shared", "mean"]
BeliefKind = Literal["sample", "mean"]
OTHER_TERMS = ("total", "observation", "kl", "kl_nats", "total_correlation")
"""Terms of the objective that are not heads."""


@dataclass(frozen=True)
class ModelConfig:
    """Parts and sizes of the world model. The defaults are PlaNet's."""

    num_members: int = 5
    """Members of the ensemble (E), or particles of another posterior (P)."""
    posterior: str = "ensemble"
    """Approximation of the posterior over the dynamics' weights, by its name in
    `models.POSTERIORS`. `ensemble`: a network for each particle (the paper). `dropout`: one network
    with a dropout mask for each particle. `sgmcmc`: snapshots of one network that moves by
    stochastic-gradient MCMC."""
    dropout_rate: float = 0.05
    """Probability that a particle of the posterior `dropout` drops a hidden unit."""
    heads: tuple[str, ...] = ("reward",)
    """Prediction heads, by their names in `models.HEADS`. The planner needs `reward`."""
    deter: int = 200
    """Units of the GRU (h)."""
    stoch: int = 30
    """Dimensions of the stochastic state (s)."""
    hidden: int = 200
    """Units of the dense layers in the latent dynamics."""
    activation: Activation = "relu"
    """Activation function of all layers except the GRU."""
    image_depth: int = 32
    """Channels of the image encoder's first convolution. The others have multiples of it."""
    image_bits: int = 5
    """Bits of each pixel value that are used, 1 to 8. With fewer than 8, uniform noise replaces
    the rest, as in PlaNet."""
    decoder_depth: int = 0
    """Channels of the image decoder's last hidden layer. 0: ``image_depth``."""
    decoder_layers: int = 0
    """Dense layers of ``dense_units`` in the image decoder, before its convolutions."""
    dense_units: int = 200
    """Units of the dense encoder and decoder of vectors, and of ``decoder_layers``."""
    reward_units: int = 300
    """Units of the reward head."""
    reward_layers: int = 3
    """Layers of the reward head."""
    latent_noise: LatentNoise = "independent"
    """Noise of the latent state in imagination. `independent`: each candidate draws its own (the
    paper). `shared`: all candidates of a member share one draw. `mean`: no noise."""
    belief: BeliefKind = "sample"
    """State of each member that the agent plans from: a `sample` of the posterior (the paper) or
    its `mean`. Learning always samples."""
    normalise: bool = False
    """Scale each sensor and the reward to unit variance over the episodes so far. Images are
    centred and scaled pixel by pixel."""

    def __post_init__(self) -> None:
        at_least(self, "model", 1, "num_members", "deter", "stoch", "hidden", "image_depth")
        at_least(self, "model", 1, "dense_units", "reward_units", "reward_layers")
        at_least(self, "model", 0, "decoder_depth", "decoder_layers")
        between(self, "model", 1, 8, "image_bits")
        one_of(self, "model", "activation", get_args(Activation))
        one_of(self, "model", "latent_noise", get_args(LatentNoise))
        one_of(self, "model", "belief", get_args(BeliefKind))
        if not 0 <= self.dropout_rate < 1:
            raise ConfigError(f"model.dropout_rate must be in [0, 1), got {self.dropout_rate}.")
        if "reward" not in self.heads:
            raise ConfigError(f"model.heads must contain reward, got {', '.join(self.heads)}.")
        if set(self.heads) & set(OTHER_TERMS):
            raise ConfigError(
                f"model.heads must not contain {', '.join(OTHER_TERMS)}, which are other terms of "
                f"the objective, got {', '.join(self.heads)}."
            )


@dataclass(frozen=True)
class LossConfig:
    """The objective: terms of the negative ELBO and their weights. The defaults are PlaNet's."""

    free_nats: float = 3.0
    """KL per step below which it costs nothing, in nats."""
    kl_balance: float | None = None
    """Fraction of the KL's gradient that trains the prior. The rest regularises the posterior.
    None: the plain KL of the ELBO."""
    reward_scale: float = 10.0
    """Weight of the reward's log likelihood."""
    observation_scale: float = 1.0
    """Weight of the observations' log likelihood. A normalised image counts as 30 sensors."""
    decode_fraction: float = 1.0
    """Fraction of its frames, picked at random, that each member decodes. The observation loss
    keeps its expectation."""
    total_correlation: float = 0.0
    """Weight of the total correlation of the stochastic state's dimensions, in nats. It makes them
    independent of each other over the states of a batch, as in β-TCVAE. Of several processes, each
    estimates it from its part of the batch."""

    def __post_init__(self) -> None:
        at_least(self, "loss", 0, "free_nats", "reward_scale", "observation_scale")
        at_least(self, "loss", 0, "total_correlation")
        if self.kl_balance is not None:
            between(self, "loss", 0, 1, "kl_balance")
        if not 0 < self.decode_fraction <= 1:
            raise ConfigError(
                f"loss.decode_fraction must be in (0, 1], got {self.decode_fraction}."
            )
