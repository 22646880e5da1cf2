"""The recurrent state-space model, E members at once.

One step, for each member (Eq. 4):

                 a_t   (the action that led to o_t)
                  |
    s_{t-1} ----(+)--> FC --> GRU --> h_t -----> prior FC ------> p(s_t | h_t)
    h_{t-1} -------------------^       |
                                       +--(+)--> posterior FC --> q(s_t | h_t, o_t)
                                           |
                          o_t --> encoder -+

Every weight has a leading axis E and every product is a batched matrix product: members
never meet. ``E = 1`` is PlaNet's cell exactly, with its GRU (reset gate before the product,
gate biases starting at 1) and its initialisation (Glorot uniform, zero biases).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from planet_bayes.types import Belief


class _FastElu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor) -> Tensor:
        outputs = elu_(inputs.clone())
        ctx.save_for_backward(outputs)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        (outputs,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return elu_slope(outputs).mul_(gradient)


def elu_(values: Tensor) -> Tensor:
    """ELU in place, through exp: on CPUs far faster than through expm1, as good beside a 1.

    Since exp(x) - 1 is never below x, the larger of x and exp(min(x, 0)) - 1 is the one wanted.
    """
    return torch.maximum(values, values.clamp(max=0).exp_().sub_(1), out=values)


def elu_slope(values: Tensor) -> Tensor:
    """Return the derivative of ELU where its value is ``values``."""
    return values.clamp(max=0).add_(1)


def elu(inputs: Tensor) -> Tensor:
    """Return x where it is positive, exp(x) - 1 elsewhere."""
    large = inputs.numel() > 20_000  # below, the calls cost more than the arithmetic
    return _FastElu.apply(inputs) if large and inputs.device.type == "cpu" else F.elu(inputs)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": elu,
    "silu": F.silu,
}
INPLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda values: values.clamp_min_(0),
    "elu": elu_,
    "silu": lambda values: F.silu(values, inplace=True),
}
"""The same, overwriting their argument: for where no gradient is recorded."""


@dataclass(frozen=True)
class Normal:
    """A diagonal Gaussian over the stochastic state."""

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Return mean + std · noise."""
        return self.mean + self.std * noise


class MemberLinear(nn.Module):
    """E linear layers side by side: ``[E, N, in] -> [E, N, out]``."""

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        bias: float = 0.0,
        heads: int = 1,
    ) -> None:
        """``heads`` layers of the same inputs lie side by side; each is initialised as its own."""
        super().__init__()
        limit = math.sqrt(6 / (inputs + outputs // heads))
        weight = (torch.rand(members, inputs, outputs, generator=generator) * 2 - 1) * limit
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.full((members, 1, outputs), bias))

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply member e's layer to ``inputs[e]``."""
        return torch.baddbmm(self.bias, inputs, self.weight)

    def rows(self, inputs: Tensor, first: int, last: int) -> Tensor:
        """Apply only the weight's rows ``first:last``, without bias: a part of a joint input."""
        return torch.bmm(inputs, self.weight[:, first:last])


class RSSM(nn.Module):
    """Deterministic and stochastic latent dynamics of E members (the paper's GRU, FC1, FC2)."""

    def __init__(
        self,
        members: int,
        num_actions: int,
        embed_size: int,
        deter: int,
        stoch: int,
        hidden: int,
        min_std: float,
        activation: str,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.members, self.deter, self.stoch, self.min_std = members, deter, stoch, min_std
        self.activation_name, self.activation = activation, ACTIVATIONS[activation]
        self.input = MemberLinear(members, stoch + num_actions, hidden, generator)
        self.gates = MemberLinear(members, hidden + deter, 2 * deter, generator, bias=1.0)
        self.candidate = MemberLinear(members, hidden + deter, deter, generator)
        self.prior_hidden = MemberLinear(members, deter, hidden, generator)
        self.prior_out = MemberLinear(members, hidden, 2 * stoch, generator, heads=2)
        self.posterior_hidden = MemberLinear(members, deter + embed_size, hidden, generator)
        self.posterior_out = MemberLinear(members, hidden, 2 * stoch, generator, heads=2)

    def initial(self, num: int) -> Belief:
        """Return the zero belief for ``num`` sequences (Algorithm 2, line 4)."""
        like = self.input.weight
        return Belief(
            deter=like.new_zeros(self.members, num, self.deter),
            stoch=like.new_zeros(self.members, num, self.stoch),
        )

    def evolve(self, belief: Belief, action: Tensor) -> Tensor:
        """Return h_t ``[E, N, D]`` = GRU(h_{t-1}, s_{t-1}, action) (Algorithm 3, line 2)."""
        hidden = self.activation(self.input(torch.cat([belief.stoch, action], -1)))
        kind = belief.deter.dtype  # in mixed precision the products are of a shorter type
        gates = self.gates(torch.cat([hidden, belief.deter], -1)).to(kind).sigmoid()
        reset, update = gates.chunk(2, -1)
        # tanh(x) = 2σ(2x) - 1: PyTorch's sigmoid is several times faster than its tanh on CPUs.
        raw = self.candidate(torch.cat([hidden, reset * belief.deter], -1)).to(kind)
        proposed = (2 * raw).sigmoid() * 2 - 1
        return torch.lerp(proposed, belief.deter, update)

    def prior(self, deter: Tensor) -> Normal:
        """Return p(s_t | h_t)."""
        return self._normal(self.prior_out(self.activation(self.prior_hidden(deter))))

    def embed_part(self, embed: Tensor) -> Tensor:
        """Return the observation's share of the posterior's first layer, ``[E, N, hidden]``.

        It needs no recurrence, so a training sequence computes it for all steps at once.
        """
        layer = self.posterior_hidden
        return layer.rows(embed, self.deter, self.deter + embed.shape[-1]) + layer.bias

    def posterior(self, deter: Tensor, embed_part: Tensor) -> Normal:
        """Return q(s_t | h_t, o_t)."""
        joint = self.posterior_hidden.rows(deter, 0, self.deter) + embed_part
        return self._normal(self.posterior_out(self.activation(joint)))

    def observe_step(
        self, belief: Belief, action: Tensor, embed_part: Tensor, noise: Tensor
    ) -> tuple[Belief, Normal]:
        """Return the belief after seeing o_t, and the posterior it was drawn from."""
        deter = self.evolve(belief, action)
        posterior = self.posterior(deter, embed_part)
        return Belief(deter, posterior.sample(noise)), posterior

    def imagine_step(self, belief: Belief, action: Tensor, noise: Tensor | None) -> Belief:
        """Return the belief one step ahead, nothing being seen; no noise: the prior's mean."""
        deter = self.evolve(belief, action)
        prior = self.prior(deter)
        return Belief(deter, prior.mean if noise is None else prior.sample(noise))

    def compile_steps(self, backend: str = "inductor") -> None:
        """Let `torch.compile` fuse the steps that the loops over time repeat."""
        self.observe_step = torch.compile(self.observe_step, backend=backend)  # type: ignore[method-assign]
        self.imagine_step = torch.compile(self.imagine_step, backend=backend)  # type: ignore[method-assign]

    def _normal(self, raw: Tensor) -> Normal:
        mean, std = raw.to(self.input.weight.dtype).chunk(2, -1)
        return Normal(mean, F.softplus(std) + self.min_std)
