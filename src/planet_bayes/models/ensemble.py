"""The world model: E members of latent dynamics behind one interface, with shared heads.

The paper's posterior over weights is a set of E particles (Section III-A): GRU, prior and
posterior blocks are per member; encoder, decoder and reward head are shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models import losses, sequence
from planet_bayes.models.config import LossConfig, ModelConfig
from planet_bayes.models.frames import chunk_size, decoding_error, encode_frames
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.networks import (
    glorot_,
    image_decoder,
    image_encoder,
    mlp,
    preprocess,
    vector_encoder,
)
from planet_bayes.models.rssm import RSSM, Normal
from planet_bayes.models.scaling import Scaling
from planet_bayes.types import Belief, SequenceBatch


@dataclass(frozen=True)
class Observed:
    """What filtering a batch of sequences gives, for every member and step."""

    deter: Tensor
    """``[E, B, T, D]``."""
    stoch: Tensor
    """``[E, B, T, S]``."""
    prior: Normal
    """``[E, B, T, S]``."""
    posterior: Normal
    """``[E, B, T, S]``."""


class WorldModel(nn.Module):
    """RSSM ensemble with encoder, decoder and reward head; also the planner's model."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        num_actions: int,
        members: int,
        config: ModelConfig,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.observation_shape = observation_shape
        self.members, self.num_actions, self.config = members, num_actions, config
        features = config.deter + config.stoch
        activation = config.activation
        self.is_image = len(observation_shape) == 3
        self.scaling: Scaling | None = None
        if config.normalise:
            self.scaling = Scaling(observation_shape)
        if self.is_image:
            depth = config.decoder_depth or config.image_depth
            self._chunk = chunk_size(observation_shape[0], config.image_depth)
            self._decoder_chunk = chunk_size(observation_shape[0], depth)
            self.encoder, embed = image_encoder(observation_shape, config.image_depth, activation)
            self.decoder: nn.Module = image_decoder(
                observation_shape,
                features,
                depth,
                activation,
                config.vector_units,
                config.image_layers,
            )
        else:
            units, layers = config.vector_units, config.vector_layers
            self.encoder, embed = vector_encoder(observation_shape, units, layers, activation)
            self.decoder = mlp(features, units, layers, observation_shape[0], activation)
        self.reward_head = mlp(features, config.reward_units, config.reward_layers, 1, activation)
        for shared in (self.encoder, self.decoder, self.reward_head):
            glorot_(shared, generator)
        self.rssm = RSSM(
            members,
            num_actions,
            embed,
            config.deter,
            config.stoch,
            config.hidden,
            config.min_std,
            activation,
            generator,
        )

    def prepare(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return observations as the networks see them: images in ±0.5, all of them scaled."""
        inputs = preprocess(observation, generator, self.config.image_bits)
        return inputs if self.scaling is None else self.scaling.scaled(inputs)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return embeddings ``[..., embed]`` of preprocessed observations ``[..., *event]``."""
        event = 3 if self.is_image else 1
        lead = inputs.shape[: inputs.ndim - event]
        flat = inputs.flatten(0, len(lead) - 1)
        if self.is_image and inputs.device.type == "cpu":
            return encode_frames(self.encoder, flat, self._chunk).unflatten(0, lead)
        return self.encoder(flat).unflatten(0, lead)

    def decode(self, features: Tensor) -> Tensor:
        """Return decoded observations ``[..., *event]`` of features ``[..., D + S]``."""
        lead = features.shape[:-1]
        return self.decoder(features.flatten(0, -2)).unflatten(0, lead)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Return what `decode` does, sensors in their own units, images in ±0.5."""
        decoded = self.decode(features)
        return decoded if self.scaling is None else self.scaling.unscaled(decoded)

    def reward(self, features: Tensor) -> Tensor:
        """Return the mean reward ``[...]`` of features ``[..., D + S]``."""
        reward = self.reward_head(features).squeeze(-1)
        return reward if self.scaling is None else reward * self.scaling.reward_std

    def observe(self, embed: Tensor, action: Tensor, noise: Tensor) -> Observed:
        """Filter sequences from the zero belief.

        ``embed`` is ``[E, B, T, embed]``, ``action`` ``[E, B, T, A]`` and ``noise``
        ``[T, E, B, S]``. Only the recurrence is inside the loop over time.
        """
        batch, steps = embed.shape[1:3]
        part = self.rssm.embed_part(embed.flatten(1, 2)).unflatten(1, (batch, steps))
        by_hand = embed.device.type == "cpu" and self.rssm.activation_name in sequence.SUPPORTED
        if by_hand and not (action.requires_grad or noise.requires_grad):
            filtered = sequence.filter_sequence(
                self.rssm, part.transpose(1, 2), action.transpose(1, 2), noise.transpose(0, 1)
            )
            deter, stoch, mean, std = (values.transpose(1, 2) for values in filtered)
        else:
            deter, stoch, mean, std = self._observe_steps(part, action, noise)
        prior = self.rssm.prior(deter.flatten(1, 2))
        lead = (batch, steps)
        return Observed(
            deter=deter,
            stoch=stoch,
            prior=Normal(prior.mean.unflatten(1, lead), prior.std.unflatten(1, lead)),
            posterior=Normal(mean, std),
        )

    def _observe_steps(self, part: Tensor, action: Tensor, noise: Tensor) -> list[Tensor]:
        """Return deter, stoch, posterior mean and std, each ``[E, B, T, X]``, step by step."""
        parts, actions = part.unbind(2), action.unbind(2)
        belief = self.rssm.initial(part.shape[1])
        columns: list[list[Tensor]] = [[], [], [], []]
        for step in range(part.shape[2]):
            belief, posterior = self.rssm.observe_step(
                belief, actions[step], parts[step], noise[step]
            )
            values = (belief.deter, belief.stoch, posterior.mean, posterior.std)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return [torch.stack(column, 2) for column in columns]

    def loss(
        self, batch: SequenceBatch, config: LossConfig, generator: Generator
    ) -> dict[str, Tensor]:
        """Return the named terms of the negative ELBO, each ``[E]``; ``total`` is their sum.

        The objective is the sum over members, so that each member's weights get exactly the
        gradient that they would get alone.
        """
        members = self.members
        inputs = self.prepare(batch.observation, generator)
        embed = self.encode(inputs).expand(members, -1, -1, -1)
        action = batch.action.expand(members, -1, -1, -1)
        _, size, steps = batch.reward.shape
        noise = torch.randn(
            steps, members, size, self.config.stoch, generator=generator, device=embed.device
        )
        seen = self.observe(embed, action, noise)
        features = torch.cat([seen.deter, seen.stoch], -1)  # [E, B, T, D + S]

        index, weight = losses.decoded_frames(
            batch.mask, members, config.decode_fraction, generator
        )
        error = self._decoding_error(features.flatten(1, 2), inputs.flatten(1, 2), index, weight)
        observation = config.observation_scale * error
        if self.scaling is not None:
            observation = observation * self.scaling.weight

        # In units of the reward's std, if it is scaled: the head's own.
        target = batch.reward if self.scaling is None else batch.reward / self.scaling.reward_std
        reward_error = losses.squared_error(target, self.reward_head(features).squeeze(-1), 0)
        reward = config.reward_scale * losses.masked_mean(reward_error, batch.mask)
        trained, plain = losses.complexity(
            seen.posterior, seen.prior, config.free_nats, config.kl_balance
        )
        complexity = config.kl_scale * losses.masked_mean(trained, batch.mask)
        return {
            "total": observation + reward + complexity,
            "observation": observation,
            "reward": reward,
            "kl": complexity,
            "kl_nats": losses.masked_mean(plain, batch.mask),
        }

    def _decoding_error(
        self, features: Tensor, inputs: Tensor, index: Tensor, weight: Tensor
    ) -> Tensor:
        """Return each member's weighted error ``[E]`` on the frames ``index`` ``[E, F]``."""
        row = torch.arange(self.members, device=index.device).unsqueeze(-1)
        chosen = features[row, index]
        if self.is_image and inputs.device.type == "cpu" and index.numel() > self._decoder_chunk:
            return decoding_error(self.decoder, chosen, inputs, index, weight, self._decoder_chunk)
        target = inputs[row if inputs.shape[0] > 1 else 0, index]
        error = losses.squared_error(target, self.decode(chosen), target.ndim - 2)
        return (error * weight).sum(-1)

    def filter(
        self, belief: Belief, action: Tensor, observation: Tensor, generator: Generator
    ) -> Belief:
        """Return every member's belief after ``action`` ``[B, A]`` led to ``observation``.

        Algorithm 3, lines 1 to 3; with ``belief`` "mean", the posterior's mean for a sample.
        At an episode's first step the zero belief and zero action go through the GRU too, as
        they do at the start of each training sequence.
        """
        inputs = self.prepare(observation, generator)
        embed = self.encode(inputs).expand(self.members, -1, -1)
        noise = self.belief_noise(belief.stoch.shape, generator)
        action = action.expand(self.members, -1, -1)
        return self.rssm.observe_step(belief, action, self.rssm.embed_part(embed), noise)[0]

    def belief_noise(self, shape: Sequence[int], generator: Generator) -> Tensor:
        """Return the posterior's noise in what is planned from; none, if that is its mean."""
        noise = torch.randn(shape, generator=generator, device=generator.device)
        return noise.zero_() if self.config.belief == "mean" else noise

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards ``[B, N, P, H]`` of actions ``[B, N, H, A]``, P = E · samples.

        Algorithm 3, lines 6 to 10, with the reward head's mean for the reward. Without
        gradients, on a CPU, `Imagination` does the work; it returns what `rollout` and the
        head do, up to rounding.
        """
        batch, num, horizon, _ = actions.shape
        samples = self.config.latent_samples
        noise = self._imagination_noise(batch, samples, num, horizon, generator)
        start = Belief(
            deter=_repeat(state.deter, samples * num), stoch=_repeat(state.stoch, samples * num)
        )
        rows = actions.unsqueeze(1).expand(-1, samples, -1, -1, -1)
        steps = rows.reshape(batch * samples * num, horizon, -1).transpose(0, 1)
        if torch.is_grad_enabled() or actions.device.type != "cpu":
            rewards = self.reward(self.rollout(start, steps, noise))
        else:
            imagination = Imagination(self.rssm, self.reward_head, steps.shape[1])
            rewards = imagination.rewards(start.deter, start.stoch, steps, noise)
            if self.scaling is not None:
                rewards = rewards * self.scaling.reward_std
        rewards = rewards.unflatten(2, (batch, samples, num))  # [H, E, B, samples, N]
        return rewards.permute(2, 4, 1, 3, 0).flatten(2, 3)

    def rollout(self, belief: Belief, actions: Tensor, noise: Tensor | None) -> Tensor:
        """Return features ``[H, E, N, D + S]`` of actions ``[H, N, A]`` from ``belief``."""
        features = []
        for step, action in enumerate(actions):
            belief = self.rssm.imagine_step(
                belief,
                action.expand(self.members, -1, -1),
                None if noise is None else noise[step],
            )
            features.append(torch.cat([belief.deter, belief.stoch], -1))
        return torch.stack(features)

    def _imagination_noise(
        self, batch: int, samples: int, num: int, horizon: int, generator: Generator
    ) -> Tensor | None:
        """Return noise ``[H, E, B·samples·N, S]`` as ``latent_noise`` says."""
        if self.config.latent_noise == "mean":
            return None
        columns = 1 if self.config.latent_noise == "shared" else num
        shape = (horizon, self.members, batch, samples, columns, self.config.stoch)
        noise = torch.randn(shape, generator=generator, device=self.rssm.input.weight.device)
        return noise.expand(-1, -1, -1, -1, num, -1).flatten(2, 4)


def _repeat(tensor: Tensor, times: int) -> Tensor:
    """Return ``[E, B·times, X]``: each of B rows ``times`` times over."""
    return tensor.unsqueeze(2).expand(-1, -1, times, -1).flatten(1, 2)
