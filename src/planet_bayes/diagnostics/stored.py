"""Stored episodes as a model sees them: starts, beliefs and steps, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.errors import ConfigError
from planet_bayes.models import WorldModel
from planet_bayes.rng import numpy_stream, torch_stream
from planet_bayes.types import Belief, Episode

SEED = 0
"""Of all that is drawn."""
MAX_STORED = 2000
"""Stored steps that are compared with others."""


def moments(episodes: Sequence[Episode], horizon: int, count: int) -> dict[int, list[int]]:
    """Return random steps to start from, by episode: each has ``horizon`` steps after it."""
    room = [max(0, len(episode) - horizon) for episode in episodes]
    total = sum(room)
    if not total:
        raise ConfigError(f"no stored episode has {horizon} steps; choose a smaller horizon.")
    rng = numpy_stream(SEED, "requests-moments")
    drawn = np.sort(rng.choice(total, min(count, total), replace=False))
    firsts = np.concatenate([[0], np.cumsum(room)])
    found: dict[int, list[int]] = {}
    for number, position in zip(np.searchsorted(firsts, drawn, "right") - 1, drawn, strict=True):
        found.setdefault(int(number), []).append(int(position - firsts[number]))
    return found


def experienced(episode: Episode) -> Episode:
    """Return an episode without the steps that are appended after a terminal state.

    No action leads there from a reset.
    """
    return episode.first(len(episode) - max(0, int(episode.terminal.sum()) - 1))


@torch.no_grad()
def beliefs(model: WorldModel, episode: Episode, steps: Sequence[int]) -> Belief:
    """Return the members' beliefs at some steps of an episode, ``[P, n, ...]``."""
    particles, generator = model.num_particles, torch_stream(SEED, "requests-belief")
    embed = model.encode(_inputs(model, episode)).expand(particles, 1, -1, -1)  # [P, 1, T, embed]
    action = torch.from_numpy(episode.action)[None].expand(particles, 1, -1, -1)
    shape = (embed.shape[2], particles, 1, model.config.stoch)
    filtered = model.filter_sequences(embed, action, model.belief_noise(shape, generator))
    return Belief(filtered.deter[:, 0, steps], filtered.stoch[:, 0, steps])


def _inputs(model: WorldModel, episode: Episode) -> dict[str, Tensor]:
    """Return an episode's observations in the units of the decoders, ``[1, T, ...]``."""
    observation = {name: torch.from_numpy(part)[None] for name, part in episode.observation.items()}
    return model.inputs(observation, torch_stream(SEED, "requests-inputs"))


@dataclass(frozen=True)
class Stored:
    """Stored steps: one of ``every`` of them."""

    observation: dict[str, NDArray[np.float64]]
    """By name, in the units of the decoders, each ``[n, ...]``."""
    action: NDArray[np.float32]
    """The actions that led to them, ``[n, A]``."""
    number: NDArray[np.int64]
    """Their episodes, ``[n]``."""
    every: float


def stored_steps(model: WorldModel, episodes: Sequence[Episode]) -> Stored:
    """Return at most `MAX_STORED` random steps of all episodes."""
    total = sum(len(episode) - 1 for episode in episodes)
    drawn = numpy_stream(SEED, "requests-stored").permutation(total)[:MAX_STORED]
    first, parts, action, number = 0, [], [], []
    for index, episode in enumerate(episodes):
        steps = len(episode) - 1
        mine = np.sort(drawn[(drawn >= first) & (drawn < first + steps)]) - first + 1
        first += steps
        if len(mine):
            chosen = Episode(
                {name: values[mine] for name, values in episode.observation.items()},
                *(episode.action[mine], episode.reward[mine], episode.terminal[mine]),
            )
            parts.append({name: part[0] for name, part in _inputs(model, chosen).items()})
            action.append(episode.action[mine])
            number.append(np.full(len(mine), index))
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    seen = {name: values.double().numpy() for name, values in joined.items()}
    return Stored(seen, np.concatenate(action), np.concatenate(number), total / len(drawn))
