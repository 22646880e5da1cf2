"""Imagination on CPUs: the same rollout as `RSSM.imagine_step`, written to touch little memory.

A planning call spends its time in matrix products whose inputs are parts of one state. Here
the parts of a row lie side by side, in an order in which every product's input is a slice:

    [ r·h | x | h | s | a ]      x = FC(s, a), r the reset gate
      ^^^^^^^^^                  candidate
            ^^^^^               gates
                ^^^^^           reward head
                    ^^^^^       FC

so nothing is concatenated, and every product and elementwise step writes where the next one
reads. Rows are taken a few hundred at a time, through the whole horizon: they stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planet_bayes.models.activations import INPLACE
from planet_bayes.models.heads import Head, RewardHead
from planet_bayes.models.kernels import fast_path
from planet_bayes.models.kernels.frames import parts
from planet_bayes.models.layers import linear_layers
from planet_bayes.models.rssm import MIN_STATE_STD, RSSM, Dense, Weights

ROWS_PER_THREAD = 320
"""Largest number of trajectories that are imagined together, for each thread."""

Layer = Callable[[Tensor, Tensor], Tensor]
"""Writes the output of G members' dense layers, for inputs ``[G, N, in]``, and returns it."""


def dense(weight: Tensor, bias: Tensor) -> Layer:
    """Return the layers of weights ``[G, in, out]`` and biases ``[G, 1, out]``."""
    return lambda inputs, out: torch.baddbmm(bias, inputs, weight, out=out)


@dataclass(frozen=True)
class Dynamics:
    """The layers of some particles."""

    members: slice
    input: Layer
    gates: Layer
    candidate: Layer
    """Of the input [r·h, x], and with twice the weights: tanh(y) = 2σ(2y) - 1."""
    prior_hidden: Layer
    prior_out: Layer


def supports(rssm: RSSM, head: Head, actions: Tensor) -> bool:
    """Return whether `Imagination` can do this work."""
    recorded = torch.is_grad_enabled()
    if recorded or type(rssm) is not RSSM or type(head) is not RewardHead:
        return False
    return fast_path(actions.device) and head_layers(head, rssm.activation) is not None


def head_layers(head: RewardHead, activation: str) -> list[nn.Linear] | None:
    """Return the head's linear layers if they are as `RewardHead` makes them, else None.

    All but the last are followed by the model's activation.
    """
    layers = linear_layers(head.network)
    if layers is None or [name for _, name in layers] != [activation] * (len(layers) - 1) + [None]:
        return None
    return [layer for layer, _ in layers]


