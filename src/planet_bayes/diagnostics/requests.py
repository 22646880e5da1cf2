"""Data requests: where another episode would reduce the members' disagreement most.

Many moments of stored episodes are starts. From each, the members imagine H steps of the actions
that were really taken, and of random ones. A future has a disagreement d, as in
`planet_bayes.models.curiosity`, and an end: the observation that it leads to and the action that
leads there.

Members also disagree where there are many data: where the world is noisy or the model too small.
There further data change little. If the variance of the members falls as one over the n stored
steps near an end, m steps more reduce it by d² m / (n + m). This takes the H steps of the request,
and before them the s steps that lead to its start again and bring nothing new. So the gain is per
step:

    gain = d² m / ((n + m) (s + H))

Steps are near if their distance, in stds of all stored steps, is within a radius. m is how many
steps of one episode are usually near each other. So nothing needs to be set. Requests are the ends
of the largest gains, of which no two are near.

Members imagine the means of their priors, so noise is no disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.checks import at_least
from planet_bayes.diagnostics.nearness import Map, nearby, spread_out, within_episodes
from planet_bayes.diagnostics.stored import SEED, beliefs, moments, stored_steps
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModalityNetwork, WorldModel
from planet_bayes.models.curiosity import disagreement
from planet_bayes.rng import numpy_stream
from planet_bayes.spaces import Signature
from planet_bayes.types import Belief, Episode

MAX_ENDS = 1000
"""Ends, those of the largest disagreement, that are decoded and compared with stored steps."""
CHUNK = 64
"""Moments that are imagined from at once."""


@dataclass(frozen=True)
class Options:
    """How requests are looked for."""

    requests: int = 5
    """Requests at most."""
    horizon: int = 15
    """Steps imagined ahead (H)."""
    moments: int = 400
    """Starts, drawn from all stored steps."""
    random: int = 15
    """Random action sequences from each start."""

    def __post_init__(self) -> None:
        at_least(self, "", 1, "requests", "horizon", "moments", "random")


@dataclass(frozen=True)
class Request:
    """A start that was seen before, and actions that lead to what the members do not know."""

    episode: int
    """Position of the start's episode among the stored ones."""
    step: int
    """Its step: the actions 1 to ``step`` of the episode lead there."""
    start: dict[str, NDArray[np.generic]]
    """Vector observations at the start."""
    actions: NDArray[np.float32]
    """What to do from there, ``[H, A]``."""
    end: dict[str, NDArray[np.generic]]
    """Vector observations that the members expect on average after these actions."""
    disagreement: float
    """Of the members about that observation, in stds."""
    visits: float
    """Stored steps near the end."""
    gain: float
    """By how much each step reduces the variance of the members there, in the same units; those
    that lead to the start count."""


@dataclass(frozen=True)
class Requests:
    """All requests, and what a figure needs."""

    chosen: tuple[Request, ...]
    usual: float
    """Median disagreement about actions that were really taken."""
    steps: int
    """Stored steps."""
    stored: NDArray[np.float64]
    """Stored steps in the plane of their two main components, ``[n, 2]``."""
    ends: NDArray[np.float64]
    """Ends in the same plane, ``[m, 2]``."""
    gains: NDArray[np.float64]
    """Of the ends, ``[m]``."""
    asked: NDArray[np.float64]
    """The requests in the same plane, ``[k, 2]``."""


@dataclass(frozen=True)
class _Futures:
    """What was imagined: K futures of each of n moments."""

    actions: NDArray[np.float32]  # [n, K, H, A]; those of [:, 0] were really taken
    disagreement: NDArray[np.float64]  # [n, K]
    features: Tensor  # of the living members at the end: [P, n · K, F]


