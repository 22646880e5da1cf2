"""Filtering a training sequence on CPUs: `RSSM.observe_steps`, gradient by hand.

Autograd would sum each weight's gradient over the steps, one small product and one pass over the
weight at a time. Here every product's input, and the gradient at its output, is kept for all
steps, so that each weight's gradient is one large product at the end. The equations of a step:

    x = f([s', a] W_i + b_i)            s', h' the states of the step before
    r, u = σ([x, h'] W_g + b_g)
    c = tanh([x, r·h'] W_c + b_c)
    h = c + u (h' - c)
    p = f(h W_h + e)                    e = the observation's part, with the bias
    m, v = p W_o + b_o
    s = m + (softplus(v) + σ_min) ε

Axes inside are ``[E, T, B, X]``: the rows of a step lie together, and so do a member's. The native
kernel does the loop over time, or, where there is none, PyTorch's operators.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from planet_bayes.models.activations import INPLACE, elu_slope
from planet_bayes.models.kernels import (
    fast_path,
    native,
    native_filter,
    refuse_second_derivatives,
)
from planet_bayes.models.kernels.dense import weight_gradient
from planet_bayes.models.kernels.native_filter import Tape
from planet_bayes.models.rssm import MIN_STATE_STD, RSSM, Weights

SUPPORTED = ("relu", "elu")
"""Activations whose derivative is a function of their value."""


class States(NamedTuple):
    """States and posteriors of all steps, each ``[E, T, B, X]``."""

    deter: Tensor
    stoch: Tensor
    mean: Tensor
    std: Tensor


def supports(rssm: RSSM, action: Tensor, noise: Tensor) -> bool:
    """Return whether `filter_sequence` can do this work."""
    constant = not (action.requires_grad or noise.requires_grad)
    known = type(rssm) is RSSM and rssm.activation in SUPPORTED
    return fast_path(action.device) and known and constant


def filter_sequence(
    rssm: RSSM, weights: Weights, part: Tensor, action: Tensor, noise: Tensor
) -> States:
    """Filter from the zero belief.

    ``part`` ``[E, T, B, hidden]`` is the observations' part (`RSSM.embed_part`), ``action``
    ``[E, T, B, A]`` and ``noise`` ``[E, T, B, S]``; the last two get no gradient.
    """
    return States(
        *_Filter.apply(
            part,
            action,
            noise,
            MIN_STATE_STD,
            rssm.activation,
            *(weights.input.weight, weights.input.bias),
            *(weights.gates.weight, weights.gates.bias),
            *(weights.candidate.weight, weights.candidate.bias),
            weights.posterior_hidden.weight[:, : rssm.deter],
            *(weights.posterior_out.weight, weights.posterior_out.bias),
        )
    )


def _slope(values: Tensor, name: str) -> Tensor:
    """Return f'(z), given the values f(z)."""
    return (values > 0).to(values.dtype) if name == "relu" else elu_slope(values)


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        part: Tensor,
        action: Tensor,
        noise: Tensor,
        min_std: float,
        activation: str,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        usable = native_filter.supports(weights, part, action, noise)
        run = native_filter.forward if usable else _forward
        tape, mean = run(weights, part, action, noise, min_std, activation)
        tensors = [getattr(tape, field.name) for field in dataclasses.fields(tape)]
        ctx.save_for_backward(*weights, *tensors)
        ctx.rest = min_std, activation  # type: ignore[attr-defined]
        ctx.library = native.chosen() if usable else None  # type: ignore[attr-defined]
        hidden, stoch = part.shape[-1], noise.shape[-1]
        return (
            tape.xh[:, 1:, :, hidden:].clone(),
            tape.sa[:, 1:, :, :stoch].clone(),
            mean,
            tape.std.clone(),
        )

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        saved: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        weights, tape = saved[:9], Tape(*saved[9:])
        min_std, activation = ctx.rest  # type: ignore[attr-defined]
        arguments = (weights, tape, gradients, min_std, activation)
        library: str | None = ctx.library  # type: ignore[attr-defined]
        at_input, at_gates, at_candidate, at_hidden, at_out = (
            _backward(*arguments)
            if library is None
            else native_filter.backward(*arguments, library)
        )
        hidden = tape.values.shape[-1]

        def layer(inputs: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
            """Return the gradients of a layer's weight and bias."""
            inputs, at = inputs.flatten(1, 2), at.flatten(1, 2)
            if library is not None:
                return weight_gradient(inputs, at, library)
            return torch.bmm(inputs.mT, at), at.sum(1, keepdim=True)

        return (
            at_hidden,
            *(None, None, None, None),
            *layer(tape.sa[:, :-1], at_input),
            *layer(tape.xh[:, :-1], at_gates),
            *layer(tape.xrh, at_candidate),
            layer(tape.xh[:, 1:, :, hidden:], at_hidden)[0],
            *layer(tape.values, at_out),
        )


def _forward(
    weights: tuple[Tensor, ...],
    part: Tensor,
    action: Tensor,
    noise: Tensor,
    min_std: float,
    activation: str,
) -> tuple[Tape, Tensor]:
    """Do what `native_filter.forward` does."""
    w_input, b_input, w_gates, b_gates, w_candidate, b_candidate, w_hidden, w_out, b_out = weights
    activate_ = INPLACE[activation]
    members, steps, batch, hidden = part.shape
    deter, stoch = w_hidden.shape[1], noise.shape[-1]

    def room(size: int, extra: int = 0) -> Tensor:
        return part.new_empty(members, steps + extra, batch, size)

    # The inputs of the products: [s', a], [x, h'], [x, r·h']; one step more than T, since a step
    # writes its states where the next one reads them.
    sa, xh = room(stoch + action.shape[-1], 1), room(hidden + deter, 1)
    xrh, gates, proposed = room(hidden + deter), room(2 * deter), room(deter)
    values, raw, std = room(hidden), room(2 * stoch), room(stoch)
    sa[:, :-1, :, stoch:] = action
    sa[:, 0, :, :stoch] = 0
    xh[:, 0, :, hidden:] = 0
    for t in range(steps):
        x, h = xh[:, t, :, :hidden], xh[:, t, :, hidden:]
        torch.baddbmm(b_input, sa[:, t], w_input, out=xrh[:, t, :, :hidden])
        x.copy_(activate_(xrh[:, t, :, :hidden]))
        both = torch.baddbmm(b_gates, xh[:, t], w_gates, out=gates[:, t]).sigmoid_()
        torch.mul(both[..., :deter], h, out=xrh[:, t, :, hidden:])
        c = torch.baddbmm(b_candidate, xrh[:, t], w_candidate, out=proposed[:, t])
        c.mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh, as in RSSM.evolve
        new = torch.lerp(c, h, both[..., deter:], out=xh[:, t + 1, :, hidden:])
        p = torch.baddbmm(part[:, t], new, w_hidden, out=values[:, t])
        torch.baddbmm(b_out, activate_(p), w_out, out=raw[:, t])
        torch.add(F.softplus(raw[:, t, :, stoch:]), min_std, out=std[:, t])
        torch.addcmul(raw[:, t, :, :stoch], std[:, t], noise[:, t], out=sa[:, t + 1, :, :stoch])
    tape = Tape(sa, xh, xrh, gates, proposed, values, std, noise)
    return tape, raw[..., :stoch].clone()


def _backward(
    weights: tuple[Tensor, ...],
    tape: Tape,
    gradients: tuple[Tensor, ...],
    min_std: float,
    activation: str,
) -> tuple[Tensor, ...]:
    """Do what `native_filter.backward` does."""
    w_input, _, w_gates, _, w_candidate, _, w_hidden, w_out, _ = weights
    g_deter, g_stoch, g_mean, g_std = gradients
    steps, (deter, hidden), stoch = tape.std.shape[1], w_hidden.shape[1:], tape.std.shape[-1]
    std, noise, proposed = tape.std, tape.noise, tape.proposed
    previous = tape.xh[:, :-1, :, hidden:]  # h'
    reset, update = tape.gates.chunk(2, -1)

    # Factors of the chain rule that need no recurrence, for all steps at once.
    slope_x = _slope(tape.xh[:, :-1, :, :hidden], activation)
    slope_p = _slope(tape.values, activation)
    slope_std = 1 - torch.exp(min_std - std)  # softplus'
    slope_c = (1 - proposed.square()).mul_(1 - update)  # dh/dc · tanh'
    slope_u = (previous - proposed).mul_(update).mul_(1 - update)
    slope_r = previous * reset * (1 - reset)

    # Gradients at the products' outputs.
    at_input, at_gates = torch.empty_like(slope_x), torch.empty_like(tape.gates)
    at_candidate, at_hidden = torch.empty_like(proposed), torch.empty_like(tape.values)
    at_out = std.new_empty(*std.shape[:-1], 2 * stoch)
    back_input, back_gates = w_input[:, :stoch].mT, w_gates.mT
    back_candidate, back_hidden, back_out = w_candidate.mT, w_hidden.mT, w_out.mT
    carry_h, carry_s = torch.zeros_like(g_deter[:, 0]), torch.zeros_like(g_stoch[:, 0])
    for t in reversed(range(steps)):
        carry_s.add_(g_stoch[:, t])
        torch.add(g_mean[:, t], carry_s, out=at_out[:, t, :, :stoch])
        carry_s.mul_(noise[:, t]).add_(g_std[:, t])
        torch.mul(carry_s, slope_std[:, t], out=at_out[:, t, :, stoch:])
        torch.bmm(at_out[:, t], back_out, out=at_hidden[:, t]).mul_(slope_p[:, t])
        carry_h.add_(g_deter[:, t])
        carry_h.baddbmm_(at_hidden[:, t], back_hidden)
        torch.mul(carry_h, slope_c[:, t], out=at_candidate[:, t])
        torch.mul(carry_h, slope_u[:, t], out=at_gates[:, t, :, deter:])
        into = torch.bmm(at_candidate[:, t], back_candidate)  # at [x, r·h']
        torch.mul(into[..., hidden:], slope_r[:, t], out=at_gates[:, t, :, :deter])
        carry_h.mul_(update[:, t]).addcmul_(into[..., hidden:], reset[:, t])
        into[..., hidden:] = carry_h
        into.baddbmm_(at_gates[:, t], back_gates)  # at [x, h'], and what h' has already
        carry_h = into[..., hidden:].contiguous()
        torch.mul(into[..., :hidden], slope_x[:, t], out=at_input[:, t])
        carry_s = torch.bmm(at_input[:, t], back_input)
    return at_input, at_gates, at_candidate, at_hidden, at_out
