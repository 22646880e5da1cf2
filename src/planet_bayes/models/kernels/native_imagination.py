"""Imagination in native code (`cpp/imagination.hpp`)."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterable
from ctypes import POINTER, c_float, c_int, c_int32, c_void_p

import torch
from torch import Tensor

from planet_bayes.models.heads import Head, RewardHead
from planet_bayes.models.kernels import native
from planet_bayes.models.kernels.imagination import head_layers
from planet_bayes.models.rssm import MIN_STATE_STD, RSSM, Weights

IMAGINED = ("input", "gates", "candidate", "prior_hidden", "prior_out")
"""Layers of the dynamics that a step without an observation uses."""


class _Sizes(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in ("members", "action", "deter", "stoch", "hidden")),
        *((name, c_int32) for name in ("head_layers", "head_units", "activation")),
        *((name, c_float) for name in ("min_std", "reward_scale")),
    )


@functools.cache
def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Give the functions that this file calls their types."""
    loaded.planet_bayes_pack.restype = c_void_p
    loaded.planet_bayes_pack.argtypes = [POINTER(_Sizes), POINTER(c_void_p), POINTER(c_void_p)]
    loaded.planet_bayes_free.restype = None
    loaded.planet_bayes_free.argtypes = [c_void_p]
    loaded.planet_bayes_roll_out.restype = c_int
    loaded.planet_bayes_roll_out.argtypes = [
        *(c_void_p, c_int, c_int, c_int),
        *(c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_int, c_int, c_void_p, c_void_p),
    ]
    return loaded


def supports(rssm: RSSM, weights: Weights, head: Head) -> bool:
    """Return whether `NativeImagination` can do this work."""
    if type(rssm) is not RSSM or type(head) is not RewardHead or native.chosen() == "torch":
        return False
    particles, shapes = len(weights.input.weight), rssm.layers()
    layers = [(getattr(weights, name), shapes[name]) for name in IMAGINED]
    linear = head_layers(head, rssm.activation)
    if linear is None:
        return False
    widths = [rssm.deter + rssm.stoch, *[linear[0].out_features] * (len(linear) - 1), 1]
    return (
        rssm.activation in native.ACTIVATIONS
        and all(native.fits(one.weight, (particles, to.inputs, to.outputs)) for one, to in layers)
        and all(native.fits(one.bias, (particles, 1, to.outputs)) for one, to in layers)
        and all(native.fits(one.weight, (widths[i + 1], widths[i])) for i, one in enumerate(linear))
        and all(native.fits(one.bias, (widths[i + 1],)) for i, one in enumerate(linear))
    )


class NativeImagination:
    """A model's weights, packed for the native kernel. Later changes of the weights do not count.

    Args:
        rssm: The sizes of the dynamics.
        weights: The weights of P particles.
        head: The reward head.
    """

    def __init__(self, rssm: RSSM, weights: Weights, head: RewardHead) -> None:
        self._library = _typed(native.library(native.chosen()))
        self._rssm, self._particles = rssm, len(weights.input.weight)
        layers = [getattr(weights, name) for name in IMAGINED]
        linear = head_layers(head, rssm.activation) or []
        sizes = _Sizes(
            members=self._particles,
            action=rssm.action,
            deter=rssm.deter,
            stoch=rssm.stoch,
            hidden=rssm.hidden,
            head_layers=len(linear) - 1,
            head_units=linear[0].out_features if len(linear) > 1 else 0,
            activation=native.ACTIVATIONS.index(rssm.activation),
            min_std=MIN_STATE_STD,
            reward_scale=head.unscaled(torch.ones(())).item(),
        )
        dynamics = _contiguous(part for layer in layers for part in (layer.weight, layer.bias))
        rewards = _contiguous(part for layer in linear for part in (layer.weight, layer.bias))
        self._model = self._library.planet_bayes_pack(
            ctypes.byref(sizes), _pointers(dynamics), _pointers(rewards)
        )
        if not self._model:
            raise MemoryError
        # Not at exit: another thread may be in a call then.
        weakref.finalize(self, self._library.planet_bayes_free, self._model).atexit = False

    def __copy__(self) -> NativeImagination:
        """Return this object, which owns the packed weights. It never changes."""
        return self

    def rewards(
        self,
        deter: Tensor,
        stoch: Tensor,
        actions: Tensor,
        noise: Tensor | None,
        features: Tensor | None = None,
    ) -> Tensor:
        """Return rewards ``[B, N, P, H]`` of actions ``[B, N, H, A]``.

        ``deter`` ``[P, B, D]`` and ``stoch`` ``[P, B, S]`` are where they start. ``noise`` is
        ``[H, P, B, N or 1, S]``; without, the prior's mean is taken. The states are written into
        ``features`` ``[H, P, B, N, D + S]``, contiguous, if given.
        """
        batch, num, horizon, _ = actions.shape
        rssm, particles = self._rssm, self._particles
        columns = 1 if noise is None else noise.shape[3]
        _check("deter", deter, (particles, batch, rssm.deter))
        _check("stoch", stoch, (particles, batch, rssm.stoch))
        _check("actions", actions, (batch, num, horizon, rssm.action))
        if noise is not None:
            columns = 1 if columns == 1 else num
            _check("noise", noise, (horizon, particles, batch, columns, rssm.stoch))
            noise = noise.contiguous()
        if features is not None:
            width = rssm.deter + rssm.stoch
            _check("features", features, (horizon, particles, batch, num, width))
            if not features.is_contiguous():
                raise ValueError("features: expected a contiguous tensor to write into.")
        deter, stoch, actions = _contiguous((deter, stoch, actions))
        result = actions.new_empty(batch, num, self._particles, horizon)
        failed = self._library.planet_bayes_roll_out(
            self._model,
            *(batch, num, horizon),
            *(deter.data_ptr(), stoch.data_ptr(), actions.data_ptr()),
            None if noise is None else noise.data_ptr(),
            *(columns, torch.get_num_threads(), result.data_ptr()),
            None if features is None else features.data_ptr(),
        )
        if failed:
            raise MemoryError
        return result


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse what the library would read or write out of bounds."""
    if not native.fits(tensor, shape):
        raise ValueError(
            f"{name}: expected float32 {shape} on the CPU, got {tensor.dtype} "
            f"{tuple(tensor.shape)} on {tensor.device}."
        )


def _contiguous(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().contiguous() for tensor in tensors]


def _pointers(tensors: list[Tensor]) -> ctypes.Array[c_void_p]:
    return (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
