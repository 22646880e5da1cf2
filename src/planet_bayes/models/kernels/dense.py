"""Dense layers of learning on CPUs, gradients included (`cpp/layer.hpp`).

PyTorch's operators take a pass over memory for each of product, bias, activation and slope, and
repack the weights at each product. Here a block of rows goes through all of them in cache.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_int, c_int32, c_int64, c_void_p

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from planet_bayes.models.activations import ACTIVATIONS
from planet_bayes.models.kernels import fast_path, native, refuse_second_derivatives

MIN_ROWS = 64
"""Rows of a group below which a call costs more than it gains."""
PRODUCTS_PER_THREAD = 8_000_000
"""Multiplications that are worth a thread: it takes 50 to 100 µs to start, these 200."""
SUPPORTED = (None, "relu", "elu")
"""Activations whose slope is a function of their value; None: the layer is linear."""


class _Sizes(ctypes.Structure):
    _fields_ = tuple(
        (name, c_int32) for name in ("groups", "rows", "inputs", "outputs", "activation")
    )


class _Strides(ctypes.Structure):
    _fields_ = tuple((name, c_int64) for name in ("group", "row", "column"))


@functools.cache
def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Give the functions that this file calls their types."""
    sizes, strides = POINTER(_Sizes), POINTER(_Strides)
    loaded.planet_bayes_layer.argtypes = [
        *(sizes, c_void_p, strides, c_void_p, strides),
        *(c_void_p, c_void_p, c_int),
    ]
    loaded.planet_bayes_input_gradient.argtypes = [
        *(sizes, c_void_p, strides),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_int),
    ]
    loaded.planet_bayes_weight_gradient.argtypes = [
        *(sizes, c_void_p, strides, c_void_p, strides),
        *(c_void_p, c_void_p, c_int),
    ]
    return loaded


def dense(inputs: Tensor, weight: Tensor, bias: Tensor, activation: str | None = None) -> Tensor:
    """Return f(inputs · weight + bias), ``[G, N, out]``: dense layers of G groups of N rows.

    Args:
        inputs: ``[G, N, in]``.
        weight: ``[G, in, out]``.
        bias: ``[G, 1, out]``.
        activation: Name of f; None: the layer is linear.
    """
    if _supports(inputs, weight, bias, activation):
        return _Dense.apply(inputs, weight, bias, activation)
    outputs = torch.baddbmm(bias, inputs, weight)
    return outputs if activation is None else ACTIVATIONS[activation](outputs)


def weight_gradient(inputs: Tensor, at: Tensor, library: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of weight ``[G, in, out]`` and bias ``[G, 1, out]``.

    ``inputs`` ``[G, N, in]`` and ``at`` ``[G, N, out]``, the gradient at the product's output, have
    contiguous rows.
    """
    to = at.new_empty(len(at), inputs.shape[-1], at.shape[-1])
    to_bias = at.new_empty(len(at), 1, at.shape[-1])
    _call(
        _typed(native.library(library)).planet_bayes_weight_gradient,
        _sizes(inputs, at, None),
        *(inputs.data_ptr(), _strides(inputs), at.data_ptr(), _strides(at)),
        *(to.data_ptr(), to_bias.data_ptr()),
    )
    return to, to_bias


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor, activation: str | None
    ) -> Tensor:
        name = native.chosen()
        rows, offset = _with_rows(inputs), bias.contiguous()
        outputs = rows.new_empty(*rows.shape[:2], weight.shape[-1])
        _call(
            _typed(native.library(name)).planet_bayes_layer,
            _sizes(rows, outputs, activation),
            *(rows.data_ptr(), _strides(rows), weight.data_ptr(), _strides(weight)),
            *(offset.data_ptr(), outputs.data_ptr()),
        )
        ctx.save_for_backward(rows, weight, *([] if activation is None else [outputs]))
        ctx.rest = activation, name  # type: ignore[attr-defined]
        return outputs

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        rows, weight, *rest = ctx.saved_tensors  # type: ignore[attr-defined]
        activation, name = ctx.rest  # type: ignore[attr-defined]
        needed = ctx.needs_input_grad  # type: ignore[attr-defined]
        gradient = gradient.contiguous()
        outputs = rest[0] if rest else gradient  # without an activation they are not needed
        at = gradient if activation is None else torch.empty_like(gradient)
        to_inputs = rows.new_empty(rows.shape) if needed[0] else None
        _call(
            _typed(native.library(name)).planet_bayes_input_gradient,
            _sizes(rows, outputs, activation),
            *(weight.data_ptr(), _strides(weight), outputs.data_ptr(), gradient.data_ptr()),
            *(at.data_ptr(), None if to_inputs is None else to_inputs.data_ptr()),
        )
        if not (needed[1] or needed[2]):
            return to_inputs, None, None, None
        return to_inputs, *weight_gradient(rows, at, name), None


def _supports(inputs: Tensor, weight: Tensor, bias: Tensor, activation: str | None) -> bool:
    groups, rows, size = inputs.shape
    return (
        torch.is_grad_enabled()
        and rows >= MIN_ROWS
        and size > 0
        and activation in SUPPORTED
        and fast_path(inputs.device)
        and native.chosen() != "torch"
        and native.fits(inputs, (groups, rows, size))
        and native.fits(weight, (groups, size, weight.shape[-1]))
        and native.fits(bias, (groups, 1, weight.shape[-1]))
    )


def _with_rows(tensor: Tensor) -> Tensor:
    """Return a tensor ``[G, N, X]`` with contiguous rows."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _sizes(inputs: Tensor, outputs: Tensor, activation: str | None) -> _Sizes:
    number = -1 if activation is None else native.ACTIVATIONS.index(activation)
    return _Sizes(*inputs.shape, outputs.shape[-1], number)


def _strides(tensor: Tensor) -> _Strides:
    return _Strides(*tensor.stride())


def _call(function: ctypes._NamedFuncPointer, sizes: _Sizes, *arguments: object) -> None:
    """Call a function of the library, with as many threads as have enough to do."""
    products = sizes.groups * sizes.rows * sizes.inputs * sizes.outputs
    threads = max(1, min(torch.get_num_threads(), products // PRODUCTS_PER_THREAD))
    if function(sizes, *arguments, threads):
        raise MemoryError