def find_requests(
    model: WorldModel, signature: Signature, episodes: Sequence[Episode], options: Options
) -> Requests:
    """Return where another episode would reduce disagreement most.

    Args:
        model: The world model, of several members, on the CPU.
        signature: What the agent senses and how it acts.
        episodes: The stored episodes, in the order of their numbers.
        options: How to look.
    """
    if model.num_particles < 2:
        raise ConfigError("requests need several members: one has nobody to disagree with.")
    drawn = moments(episodes, options.horizon, options.moments)
    parts = [beliefs(model, episodes[number], steps) for number, steps in drawn.items()]
    belief = Belief(
        torch.cat([part.deter for part in parts], 1), torch.cat([part.stoch for part in parts], 1)
    )
    where = [(number, step) for number, steps in drawn.items() for step in steps]
    futures = _imagined(model, signature, belief, [(episodes[n], s) for n, s in where], options)
    flat = futures.disagreement.ravel()
    kept = np.argsort(-flat, kind="stable")[:MAX_ENDS]
    stored = stored_steps(model, episodes)
    known = Map.of(stored.observation, stored.action)
    last = futures.actions[..., -1, :].reshape(len(flat), -1)[kept]
    ends = known.place(_decoded(model, futures.features[:, kept]), last)
    visits = nearby(ends, known.points, known.radius) * stored.every
    own = 1 + within_episodes(known.points, stored.number, known.radius) * stored.every
    columns = futures.disagreement.shape[1]
    reach = np.array([where[index // columns][1] for index in kept])
    gains = np.square(flat[kept]) * own / ((visits + own) * (reach + options.horizon))
    vectors = _vectors(model, signature, futures.features[:, kept])
    chosen = spread_out(ends, gains, known.radius, options.requests)
    return Requests(
        chosen=tuple(
            _request(
                *(episodes, where[kept[index] // columns], signature),
                futures.actions.reshape(len(flat), *futures.actions.shape[2:])[kept[index]],
                {name: values[index] for name, values in vectors.items()},
                (float(flat[kept[index]]), float(visits[index]), float(gains[index])),
            )
            for index in chosen
        ),
        usual=float(np.median(futures.disagreement[:, 0])),
        steps=sum(len(episode) - 1 for episode in episodes),
        stored=known.plane(known.points),
        ends=known.plane(ends),
        gains=gains,
        asked=known.plane(ends[chosen]),
    )


@torch.no_grad()
def _imagined(
    model: WorldModel,
    signature: Signature,
    belief: Belief,
    starts: Sequence[tuple[Episode, int]],
    options: Options,
) -> _Futures:
    rng = numpy_stream(SEED, "requests-actions")
    taken = [episode.action[step + 1 : step + 1 + options.horizon] for episode, step in starts]
    actions = np.stack(
        [np.stack([one, *random_sequences(signature, options, rng)]) for one in taken]
    )  # [n, K, H, A]
    senses = [cast(ModalityNetwork, sense) for sense in model.senses.values()]
    living = belief.features.isfinite().all(-1).all(-1).nonzero().flatten()
    if len(living) < 2:
        raise ConfigError("fewer than two members have finite beliefs: train the model anew.")
    columns, ends = actions.shape[1], []
    for part in torch.arange(len(starts)).split(CHUNK):
        rows = part.repeat_interleave(columns)
        start = Belief(belief.deter[:, rows], belief.stoch[:, rows])
        steps = torch.from_numpy(actions[part.numpy()]).flatten(0, 1).transpose(0, 1)
        last = model.rollout(start, steps, None)[-1:]  # [1, P, rows, F]
        ends.append(last[0, living])
    features = torch.cat(ends, 1)  # [P, n · K, F]
    # One call for all: its unit of the codes of images is estimated from what it is given.
    values = disagreement(senses, features[None])[0].double().nan_to_num(nan=0.0, posinf=0.0)
    return _Futures(actions, values.view(len(starts), columns).numpy(), features)


def random_sequences(
    signature: Signature, options: Options, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """Return random action sequences ``[H, A]``.

    Each action is repeated as often as a random number for each sequence says: independent actions
    cancel each other and do not lead far.
    """
    found = []
    for _ in range(options.random):
        repeated = int(rng.integers(1, options.horizon + 1))
        count = -(-options.horizon // repeated)
        values = np.stack([signature.action.random(rng) for _ in range(count)])
        found.append(values.repeat(repeated, 0)[: options.horizon])
    return found


@torch.no_grad()
def _decoded(model: WorldModel, features: Tensor) -> dict[str, NDArray[np.float64]]:
    """Return what features ``[P, n, F]`` decode to, the mean over members, ``[n, ...]``."""
    return {
        name: cast(ModalityNetwork, sense).decode(features).mean(0).double().numpy()
        for name, sense in model.senses.items()
    }


@torch.no_grad()
def _vectors(
    model: WorldModel, signature: Signature, features: Tensor
) -> dict[str, NDArray[np.generic]]:
    """Return expected vector observations in their own units, by name, each ``[n, D]``."""
    names = tuple(signature.vector_sizes())
    if not names:
        return {}
    return {
        name: values.mean(0).numpy() for name, values in model.reconstruct(features, names).items()
    }


def _request(
    episodes: Sequence[Episode],
    where: tuple[int, int],
    signature: Signature,
    actions: NDArray[np.float32],
    end: Mapping[str, NDArray[np.generic]],
    figures: tuple[float, float, float],
) -> Request:
    number, step = where
    names = signature.vector_sizes()
    start = {name: episodes[number].observation[name][step] for name in names}
    return Request(number, step, start, actions, dict(end), *figures)
