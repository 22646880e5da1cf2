"""Beliefs with weights: the paper's W before it is approximated (Eqs. 12 to 14).

W is an expectation over weights θ and latents z_{≤t} of p(o_{≤t} | z_{≤t}) · p(𝒪 | z_{>t}). A
particle is a pair (member, latent path), and there are two ways to weigh it:

- `ImportanceFilter` (Eq. 13): each member draws its latent from q, the inference model, and weighs
  it by p(s | h) / q(s | h, o) · p(o | h, s), multiplied over the episode.
- `ParticleFilter` (the sequential Monte Carlo that the text after Eq. 12 describes): each member
  predicts L latents from its prior, weighs them by p(o | h, s) and resamples them.

The paper sets all weights equal: `WorldModel.filter` does.

The weights condition on observations. Rewards have a likelihood in the ELBO too, but Eq. 12
conditions on o_{≤t}, and an agent that acts may not know its rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from planet_bayes.models import smc
from planet_bayes.models.rssm import Normal
from planet_bayes.models.world_model import WorldModel
from planet_bayes.types import Belief


class StateSpace(Protocol):
    """P state-space models with the latent z = (h, s), as a filter needs them.

    Rows: N = B · L, and row b · L + l sees observation b.
    """

    @property
    def num_particles(self) -> int:
        """P: the members."""
        ...

    def initial(self, num: int) -> Belief:
        """Return the belief ``[P, num, ...]`` before the first observation."""
        ...

    def inputs(self, observation: Any, generator: Generator) -> Any:
        """Return B observations as the other functions take them."""
        ...

    def evolve(self, belief: Belief, action: Tensor) -> Tensor:
        """Return h_t ``[P, N, D]`` after ``action`` ``[N, A]``."""
        ...

    def prior(self, deter: Tensor) -> Normal:
        """Return p(s_t | h_t)."""
        ...

    def posterior(self, deter: Tensor, inputs: Any) -> Normal:
        """Return q(s_t | h_t, o_t) for N = B."""
        ...

    def log_likelihood(self, belief: Belief, inputs: Any) -> Tensor:
        """Return log p(o_t | h_t, s_t) ``[P, N]``, up to a constant."""
        ...


@dataclass(frozen=True)
class LatentModel:
    """A world model as a `StateSpace`."""

    model: WorldModel
    observation_scale: float
    """``loss.observation_scale``: the likelihood is the one that the model was trained with."""

    @property
    def num_particles(self) -> int:
        """P: the members."""
        return self.model.num_particles

    def initial(self, num: int) -> Belief:
        """Return the zero belief."""
        return self.model.initial(num)

    def inputs(self, observation: Any, generator: Generator) -> Any:
        """Return observations by name, as encoders see them and decoders predict them."""
        return self.model.inputs(observation, generator)

    def evolve(self, belief: Belief, action: Tensor) -> Tensor:
        """Return the GRU's state."""
        action = action.expand(self.num_particles, -1, -1)
        return self.model.rssm.evolve(self.model.weights(), belief, action)

    def prior(self, deter: Tensor) -> Normal:
        """Return p(s_t | h_t)."""
        return self.model.rssm.prior(self.model.weights(), deter)

    def posterior(self, deter: Tensor, inputs: Any) -> Normal:
        """Return q(s_t | h_t, o_t)."""
        rssm, weights = self.model.rssm, self.model.weights()
        embed = self.model.encode(inputs).expand(self.num_particles, -1, -1)
        return rssm.posterior(weights, deter, rssm.embed_part(weights, embed))

    def log_likelihood(self, belief: Belief, inputs: Any) -> Tensor:
        """Return the log likelihood in the units of the ELBO."""
        return self.observation_scale * self.model.log_likelihood(belief.features, inputs)


@dataclass(frozen=True)
class Particles:
    """L weighted latents of each of P members, in each of B environments."""

    belief: Belief
    """The latents, ``[P, B · L, ...]``."""
    log_weights: Tensor
    """``[B, P, L]``; over P and L the weights sum to 1."""
    start: Belief
    """The latent that each member plans from, ``[P, B, ...]``: drawn by weight among its L."""
    log_ratio: Tensor
    """log p(s | h) - log q(s | h, o) of the last step, ``[B, P, L]``; 0 without q."""
    log_likelihood: Tensor
    """log p(o | h, s) of the last step, ``[B, P, L]``."""

    @property
    def member_weights(self) -> Tensor:
        """The weight of each member, ``[B, P]``: the posterior probability of its θ."""
        return self.log_weights.logsumexp(-1).exp()

    @property
    def effective_number(self) -> Tensor:
        """1 / Σ w² over all particles, ``[B]``: between 1 and P · L."""
        return smc.effective_number(self.log_weights.flatten(1))


