"""The recurrence of learning in native code (`cpp/filter.hpp`): what `sequence` computes in a loop.

Axes are ``[E, T, B, X]``. The letters of sizes: A action, D deterministic state, S stochastic
state, X hidden units.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import c_float, c_int32, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from planet_bayes.models.kernels import native

ACTIVATIONS = ("relu", "elu")
"""In the order of their numbers in the library."""
WEIGHTS = ("input", "input_bias", "gates", "gates_bias", "candidate", "candidate_bias", "hidden")
ARRAYS = ("part", "action", "noise", "sa", "xh", "xrh", "gates", "proposed", "values")
GRADIENTS = ("deter", "stoch", "mean", "std")
AT = ("at_input", "at_gates", "at_candidate", "at_hidden", "at_out")


class _Sizes(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in ("members", "steps", "batch", "action")),
        *((name, c_int32) for name in ("deter", "stoch", "hidden", "activation")),
        ("min_std", c_float),
    )


class _Weights(ctypes.Structure):
    _fields_ = tuple((name, c_void_p) for name in (*WEIGHTS, "out", "out_bias"))


class _Arrays(ctypes.Structure):
    _fields_ = tuple((name, c_void_p) for name in (*ARRAYS, "mean", "std"))


class _Gradients(ctypes.Structure):
    _fields_ = tuple((name, c_void_p) for name in (*GRADIENTS, *AT))


@dataclass(frozen=True)
class Tape:
    """What a pass forward leaves for the pass backward."""

    sa: Tensor
    """Inputs [s', a], and after the last step s; ``[E, T + 1, B, S + A]``."""
    xh: Tensor
    """Inputs [x, h'], and after the last step h; ``[E, T + 1, B, X + D]``."""
    xrh: Tensor
    """Inputs [x, r·h'], ``[E, T, B, X + D]``."""
    gates: Tensor
    """r and u, ``[E, T, B, 2 D]``."""
    proposed: Tensor
    """c, ``[E, T, B, D]``."""
    values: Tensor
    """p, ``[E, T, B, X]``."""
    std: Tensor
    """``[E, T, B, S]``."""
    noise: Tensor
    """``[E, T, B, S]``."""


def supports(weights: tuple[Tensor, ...], part: Tensor, action: Tensor, noise: Tensor) -> bool:
    """Return whether the library can do this work; see `forward` for the arguments."""
    members, x, lead = part.shape[0], part.shape[3], part.shape[:3]
    s, d = weights[-1].shape[-1] // 2, weights[WEIGHTS.index("hidden")].shape[1]
    a = action.shape[-1]
    shapes = [
        *((members, s + a, x), (members, 1, x)),
        *((members, x + d, 2 * d), (members, 1, 2 * d)),
        *((members, x + d, d), (members, 1, d)),
        (members, d, x),
        *((members, x, 2 * s), (members, 1, 2 * s)),
    ]
    inputs = ((part, x), (action, a), (noise, s))
    return (
        native.chosen() != "torch"
        and all(native.fits(tensor, (*lead, size)) for tensor, size in inputs)
        and all(native.fits(tensor, shape) for tensor, shape in zip(weights, shapes, strict=True))
    )


def forward(
    weights: tuple[Tensor, ...],
    part: Tensor,
    action: Tensor,
    noise: Tensor,
    min_std: float,
    activation: str,
) -> tuple[Tape, Tensor]:
    """Filter from the zero belief. Returns the tape and the posterior's means.

    ``weights`` are weights and biases in the order of `WEIGHTS`, then the output's.
    """
    (members, steps, batch, hidden), stoch = part.shape, noise.shape[-1]
    deter = weights[WEIGHTS.index("hidden")].shape[1]
    part, action, noise = part.contiguous(), action.contiguous(), noise.contiguous()

    def room(size: int, extra: int = 0) -> Tensor:
        return part.new_empty(members, steps + extra, batch, size)

    tape = Tape(
        sa=room(stoch + action.shape[-1], 1),
        xh=room(hidden + deter, 1),
        xrh=room(hidden + deter),
        gates=room(2 * deter),
        proposed=room(deter),
        values=room(hidden),
        std=room(stoch),
        noise=noise,
    )
    mean = room(stoch)
    kept = [weight.contiguous() for weight in weights]
    failed = native.library(native.chosen()).planet_bayes_filter(
        ctypes.byref(_sizes(tape, min_std, activation)),
        ctypes.byref(_Weights(*_addresses(kept))),
        ctypes.byref(_arrays(tape, part, action, mean)),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError
    return tape, mean


def backward(
    weights: tuple[Tensor, ...],
    tape: Tape,
    gradients: tuple[Tensor, ...],
    min_std: float,
    activation: str,
    library: str,
) -> tuple[Tensor, ...]:
    """Return the gradients at the outputs of the five products, in the order of `AT`.

    ``gradients`` are those of the results: deter, stoch, mean and std. ``library`` is the one that
    the pass forward was made with.
    """
    kept = [weight.contiguous() for weight in weights]
    given = [gradient.contiguous() for gradient in gradients]
    at = [torch.empty_like(like) for like in (tape.values, tape.gates, tape.proposed, tape.values)]
    at.append(tape.std.new_empty(*tape.std.shape[:-1], 2 * tape.std.shape[-1]))
    failed = native.library(library).planet_bayes_filter_gradient(
        ctypes.byref(_sizes(tape, min_std, activation)),
        ctypes.byref(_Weights(*_addresses(kept))),
        ctypes.byref(_arrays(tape)),
        ctypes.byref(_Gradients(*_addresses([*given, *at]))),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError
    return tuple(at)


def _sizes(tape: Tape, min_std: float, activation: str) -> _Sizes:
    members, steps, batch, stoch = tape.std.shape
    return _Sizes(
        *(members, steps, batch, tape.sa.shape[-1] - stoch),
        *(tape.proposed.shape[-1], stoch, tape.values.shape[-1], ACTIVATIONS.index(activation)),
        min_std,
    )


def _arrays(
    tape: Tape, part: Tensor | None = None, action: Tensor | None = None, mean: Tensor | None = None
) -> _Arrays:
    """Return the arrays' addresses; the pass backward needs the tape alone."""
    outside = (part, action, mean)
    a, b, c = (None if array is None else array.data_ptr() for array in outside)
    inside = (tape.noise, tape.sa, tape.xh, tape.xrh, tape.gates, tape.proposed, tape.values)
    return _Arrays(a, b, *_addresses(inside), c, tape.std.data_ptr())


def _addresses(tensors: Iterable[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]
