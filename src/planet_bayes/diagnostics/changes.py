"""Changes in the middle of an episode: of the physics, of sensors, of the camera.

A change begins at a step and stays. Changes of observations act on prepared ones, before the agent
sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.agent import Prepared
from planet_bayes.diagnostics.conditions import (
    AnyEnv,
    NotApplicable,
    scale_gravity,
    scale_motors,
)
from planet_bayes.spaces import Signature

Values = NDArray[np.generic]
Sense = Callable[[Any, Any, Any, np.random.Generator], Any]
"""Maps an observation to what the agent sees of it, given the observation at the moment of the
change, the scale of each entry in clean episodes, and a source of noise."""


@dataclass(frozen=True)
class Change:
    """What changes. Exactly one of the fields after the title is set."""

    title: str
    physics: Callable[[AnyEnv], None] | None = None
    vectors: Sense | None = None
    images: Sense | None = None


def noisy(values: Any, first: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Add noise of 0.3 stds of each sensor."""
    return (values + 0.3 * scale * rng.standard_normal(values.shape)).astype(values.dtype)


def frozen(values: Any, first: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Hold the sensor that moves most at its value at the moment of the change.

    An angle is two entries, its cosine and sine. So the entries whose scale is largest are held,
    up to half of them, at least one.
    """
    held = values.copy()
    most = np.argsort(-np.asarray(scale))[: max(1, len(values) // 2)]
    held[most] = first[most]
    return held


def dimmed(values: Any, first: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Halve the brightness."""
    return (values // 2).astype(values.dtype)


def shifted(values: Any, first: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Move the picture by an eighth of its width to the right; the left edge is repeated."""
    by = max(1, values.shape[1] // 8)
    moved = np.roll(values, by, axis=1)
    moved[:, :by] = values[:, :1]
    return moved


CHANGES: dict[str, Change] = {
    "gravity": Change("gravity × 0.4", physics=lambda env: scale_gravity(env, 0.4)),
    "motor": Change("motor × 3", physics=lambda env: scale_motors(env, 3.0)),
    "noise": Change("sensor noise 0.3", vectors=noisy),
    "frozen": Change("frozen sensors", vectors=frozen),
    "dimmed": Change("dimmed camera", images=dimmed),
    "shifted": Change("shifted camera", images=shifted),
}
"""By name."""


class Disturbance:
    """One change in one episode.

    Args:
        change: The change.
        start: The step at which it begins.
        signature: What the agent senses.
        scales: Std of each entry of each vector observation in clean episodes, by name.
        rng: Source of noise.
    """

    def __init__(
        self,
        change: Change,
        start: int,
        signature: Signature,
        scales: Mapping[str, Values],
        rng: np.random.Generator,
    ) -> None:
        self.change, self.start = change, start
        self._rng, self._scales = rng, scales
        self._first: dict[str, Values] = {}
        rank = 1 if change.vectors is not None else 3
        self._sense = change.vectors or change.images
        self._names = [
            name
            for name, modality in signature.observation.items()
            if self._sense is not None and len(modality.shape) == rank
        ]
        if self._sense is not None and not self._names:
            what = "vectors" if rank == 1 else "images"
            raise NotApplicable(f"it changes {what}, and the agent observes none.")

    def begin(self, step: int, env: AnyEnv) -> None:
        """Change the physics when its time has come."""
        if step == self.start and self.change.physics is not None:
            self.change.physics(env)

    def sense(self, step: int, observation: Prepared) -> Prepared:
        """Return what the agent sees."""
        if step < self.start or self._sense is None:
            return observation
        seen = dict(observation)
        for name in self._names:
            first = self._first.setdefault(name, observation[name])
            scale = self._scales.get(name, np.zeros(()))
            seen[name] = self._sense(observation[name], first, scale, self._rng)
        return seen