class BeliefFilter(Protocol):
    """A filter of weighted beliefs."""

    def initial(self, batch_size: int) -> Particles:
        """Return the particles that an episode starts with, of equal weights."""
        ...

    def update(
        self, particles: Particles, action: Tensor, observation: Any, generator: Generator
    ) -> Particles:
        """Return the particles after ``action`` ``[B, A]`` led to ``observation``."""
        ...


@dataclass(frozen=True)
class ImportanceFilter:
    """One latent for each member, drawn from the inference model and weighed (Eq. 13).

    The latents are those of `WorldModel.filter` with the same generator. Members are not resampled:
    a member of small weight can regain it.
    """

    model: StateSpace

    def initial(self, batch_size: int) -> Particles:
        """Return the zero belief of each member."""
        return _initial(self.model, batch_size, 1)

    def update(
        self, particles: Particles, action: Tensor, observation: Any, generator: Generator
    ) -> Particles:
        """Draw from q and multiply the weights by p / q · p(o | h, s)."""
        inputs = self.model.inputs(observation, generator)
        noise = _noise(particles.belief, generator)
        deter = self.model.evolve(particles.belief, action)
        posterior = self.model.posterior(deter, inputs)
        belief = Belief(deter, posterior.sample(noise))
        ratio = log_density(self.model.prior(deter), belief.stoch) - log_density(
            posterior, belief.stoch
        )
        likelihood = self.model.log_likelihood(belief, inputs)
        parts = [part.transpose(0, 1).unsqueeze(-1) for part in (ratio, likelihood)]  # [B, P, 1]
        log_weights = _weighed(particles.log_weights, sum(parts))
        return Particles(belief, log_weights, belief, *parts)


@dataclass(frozen=True)
class ParticleFilter:
    """A bootstrap filter for each member: predict from the prior, weigh, resample.

    The inference model is not used. Latents are resampled among those of the same member, because
    a latent means nothing to another one. The sum of a member's weights is its share of the
    evidence p(o_{≤t} | θ) and survives the resampling.

    The planner imagines from one latent of each member, drawn by weight, so that planning costs as
    much as without the filter.
    """

    model: StateSpace
    latent_particles: int
    """L."""

    def initial(self, batch_size: int) -> Particles:
        """Return L zero beliefs of each member."""
        return _initial(self.model, batch_size, self.latent_particles)

    def update(
        self, particles: Particles, action: Tensor, observation: Any, generator: Generator
    ) -> Particles:
        """Resample where the last weights call for it, predict from the prior and weigh."""
        num, sets = self.latent_particles, particles.log_weights.shape[:2]
        inputs = self.model.inputs(observation, generator)
        noise = _noise(particles.belief, generator)
        uniform = torch.rand((2, *sets), generator=generator, device=noise.device)  # [2, B, P]
        index, log_weights = smc.resampled(particles.log_weights, uniform[0])
        chosen = _selected(particles.belief, index)
        deter = self.model.evolve(chosen, action.repeat_interleave(num, 0))
        belief = Belief(deter, self.model.prior(deter).sample(noise))
        likelihood = self.model.log_likelihood(belief, inputs)  # [P, B · L]
        likelihood = likelihood.unflatten(1, (-1, num)).transpose(0, 1)  # [B, P, L]
        log_weights = _weighed(log_weights, likelihood)
        start = _selected(belief, smc.draw(log_weights, uniform[1]).unsqueeze(-1))
        return Particles(belief, log_weights, start, torch.zeros_like(likelihood), likelihood)


def log_density(normal: Normal, values: Tensor) -> Tensor:
    """Return the log density of ``values`` without -½ log 2π, summed over the last axis."""
    distance = (values - normal.mean) / normal.std
    return -(0.5 * distance.square() + normal.std.log()).sum(-1)


def _initial(model: StateSpace, batch_size: int, num: int) -> Particles:
    belief = model.initial(batch_size * num)
    zeros = belief.stoch.new_zeros(batch_size, model.num_particles, num)
    log_weights = smc.normalised(zeros.flatten(1)).view_as(zeros)
    return Particles(belief, log_weights, model.initial(batch_size), zeros, zeros)


def _noise(belief: Belief, generator: Generator) -> Tensor:
    return torch.randn(belief.stoch.shape, generator=generator, device=generator.device)


def _weighed(log_weights: Tensor, log_increment: Any) -> Tensor:
    """Return weights ``[B, P, L]`` times an increment, normalised over P and L."""
    joint = (log_weights.flatten(1), log_increment.flatten(1))
    return smc.update(*joint)[0].view_as(log_weights)


def _selected(belief: Belief, index: Tensor) -> Belief:
    """Return the latents ``[P, B · K, ...]`` at ``index`` ``[B, P, K]`` among the L of each set."""
    batch, _, count = index.shape
    first = torch.arange(batch, device=index.device) * (belief.stoch.shape[1] // batch)
    rows = (index + first[:, None, None]).transpose(0, 1).reshape(-1, batch * count, 1)
    return Belief(*(part.take_along_dim(rows, 1) for part in (belief.deter, belief.stoch)))