class Imagination:
    """A model's weights, packed to imagine N trajectories with each particle."""

    def __init__(self, rssm: RSSM, weights: Weights, head: Head, num: int) -> None:
        assert isinstance(head, RewardHead)
        self.rssm, self.reward_head, self.num = rssm, head, num
        self.particles = len(weights.input.weight)
        most = ROWS_PER_THREAD * torch.get_num_threads()
        # Particles that are imagined together, and rows of each of them.
        together = parts(self.particles, max(1, most // num))
        self.groups = [_dynamics(rssm, weights, part) for part in together]
        self.rows = list(parts(num, most))
        linear = head_layers(head, rssm.activation) or []
        self.head = [
            dense(layer.weight.detach().t()[None], layer.bias.detach()[None, None])
            for layer in linear
        ]
        self.head_units = [layer.out_features for layer in linear]
        self.activate = INPLACE[rssm.activation]

    def rewards(
        self,
        deter: Tensor,
        stoch: Tensor,
        actions: Tensor,
        noise: Tensor | None,
        features: Tensor | None = None,
    ) -> Tensor:
        """Return rewards ``[H, E, N]`` of actions ``[H, N, A]``.

        ``deter`` ``[E, N, D]`` and ``stoch`` ``[E, N, S]`` are where they start from, and
        ``noise`` ``[H, E, N, S]`` what the prior is sampled with; without, its mean is taken.
        The states are written into ``features`` ``[H, E, N, D + S]``, if given.
        """
        result = actions.new_empty(len(actions), self.particles, self.num)
        work: _Work | None = None
        for group in self.groups:
            members = group.members
            for rows in self.rows:
                shape = members.stop - members.start, rows.stop - rows.start
                if work is None or work.shape != shape:
                    work = _Work(self, shape, actions)
                self._roll(
                    group,
                    work,
                    deter[members, rows],
                    stoch[members, rows],
                    actions[:, rows],
                    None if noise is None else noise[:, members, rows],
                    result[:, members, rows],
                    None if features is None else features[:, members, rows],
                )
        return self.reward_head.unscaled(result)

    def _roll(
        self,
        layers: Dynamics,
        work: _Work,
        deter: Tensor,
        stoch: Tensor,
        actions: Tensor,
        noise: Tensor | None,
        result: Tensor,
        features: Tensor | None,
    ) -> None:
        """Imagine through the horizon, writing into ``result`` ``[H, G, N]`` and ``features``."""
        work.h.copy_(deter)
        work.s.copy_(stoch)
        for step, action in enumerate(actions):
            work.a.copy_(action)
            self.activate(layers.input(work.sa, work.x))
            layers.gates(work.xh, work.gates).sigmoid_()
            torch.mul(work.reset, work.h, out=work.rh)
            layers.candidate(work.rhx, work.proposed).sigmoid_().mul_(2).sub_(1)
            torch.lerp(work.proposed, work.h, work.update, out=work.h)
            hidden = self.activate(layers.prior_hidden(work.h, work.hidden))
            layers.prior_out(hidden, work.prior)
            if noise is None:
                work.s.copy_(work.mean)
            else:
                std = F.softplus(work.raw_std).add_(MIN_STATE_STD)
                torch.addcmul(work.mean, std, noise[step], out=work.s)
            if features is not None:
                features[step].copy_(work.hs.view(*work.shape, -1))
            values = work.hs
            for layer, out in zip(self.head[:-1], work.head, strict=True):
                values = self.activate(layer(values, out))
            self.head[-1](values, work.reward)
            result[step].copy_(work.reward.view(work.shape))


class _Work:
    """The memory that a rollout of ``shape`` (members, rows) works in, its parts by name."""

    def __init__(self, imagination: Imagination, shape: tuple[int, int], like: Tensor) -> None:
        rssm = imagination.rssm
        d, s, x, a = rssm.deter, rssm.stoch, rssm.hidden, like.shape[-1]
        self.shape = shape
        row = like.new_zeros(*shape, d + x + d + s + a)
        self.rh, self.x, self.h, self.s, self.a = row.split([d, x, d, s, a], -1)
        self.rhx, self.xh = row[..., : d + x], row[..., d : d + x + d]
        self.sa = row[..., d + x + d :]
        # The head is shared: all members' rows are one matrix to it.
        self.hs = row.flatten(0, 1)[None, :, d + x : d + x + d + s]
        self.gates = like.new_empty(*shape, 2 * d)
        self.reset, self.update = self.gates.chunk(2, -1)
        self.proposed, self.hidden = like.new_empty(*shape, d), like.new_empty(*shape, x)
        self.prior = like.new_empty(*shape, 2 * s)
        self.mean, self.raw_std = self.prior.chunk(2, -1)
        total = shape[0] * shape[1]
        self.head = [like.new_empty(1, total, units) for units in imagination.head_units[:-1]]
        self.reward = like.new_empty(1, total, 1)


def _dynamics(rssm: RSSM, weights: Weights, members: slice) -> Dynamics:
    def part(layer: Dense) -> tuple[Tensor, Tensor]:
        return layer.weight.detach()[members], layer.bias.detach()[members]

    hidden = rssm.hidden
    weight, bias = part(weights.candidate)
    return Dynamics(
        members=members,
        input=dense(*part(weights.input)),
        gates=dense(*part(weights.gates)),
        candidate=dense(2 * torch.cat([weight[:, hidden:], weight[:, :hidden]], 1), 2 * bias),
        prior_hidden=dense(*part(weights.prior_hidden)),
        prior_out=dense(*part(weights.prior_out)),
    )
