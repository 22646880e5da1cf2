"""The world model: filter observations, learn from sequences, imagine futures.

The paper's posterior over weights is a set of P particles (Section III-A). GRU, prior and
posterior blocks are per particle and come from `planet_bayes.models.posterior`; the modalities'
encoders and decoders and the heads are shared by all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from planet_bayes.errors import IMPORT_FIRST, ConfigError, nearest
from planet_bayes.models import losses
from planet_bayes.models.config import LossConfig, ModelConfig
from planet_bayes.models.heads import HEADS, Head
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.kernels import sequence
from planet_bayes.models.modalities import Modality, ModalityNetwork
from planet_bayes.models.noise import normal
from planet_bayes.models.posterior import POSTERIORS, FittedApart, OwnParameters, Posterior
from planet_bayes.models.rssm import RSSM, Filtered, Normal, Weights
from planet_bayes.types import Belief, Moments, SequenceBatch


class WorldModel(nn.Module):
    """RSSM particles with modalities and heads. It is also the planner's model.

    Args:
        modalities: The observations by name.
        num_actions: Entries of an action.
        config: Parts and sizes.
        generator: Source of the initial weights.
    """

    def __init__(
        self,
        modalities: Mapping[str, Modality],
        num_actions: int,
        config: ModelConfig,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.config, self.num_actions = config, num_actions
        features = config.deter + config.stoch
        # The order of these lines is the order of the random draws.
        self.senses = nn.ModuleDict(
            {
                name: cast(nn.Module, modality.network(config, features, generator))
                for name, modality in modalities.items()
            }
        )
        self.heads = nn.ModuleDict(
            {
                name: _known(HEADS, "head", name)(features, config, generator)
                for name in config.heads
            }
        )
        embed = sum(sense.embed_size for sense in self._senses().values())
        self.rssm = RSSM(
            num_actions, embed, config.deter, config.stoch, config.hidden, config.activation
        )
        factory = _known(POSTERIORS, "posterior", config.posterior)
        self.posterior = factory(self.rssm.layers(), config, generator)

    @property
    def num_particles(self) -> int:
        """P: how many rewards `imagine` returns for each candidate and step."""
        return cast(Posterior, self.posterior).num_particles

    @property
    def num_fitted(self) -> int:
        """Q: how many sets of weights `loss` fits. It is P unless the posterior says otherwise."""
        apart = isinstance(self.posterior, FittedApart)
        return cast(FittedApart, self.posterior).num_fitted if apart else self.num_particles

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def weights(self) -> Weights:
        """Return the weights of all particles."""
        return cast(Posterior, self.posterior).weights()

    def particle_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of which each particle owns one entry of the first axis."""
        posterior = self.posterior
        return posterior.particle_parameters() if isinstance(posterior, OwnParameters) else []

    def fitted_weights(self, generator: Generator) -> Weights:
        """Return the weights that an update fits: those of all particles, or others."""
        if isinstance(self.posterior, FittedApart):
            return self.posterior.fitted_weights(generator)
        return self.weights()

    def _senses(self) -> dict[str, ModalityNetwork]:
        return cast(dict[str, ModalityNetwork], dict(self.senses.items()))

    def head(self, name: str) -> Head:
        """Return a head by name."""
        return cast(Head, self.heads[name])

    # Observations.

    def inputs(self, observation: Mapping[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        """Return prepared observations, by name, as the encoders see them."""
        return {
            name: sense.inputs(observation[name], generator)
            for name, sense in self._senses().items()
        }

    def encode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return one embedding ``[..., embed]`` of all modalities."""
        parts = [sense.encode(inputs[name]) for name, sense in self._senses().items()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def reconstruct(
        self, features: Tensor, names: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Return decoded observations by name, in the units of prepared ones; None: all of them."""
        found = self._senses()
        return {name: found[name].reconstruct(features) for name in names or found}

    def rescale(self, moments: Mapping[str, Moments]) -> None:
        """Take the scales of observations and rewards from the episodes, if it normalises."""
        for name, sense in self._senses().items():
            sense.rescale(moments[name])
        for name in self.heads:
            self.head(name).rescale(moments)

    # Filtering.

    def initial(self, num: int) -> Belief:
        """Return the zero belief for ``num`` sequences (Algorithm 2, line 4)."""
        return self.rssm.initial(self.weights(), num)

    def filter(
        self,
        belief: Belief,
        action: Tensor,
        observation: Mapping[str, Tensor],
        generator: Generator,
    ) -> tuple[Belief, Normal]:
        """Return every particle's belief after ``action`` ``[B, A]`` led to ``observation``, and q.

        Algorithm 3, lines 1 to 3. At an episode's first step the zero belief and zero action go
        through the GRU too, as they do at the start of each training sequence.
        """
        embed = self.encode(self.inputs(observation, generator))
        embed = embed.expand(self.num_particles, -1, -1)
        noise = self.belief_noise(belief.stoch.shape, generator)
        action, weights = action.expand(self.num_particles, -1, -1), self.weights()
        part = self.rssm.embed_part(weights, embed)
        return self.rssm.observe_step(weights, belief, action, part, noise)

    def belief_noise(self, shape: Sequence[int], generator: Generator) -> Tensor:
        """Return the posterior's noise in the state that is planned from; zero for its mean."""
        noise = torch.randn(shape, generator=generator, device=generator.device)
        return noise.zero_() if self.config.belief == "mean" else noise

    def filter_sequences(
        self, embed: Tensor, action: Tensor, noise: Tensor, weights: Weights | None = None
    ) -> Filtered:
        """Filter sequences from the zero belief. Only the recurrence is in the loop over time.

        Args:
            embed: Embeddings ``[P, B, T, embed]``.
            action: The actions that led to them, ``[P, B, T, A]``.
            noise: Noise of the states, ``[T, P, B, S]``.
            weights: Weights of P particles. None: those of `weights`.
        """
        weights = self.weights() if weights is None else weights
        lead = embed.shape[1:3]
        part = self.rssm.embed_part(weights, embed.flatten(1, 2)).unflatten(1, lead)
        if sequence.supports(self.rssm, action, noise):
            filtered = sequence.filter_sequence(
                self.rssm,
                weights,
                part.transpose(1, 2),
                action.transpose(1, 2),
                noise.transpose(0, 1),
            )
            deter, stoch, mean, std = (values.transpose(1, 2) for values in filtered)
        else:
            deter, stoch, mean, std = self.rssm.observe_steps(weights, part, action, noise)
        prior = self.rssm.prior(weights, deter.flatten(1, 2))
        return Filtered(
            deter=deter,
            stoch=stoch,
            prior=Normal(prior.mean.unflatten(1, lead), prior.std.unflatten(1, lead)),
            posterior=Normal(mean, std),
        )

    # Learning.

    def loss(
        self, batch: SequenceBatch, config: LossConfig, generator: Generator
    ) -> dict[str, Tensor]:
        """Return the named terms of the negative ELBO (Eq. 2), each ``[P]``; ``total`` sums them.

        The objective is the sum over particles, so that each particle's weights get exactly the
        gradient that they would get alone. P is `num_fitted` here.
        """
        particles, weights = self.num_fitted, self.fitted_weights(generator)
        inputs = self.inputs(batch.observation, generator)
        embed = self.encode(inputs).expand(particles, -1, -1, -1)
        action = batch.action.expand(particles, -1, -1, -1)
        _, size, steps = batch.reward.shape
        noise = normal((steps, particles, size, self.config.stoch), generator, batch_axis=2)
        filtered = self.filter_sequences(embed, action, noise, weights)
        features = filtered.features  # [P, B, T, D + S]

        observation = self._observation_losses(features, inputs, batch, config, generator)
        heads = {name: self.head(name).loss(features, batch, config) for name in self.heads}
        trained, plain = losses.complexity(
            filtered.posterior, filtered.prior, config.free_nats, config.kl_balance
        )
        complexity = losses.masked_mean(trained, batch.mask)
        terms = {
            "total": losses.summed(observation) + losses.summed(heads) + complexity,
            "observation": losses.summed(observation),
            **(observation if len(observation) > 1 else {}),
            **heads,
            "kl": complexity,
            "kl_nats": losses.masked_mean(plain, batch.mask),
        }
        if config.total_correlation:
            nats = losses.total_correlation(
                filtered.stoch, filtered.posterior, batch.mask, generator
            )
            terms["total"] = terms["total"] + config.total_correlation * nats
            terms["total_correlation"] = nats.detach()
        return terms

    def _observation_losses(
        self,
        features: Tensor,
        inputs: Mapping[str, Tensor],
        batch: SequenceBatch,
        config: LossConfig,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return each modality's weighted error ``[P]`` on the frames that are decoded."""
        particles = len(features)
        index, weight = losses.decoded_frames(
            batch.mask, particles, config.decode_fraction, generator
        )
        row = torch.arange(particles, device=index.device).unsqueeze(-1)
        chosen = features.flatten(1, 2)[row, index]  # [P, F, D + S]
        return {
            f"observation_{name}": config.observation_scale
            * sense.error(chosen, inputs[name].flatten(1, 2), index, weight)
            * sense.loss_weight
            for name, sense in self._senses().items()
        }

    def log_likelihood(self, features: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return log p(o | h, s) ``[P, B · L]``, up to a constant, as the ELBO has it.

        Args:
            features: ``[P, B · L, D + S]``. Rows b · L to b · L + L - 1 see observation b.
            inputs: The result of `inputs` for B observations.
        """
        particles, rows, size = features.shape
        first = next(iter(inputs.values()))
        index = torch.arange(rows, device=features.device) // (rows // len(first))
        index = index.expand(particles, -1).reshape(-1, 1)  # [P · B · L, 1]
        weight, flat = features.new_ones(index.shape), features.reshape(-1, 1, size)
        errors = {
            name: sense.error(flat, inputs[name].unsqueeze(0), index, weight) * sense.loss_weight
            for name, sense in self._senses().items()
        }
        return -losses.summed(errors).view(particles, rows)

    # Imagination.

    def imagination(self) -> Imagination:
        """Return the planner's model: the weights as they are now, packed once for many calls."""
        return Imagination(self.rssm, self.weights(), self.head("reward"), self.config.latent_noise)

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards ``[B, N, P, H]`` of actions ``[B, N, H, A]`` (see `imagination`)."""
        return self.imagination().imagine(state, actions, generator)

    def rollout(self, belief: Belief, actions: Tensor, noise: Tensor | None) -> Tensor:
        """Return features ``[H, P, N, D + S]`` of actions ``[H, N, A]`` from ``belief``."""
        return self.rssm.imagine_steps(self.weights(), belief, actions, noise)


def _known(registry: Mapping[str, Any], what: str, name: str) -> Any:
    if name not in registry:
        raise ConfigError(
            f"there is no {what} {name!r}{nearest(name, registry)} There are "
            f"{', '.join(registry)}. {IMPORT_FIRST}"
        )
    return registry[name]
