"""Imagination: what the particles expect of action sequences (Algorithm 3, lines 6-10).

There are three ways to compute them, equal up to rounding. `RSSM.imagine_steps` is the plain one,
and the only one that records gradients. On CPUs the native kernel replaces it. Where the package
was built without a compiler, a form in PyTorch's operators that touches little memory does.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from planet_bayes.models.config import LatentNoise
from planet_bayes.models.heads import Head, RewardHead
from planet_bayes.models.kernels import imagination as torch_kernel
from planet_bayes.models.kernels import native_imagination
from planet_bayes.models.rssm import RSSM, Weights
from planet_bayes.types import Belief


class Imagination:
    """A world model's weights as they are now, packed once for all iterations of a planning call.

    Args:
        rssm: The equations.
        weights: The weights of P particles.
        head: Predicts the reward.
        latent_noise: ``model.latent_noise``.
    """

    def __init__(self, rssm: RSSM, weights: Weights, head: Head, latent_noise: LatentNoise) -> None:
        self.num_particles = len(weights.input.weight)
        self._rssm, self._weights, self._head = rssm, weights, head
        self._latent_noise = latent_noise
        self._native: native_imagination.NativeImagination | None = None
        if native_imagination.supports(rssm, weights, head):
            assert isinstance(head, RewardHead)
            self._native = native_imagination.NativeImagination(rssm, weights, head)

    @property
    def native(self) -> bool:
        """Whether the native kernel imagines, where no gradients are recorded."""
        return self._native is not None

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards ``[B, N, P, H]`` of actions ``[B, N, H, A]``.

        Rewards are the mean of the reward head in place of a sample.
        """
        batch, num, horizon, _ = actions.shape
        shape = (horizon, self.num_particles, batch, num, self._rssm.stoch)
        rewards, _ = self._roll_out(
            state, actions, latent_noise(self._latent_noise, shape, generator), False
        )
        return rewards

    def roll_out(
        self, state: Belief, actions: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return rewards ``[B, N, P, H]`` and features ``[H, P, B, N, D + S]``.

        Args:
            state: The beliefs ``[P, B, ...]`` to start from.
            actions: ``[B, N, H, A]``.
            noise: ``[H, P, B, N or 1, S]``. None: every step takes the prior's mean.
        """
        rewards, features = self._roll_out(state, actions, noise, True)
        assert features is not None
        return rewards, features

    def _roll_out(
        self, state: Belief, actions: Tensor, noise: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Do what `roll_out` does; the features are left out unless ``keep``."""
        batch, num, horizon, _ = actions.shape
        features: Tensor | None = None
        if keep:
            lead, width = (horizon, self.num_particles), self._rssm.deter + self._rssm.stoch
            features = actions.new_empty(*lead, batch, num, width)
        if self._native is not None and not torch.is_grad_enabled():
            rewards = self._native.rewards(state.deter, state.stoch, actions, noise, features)
            return rewards, features
        if noise is not None:
            noise = noise.expand(-1, -1, -1, num, -1).flatten(2, 3)  # [H, P, B·N, S]
        start = Belief(deter=repeated(state.deter, num), stoch=repeated(state.stoch, num))
        steps = actions.reshape(batch * num, horizon, -1).transpose(0, 1)  # [H, B·N, A]
        if torch_kernel.supports(self._rssm, self._head, actions):
            kernel = torch_kernel.Imagination(self._rssm, self._weights, self._head, batch * num)
            flat = None if features is None else features.flatten(2, 3)  # [H, P, B·N, D + S]
            rewards = kernel.rewards(start.deter, start.stoch, steps, noise, flat)
        else:
            plain = self._rssm.imagine_steps(self._weights, start, steps, noise)
            rewards = self._head.predict(plain)  # [H, P, B·N]
            features = plain.unflatten(2, (batch, num))
        return rewards.unflatten(2, (batch, num)).permute(2, 3, 1, 0), features


def latent_noise(
    kind: LatentNoise, shape: tuple[int, int, int, int, int], generator: Generator
) -> Tensor | None:
    """Return noise ``[H, P, B, N or 1, S]`` for ``model.latent_noise``; None: the prior's mean.

    ``shape`` is H, P, B, N and S.
    """
    if kind == "mean":
        return None
    horizon, particles, batch, num, stoch = shape
    columns = 1 if kind == "shared" else num
    shape = (horizon, particles, batch, columns, stoch)
    return torch.randn(shape, generator=generator, device=generator.device)


def repeated(tensor: Tensor, times: int) -> Tensor:
    """Return ``[P, B·times, X]``: each of B rows ``times`` times."""
    return tensor.unsqueeze(2).expand(-1, -1, times, -1).flatten(1, 2)
