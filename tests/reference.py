"""The planner once more, in NumPy, from the paper's equations: the tests' yardstick.

One problem at a time, float64, loops over candidates and components where a loop is nearest to
what the equation says. Logarithms are kept wherever a product of densities would underflow.
All randomness comes in as arrays, so that two implementations can be fed the same.

Notation: K candidates, P particles (the paper's E), T steps, M components, U rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RewardFunction = Callable[[Array], Array]
"""From action sequences [K, T, A] to rewards [K, P, T]."""


@dataclass(frozen=True)
class Settings:
    """What the equations leave open."""

    optimality: str = "threshold"
    elite_fraction: float = 0.1
    lam: float = 1.0
    kappa: float = 0.0
    expectation: str = "before"
    min_std: float = 0.0


@dataclass(frozen=True)
class Parameters:
    """The paper's φ, with std = √(the appendix's σ)."""

    mean: Array
    """[M, T, A]."""
    std: Array
    """[M, T, A]."""
    log_pi: Array
    """[M]."""


def log_sum_exp(values: Array) -> float:
    """Return log Σ exp(values); -inf for no weight at all."""
    largest = float(np.max(values))
    if np.isneginf(largest):
        return largest
    return largest + float(np.log(np.sum(np.exp(values - largest))))


def log_normal(action: Array, mean: Array, std: Array) -> float:
    """Return log N(a; μ, diag(std²)) of one whole sequence [T, A]."""
    total = 0.0
    for x, m, s in zip(action.ravel(), mean.ravel(), std.ravel(), strict=True):
        total += -0.5 * ((x - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    return total


def log_optimality(returns: Array, settings: Settings) -> Array:
    """Return log f(R) elementwise; the threshold is over all the returns that come in."""
    if settings.optimality == "exponential":
        return returns.copy()
    if settings.optimality != "threshold":
        raise ValueError(settings.optimality)
    best_first = sorted(returns.ravel().tolist(), reverse=True)
    count = max(1, round(settings.elite_fraction * len(best_first)))
    limit = best_first[count - 1]
    return np.where(returns >= limit, 0.0, -np.inf)


def log_expected_optimality(returns: Array, settings: Settings) -> Array:
    """Return log W(a_k), [K], from the returns [K, P].

    "before" is Algorithm 3, line 11, and its footnote: W' = f(E[R]). "after" is the
    definition of W itself: E[f(R)].
    """
    num_candidates, num_particles = returns.shape
    if settings.expectation == "before":
        average = np.array([sum(row) / num_particles for row in returns])
        return log_optimality(average, settings)
    log_f = log_optimality(returns, settings)
    return np.array([log_sum_exp(log_f[k]) - np.log(num_particles) for k in range(num_candidates)])


def log_joint(actions: Array, phi: Parameters) -> Array:
    """Return log(π_m N(a_k; μ_m, σ_m)), [M, K]."""
    table = np.empty((len(phi.log_pi), len(actions)))
    for m in range(len(phi.log_pi)):
        for k, action in enumerate(actions):
            table[m, k] = phi.log_pi[m] + log_normal(action, phi.mean[m], phi.std[m])
    return table


def candidate_weights(returns: Array, log_q: Array, settings: Settings) -> Array:
    """Return w_k ∝ W(a_k)^(1/λ) q(a_k)^(-κ), [K], the appendix's first equation."""
    log_w = log_expected_optimality(returns, settings) / settings.lam - settings.kappa * log_q
    return np.exp(log_w - log_sum_exp(log_w))


def draw(phi: Parameters, normal: Array, uniform: Array) -> Array:
    """Return candidates [K, T, A]: a component by inverting π's CDF, then its Gaussian."""
    candidates = np.empty_like(normal)
    for k in range(len(normal)):
        below, component = 0.0, len(phi.log_pi) - 1
        for m, probability in enumerate(np.exp(phi.log_pi)):
            below += probability
            if uniform[k] < below:
                component = m
                break
        candidates[k] = phi.mean[component] + phi.std[component] * normal[k]
    return candidates


def refit_gaussian(actions: Array, weights: Array, min_std: Array) -> Parameters:
    """Return Algorithm 1, line 14."""
    mean = np.zeros(actions.shape[1:])
    for weight, action in zip(weights, actions, strict=True):
        mean += weight * action
    variance = np.zeros(actions.shape[1:])
    for weight, action in zip(weights, actions, strict=True):
        variance += weight * (action - mean) ** 2
    std = np.maximum(np.sqrt(variance), min_std)
    return Parameters(mean[None], std[None], np.zeros(1))


def refit_mixture(actions: Array, weights: Array, table: Array, min_std: Array) -> Parameters:
    """Return the appendix's update from log(π_m N(a_k)) [M, K] and the weights [K]."""
    num_components, num_candidates = table.shape
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    log_mass = np.empty_like(table)  # log(η_m(a_k) w_k)
    for k in range(num_candidates):
        log_mass[:, k] = table[:, k] - log_sum_exp(table[:, k]) + log_weights[k]
    log_share = np.array([log_sum_exp(row) for row in log_mass])  # log N_m
    mean = np.zeros((num_components, *actions.shape[1:]))
    variance = np.zeros_like(mean)
    for m in range(num_components):
        omega = np.exp(log_mass[m] - log_share[m])
        for k in range(num_candidates):
            mean[m] += omega[k] * actions[k]
        for k in range(num_candidates):
            variance[m] += omega[k] * (actions[k] - mean[m]) ** 2
    std = np.maximum(np.sqrt(variance), min_std)
    return Parameters(mean, std, log_share - log_sum_exp(log_share))


def optimise(
    reward_function: RewardFunction,
    phi: Parameters,
    normal: Array,
    uniform: Array,
    low: Array,
    high: Array,
    settings: Settings,
    *,
    mixture: bool,
) -> list[Parameters]:
    """Return φ after each of the U rounds, from noise [U, K, T, A] and [U, K].

    ``mixture`` chooses between PaETS' update and that of one Gaussian (CEM with the threshold,
    MPPI with the exponential). ``settings.min_std`` is in units of half the action range.
    """
    min_std = settings.min_std * (high - low) / 2
    history = []
    for j in range(len(normal)):
        candidates = np.clip(draw(phi, normal[j], uniform[j]), low, high)
        returns = reward_function(candidates).sum(axis=-1)  # [K, P]
        table = log_joint(candidates, phi)
        log_q = np.array([log_sum_exp(table[:, k]) for k in range(len(candidates))])
        weights = candidate_weights(returns, log_q, settings)
        if mixture:
            phi = refit_mixture(candidates, weights, table, min_std)
        else:
            phi = refit_gaussian(candidates, weights, min_std)
        history.append(phi)
    return history
