"""The world model once more, in NumPy, from its equations: the tests' yardstick.

Float64, one member, one sequence and one step at a time; vectors are one-dimensional and every
axis that the package batches over is a Python loop here. All randomness comes in as arrays, so
that two implementations can be fed the same.

The recurrent cell is the one that PlaNet was trained with, TensorFlow's GRUBlockCell:

    r, u = σ([x, h] W_ru + b_ru)      c = tanh([x, r ∘ h] W_c + b_c)      h' = u ∘ h + (1 - u) ∘ c
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Dense = tuple[Array, Array]
"""Weight [in, out] and bias [out]."""

LAYERS = (
    "input",
    "gates",
    "candidate",
    "prior_hidden",
    "prior_out",
    "posterior_hidden",
    "posterior_out",
)
"""What each member has of its own."""


@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian."""

    mean: Array
    std: Array


@dataclass(frozen=True)
class Cell:
    """One member."""

    layers: Mapping[str, Dense]
    activation: str
    min_std: float


def nonlinear(name: str, values: Array) -> Array:
    """Apply relu, elu or silu, number by number."""
    out = np.empty_like(values)
    for index, value in np.ndenumerate(values):
        if name == "relu":
            out[index] = value if value > 0 else 0.0
        elif name == "elu":
            out[index] = value if value > 0 else math.expm1(value)
        elif name == "silu":
            out[index] = value / (1 + math.exp(-value))
        else:
            raise KeyError(name)
    return out


def logistic(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def dense(inputs: Array, layer: Dense) -> Array:
    weight, bias = layer
    return inputs @ weight + bias


def multilayer(inputs: Array, layers: list[Dense], activation: str) -> Array:
    """Dense layers with a nonlinearity between them; the last one is linear."""
    for layer in layers[:-1]:
        inputs = nonlinear(activation, dense(inputs, layer))
    return dense(inputs, layers[-1])


def gru(inputs: Array, state: Array, gates: Dense, candidate: Dense) -> Array:
    size = len(state)
    both = logistic(dense(np.concatenate([inputs, state]), gates))
    reset, update = both[:size], both[size:]
    proposed = np.tanh(dense(np.concatenate([inputs, reset * state]), candidate))
    return update * state + (1 - update) * proposed


def evolve(cell: Cell, deter: Array, stoch: Array, action: Array) -> Array:
    """h_t = GRU(h_{t-1}, FC(s_{t-1}, a_{t-1}))."""
    joint = np.concatenate([stoch, action])
    hidden = nonlinear(cell.activation, dense(joint, cell.layers["input"]))
    return gru(hidden, deter, cell.layers["gates"], cell.layers["candidate"])


def prior(cell: Cell, deter: Array) -> Gaussian:
    hidden = nonlinear(cell.activation, dense(deter, cell.layers["prior_hidden"]))
    return _gaussian(cell, dense(hidden, cell.layers["prior_out"]))


def posterior(cell: Cell, deter: Array, embed: Array) -> Gaussian:
    joint = np.concatenate([deter, embed])
    hidden = nonlinear(cell.activation, dense(joint, cell.layers["posterior_hidden"]))
    return _gaussian(cell, dense(hidden, cell.layers["posterior_out"]))


def _gaussian(cell: Cell, raw: Array) -> Gaussian:
    half = len(raw) // 2
    return Gaussian(raw[:half], np.log1p(np.exp(raw[half:])) + cell.min_std)


@dataclass(frozen=True)
class Filtered:
    """Everything that filtering gives, each [E, B, T, ...]."""

    deter: Array
    stoch: Array
    prior: Gaussian
    posterior: Gaussian


def filter_sequences(cells: list[Cell], embed: Array, action: Array, noise: Array) -> Filtered:
    """Filter from the zero belief: embed [E, B, T, X], action [E, B, T, A], noise [T, E, B, S]."""
    members, batch, steps = embed.shape[:3]
    stoch_size = noise.shape[-1]
    deter_size = cells[0].layers["candidate"][1].shape[0]
    deters = np.zeros((members, batch, steps, deter_size))
    others = np.zeros((5, members, batch, steps, stoch_size))
    for e, cell in enumerate(cells):
        for b in range(batch):
            deter, stoch = np.zeros(deter_size), np.zeros(stoch_size)
            for t in range(steps):
                deter = evolve(cell, deter, stoch, action[e, b, t])
                before, after = prior(cell, deter), posterior(cell, deter, embed[e, b, t])
                stoch = after.mean + after.std * noise[t, e, b]
                deters[e, b, t] = deter
                for slot, value in enumerate(
                    (stoch, before.mean, before.std, after.mean, after.std)
                ):
                    others[slot, e, b, t] = value
    return Filtered(
        deters, others[0], Gaussian(others[1], others[2]), Gaussian(others[3], others[4])
    )


def roll_out(cell: Cell, deter: Array, stoch: Array, actions: Array, noise: Array | None) -> Array:
    """Features [H, D + S] of one member imagining one sequence of actions [H, A]."""
    features = []
    for step, action in enumerate(actions):
        deter = evolve(cell, deter, stoch, action)
        ahead = prior(cell, deter)
        stoch = ahead.mean if noise is None else ahead.mean + ahead.std * noise[step]
        features.append(np.concatenate([deter, stoch]))
    return np.stack(features)


def kl(left: Gaussian, right: Gaussian) -> float:
    """KL[left || right] from log σ_r / σ_l + (σ_l² + (μ_l - μ_r)²) / 2σ_r² - ½, summed."""
    total = 0.0
    for ml, sl, mr, sr in zip(left.mean, left.std, right.mean, right.std, strict=True):
        total += math.log(sr / sl) + (sl**2 + (ml - mr) ** 2) / (2 * sr**2) - 0.5
    return total


@dataclass(frozen=True)
class Objective:
    """The terms of one member's loss."""

    observation: float
    reward: float
    kl: float
    kl_nats: float


def objective(
    seen: Filtered,
    member: int,
    decoder: list[Dense],
    reward_head: list[Dense],
    activation: str,
    observation: Array,
    reward: Array,
    lengths: list[int],
    free_nats: float,
    reward_scale: float,
    observation_scale: float,
) -> Objective:
    """Eq. 2 of one member, averaged over the real steps: [B, T, ...] data, B lengths."""
    count, image, score, clipped, plain = 0, 0.0, 0.0, 0.0, 0.0
    for b, length in enumerate(lengths):
        for t in range(length):
            at = (member, b, t)
            feature = np.concatenate([seen.deter[at], seen.stoch[at]])
            missed = observation[b, t] - multilayer(feature, decoder, activation)
            image += 0.5 * float((missed**2).sum())
            guess = float(multilayer(feature, reward_head, activation)[0])
            score += 0.5 * (reward[b, t] - guess) ** 2
            nats = kl(
                Gaussian(seen.posterior.mean[at], seen.posterior.std[at]),
                Gaussian(seen.prior.mean[at], seen.prior.std[at]),
            )
            clipped += max(nats, free_nats)
            plain += nats
            count += 1
    return Objective(
        observation=observation_scale * image / count,
        reward=reward_scale * score / count,
        kl=clipped / count,
        kl_nats=plain / count,
    )
