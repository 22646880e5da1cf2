"""The recurrent state-space model: its equations, as functions of weights.

One step, for each of P particles (Eq. 4):

                 a_t   (the action that led to o_t)
                  |
    s_{t-1} ----(+)--> FC --> GRU --> h_t -----> prior FC ------> p(s_t | h_t)
    h_{t-1} -------------------^       |
                                       +--(+)--> posterior FC --> q(s_t | h_t, o_t)
                                           |
                          o_t --> encoder -+

Every weight has a leading axis P and every product is a batched matrix product, so particles
never mix. Where the weights come from is the affair of `planet_bayes.models.posterior`. With
P = 1 this is PlaNet's cell: the reset gate is applied before the product and the gate biases
start at 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from planet_bayes.models.activations import ACTIVATIONS
from planet_bayes.models.kernels.dense import dense
from planet_bayes.types import Belief

MIN_STATE_STD = 0.1
"""Smallest std of prior and posterior, PlaNet's."""


@dataclass(frozen=True)
class Normal:
    """A diagonal Gaussian over the stochastic state."""

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Return mean + std · noise."""
        return self.mean + self.std * noise


@dataclass(frozen=True)
class Filtered:
    """The result of filtering a batch of sequences, for every particle and step."""

    deter: Tensor
    """``[P, B, T, D]``."""
    stoch: Tensor
    """``[P, B, T, S]``."""
    prior: Normal
    """``[P, B, T, S]``."""
    posterior: Normal
    """``[P, B, T, S]``."""

    @property
    def features(self) -> Tensor:
        """What decoders and heads see, ``[P, B, T, D + S]``."""
        return torch.cat([self.deter, self.stoch], -1)


@dataclass(frozen=True)
class Dense:
    """The weights of one dense layer for P particles."""

    weight: Tensor
    """``[P, in, out]``."""
    bias: Tensor
    """``[P, 1, out]``."""

    def __call__(self, inputs: Tensor, activation: str | None = None) -> Tensor:
        """Map ``[P, N, in]`` to ``[P, N, out]``; None: without an activation."""
        return dense(inputs, self.weight, self.bias, activation)

    def rows(self, first: int, last: int) -> Dense:
        """Return the layer of the weight's rows ``first:last``, for a part of a joint input."""
        return Dense(self.weight[:, first:last], self.bias)


@dataclass(frozen=True)
class Weights:
    """All weights of the latent dynamics (the paper's GRU, FC1 and FC2) for P particles."""

    input: Dense
    gates: Dense
    candidate: Dense
    prior_hidden: Dense
    prior_out: Dense
    posterior_hidden: Dense
    posterior_out: Dense


@dataclass(frozen=True)
class LayerShape:
    """One dense layer of the dynamics, as a posterior has to provide it."""

    inputs: int
    outputs: int
    bias: float = 0.0
    """Initial value of the bias."""
    heads: int = 1
    """Layers that lie side by side in the outputs. Each is initialised on its own."""


