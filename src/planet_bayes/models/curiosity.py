"""Curiosity: futures about which the members disagree earn a bonus in imagination.

    r'(t) = r(t) + w σ_r d(t)        d(t)² = Σ_k c_k Var_p[o_k(t)] / Σ_k c_k

o_k is entry k of the decoded observation in the units of the decoder, which are stds over all
episodes with ``model.normalise``. Var_p is over members, with P - 1 in its denominator, and c_k is
the weight of the entry's modality in the objective. With one vector d is the root mean square over
entries of the members' std. σ_r is the std of the reward over all episodes with
``model.normalise``, and else 1. So with w = 1 a disagreement of one std of the observations is
worth one std of the reward. The bonus is the same for all particles.

Two things keep it about the weights, and cheap:

- States are sampled with the same noise for all members, so that noise is no disagreement.
- A modality that is expensive to decode has a ``code`` (see `Coded`). The disagreement about it is
  measured at the end of the horizon and counts at all steps.
"""

from __future__ import annotations

import math
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Generator, Tensor

from planet_bayes.errors import ConfigError
from planet_bayes.models.heads import Head, RewardHead
from planet_bayes.models.imagination import latent_noise
from planet_bayes.models.modalities import ModalityNetwork
from planet_bayes.models.world_model import WorldModel
from planet_bayes.types import Belief

DECODED_CANDIDATES = 2
"""Candidates whose last state is decoded to find the unit of a `Coded` modality's code."""


@runtime_checkable
class Coded(Protocol):
    """A modality network that is expensive to decode and has a cheap stage on the way."""

    def code(self, features: Tensor) -> Tensor:
        """Return ``[..., C]`` of features ``[..., F]``: all that the rest of the decoder sees."""
        ...


class CuriousImagination:
    """The planner's model with a bonus for disagreement, for weights and scales as they are now.

    Args:
        model: The world model, of several particles.
        weight: w, the weight of the bonus in stds of the reward.
    """

    @torch.no_grad()
    def __init__(self, model: WorldModel, weight: float) -> None:
        if model.num_particles < 2:
            raise ConfigError("curiosity needs several members: one has nobody to disagree with.")
        self.num_particles = model.num_particles
        self._imagination, self._stoch = model.imagination(), model.config.stoch
        self._latent_noise = model.config.latent_noise
        self._senses = [cast(ModalityNetwork, sense) for sense in model.senses.values()]
        self._weight = weight * _reward_std(model.head("reward"))

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards with the bonus, ``[B, N, P, H]``, of actions ``[B, N, H, A]``.

        A state whose disagreement is not finite has no bonus: its rewards say whether it is valid.
        """
        batch, num, horizon, _ = actions.shape
        # The same for all particles.
        noise = latent_noise(
            self._latent_noise, (horizon, 1, batch, num, self._stoch), generator
        )  # [H, 1, B, N or 1, S]
        if noise is not None:
            noise = noise.expand(-1, self.num_particles, -1, -1, -1)
        rewards, features = self._imagination.roll_out(state, actions, noise)
        bonus = self._weight * disagreement(self._senses, features.flatten(2, 3))  # [H, B·N]
        bonus = bonus.nan_to_num(nan=0.0, posinf=0.0).unflatten(1, (batch, num))
        return rewards + bonus.permute(1, 2, 0).unsqueeze(2)


def disagreement(senses: list[ModalityNetwork], features: Tensor) -> Tensor:
    """Return d ``[H, N]`` of features ``[H, P, N, F]``."""
    total, weights = features.new_zeros(()), 0.0
    for sense in senses:
        variance, entries = _variance(sense, features)
        total = total + sense.loss_weight * entries * variance
        weights += sense.loss_weight * entries
    return (total / weights).sqrt()


def mean_variance(values: Tensor) -> Tensor:
    """Return the variance over P, averaged over entries: ``[H, P, N, ...]`` to ``[H, N]``."""
    # Differences from the first member are exactly zero where all members are equal.
    return (values - values[:, :1]).var(1).flatten(2).mean(-1)


def _variance(sense: ModalityNetwork, features: Tensor) -> tuple[Tensor, int]:
    """Return the mean variance ``[H, N]`` of a modality's entries, and their number.

    With a code, the code says which states the members disagree about. A few decoded states say
    how much that is in the units of the observation: codes have none.
    """
    if not isinstance(sense, Coded):
        decoded = sense.decode(features)
        return mean_variance(decoded), math.prod(decoded.shape[3:])
    last = features[-1:]
    variance = mean_variance(sense.code(last))  # [1, N]
    stride = -(-last.shape[2] // DECODED_CANDIDATES)
    decoded = cast(ModalityNetwork, sense).decode(last[:, :, ::stride])
    unit = mean_variance(decoded).sum() / variance[:, ::stride].sum()
    return (unit * variance).expand(len(features), -1), math.prod(decoded.shape[3:])


def _reward_std(head: Head) -> float:
    """Return the std of the reward, if the head knows it, else 1."""
    return head.unscaled(torch.ones(())).item() if isinstance(head, RewardHead) else 1.0