@dataclass(frozen=True)
class RSSM:
    """Sizes and equations of the latent dynamics. It holds no weights."""

    action: int
    embed: int
    deter: int
    stoch: int
    hidden: int
    activation: str

    def layers(self) -> dict[str, LayerShape]:
        """Return the layers by their names in `Weights`, in the order of initialisation."""
        return {
            "input": LayerShape(self.stoch + self.action, self.hidden),
            "gates": LayerShape(self.hidden + self.deter, 2 * self.deter, bias=1.0),
            "candidate": LayerShape(self.hidden + self.deter, self.deter),
            "prior_hidden": LayerShape(self.deter, self.hidden),
            "prior_out": LayerShape(self.hidden, 2 * self.stoch, heads=2),
            "posterior_hidden": LayerShape(self.deter + self.embed, self.hidden),
            "posterior_out": LayerShape(self.hidden, 2 * self.stoch, heads=2),
        }

    def initial(self, weights: Weights, num: int) -> Belief:
        """Return the zero belief for ``num`` sequences (Algorithm 2, line 4)."""
        like = weights.input.weight
        return Belief(
            deter=like.new_zeros(len(like), num, self.deter),
            stoch=like.new_zeros(len(like), num, self.stoch),
        )

    def evolve(self, weights: Weights, belief: Belief, action: Tensor) -> Tensor:
        """Return h_t ``[P, N, D]`` = GRU(h_{t-1}, s_{t-1}, action) (Algorithm 3, line 2)."""
        hidden = weights.input(torch.cat([belief.stoch, action], -1), self.activation)
        gates = weights.gates(torch.cat([hidden, belief.deter], -1)).sigmoid()
        reset, update = gates.chunk(2, -1)
        # tanh(x) = 2σ(2x) - 1: PyTorch's sigmoid is several times faster than its tanh on CPUs.
        raw = weights.candidate(torch.cat([hidden, reset * belief.deter], -1))
        proposed = (2 * raw).sigmoid() * 2 - 1
        return torch.lerp(proposed, belief.deter, update)

    def prior(self, weights: Weights, deter: Tensor) -> Normal:
        """Return p(s_t | h_t)."""
        return _normal(weights.prior_out(weights.prior_hidden(deter, self.activation)))

    def embed_part(self, weights: Weights, embed: Tensor) -> Tensor:
        """Return the observation's part of the posterior's first layer, ``[P, N, hidden]``.

        It needs no recurrence, so a training sequence computes it for all steps at once.
        """
        return weights.posterior_hidden.rows(self.deter, self.deter + embed.shape[-1])(embed)

    def posterior(self, weights: Weights, deter: Tensor, embed_part: Tensor) -> Normal:
        """Return q(s_t | h_t, o_t)."""
        weight = weights.posterior_hidden.weight[:, : self.deter]
        joint = torch.baddbmm(embed_part, deter, weight)
        return _normal(weights.posterior_out(ACTIVATIONS[self.activation](joint)))

    def observe_step(
        self, weights: Weights, belief: Belief, action: Tensor, embed_part: Tensor, noise: Tensor
    ) -> tuple[Belief, Normal]:
        """Return the belief after o_t, and the posterior that it was drawn from."""
        deter = self.evolve(weights, belief, action)
        posterior = self.posterior(weights, deter, embed_part)
        return Belief(deter, posterior.sample(noise)), posterior

    def observe_steps(
        self, weights: Weights, embed_part: Tensor, action: Tensor, noise: Tensor
    ) -> list[Tensor]:
        """Filter from the zero belief, step by step.

        ``embed_part`` is ``[P, B, T, hidden]``, ``action`` ``[P, B, T, A]`` and ``noise``
        ``[T, P, B, S]``. Returns deter, stoch, posterior mean and std, each ``[P, B, T, X]``.
        """
        parts, actions = embed_part.unbind(2), action.unbind(2)
        belief = self.initial(weights, embed_part.shape[1])
        columns: list[list[Tensor]] = [[], [], [], []]
        for step in range(embed_part.shape[2]):
            belief, posterior = self.observe_step(
                weights, belief, actions[step], parts[step], noise[step]
            )
            values = (belief.deter, belief.stoch, posterior.mean, posterior.std)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return [torch.stack(column, 2) for column in columns]

    def imagine_step(
        self, weights: Weights, belief: Belief, action: Tensor, noise: Tensor | None
    ) -> Belief:
        """Return the belief one step ahead without an observation; no noise: the prior's mean."""
        deter = self.evolve(weights, belief, action)
        prior = self.prior(weights, deter)
        return Belief(deter, prior.mean if noise is None else prior.sample(noise))

    def imagine_steps(
        self, weights: Weights, belief: Belief, actions: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Return features ``[H, P, N, D + S]`` of actions ``[H, N, A]``, step by step.

        ``noise`` is ``[H, P, N, S]``; without, every step takes the prior's mean.
        """
        features, particles = [], len(weights.input.weight)
        for step, action in enumerate(actions):
            belief = self.imagine_step(
                weights,
                belief,
                action.expand(particles, -1, -1),
                None if noise is None else noise[step],
            )
            features.append(belief.features)
        return torch.stack(features)


def _normal(raw: Tensor) -> Normal:
    mean, std = raw.chunk(2, -1)
    return Normal(mean, F.softplus(std) + MIN_STATE_STD)
