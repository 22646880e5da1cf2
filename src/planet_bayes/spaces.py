"""The signature of an agent: what it senses and how it acts.

A signature is plain data. It is saved as JSON in every checkpoint and export, and the world model
and the agent are built from it, never from a live environment.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from planet_bayes.errors import IMPORT_FIRST, ConfigError, ObservationError, nearest
from planet_bayes.models import MODALITIES, Modality
from planet_bayes.planner import Bounds


class ActionSpace(Protocol):
    """A kind of action. Implementations are frozen dataclasses of JSON values."""

    kind: ClassVar[str]
    """Its name in JSON."""

    @property
    def size(self) -> int:
        """Entries of an action as the model sees it (A)."""
        ...

    def random(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return a uniformly random action ``[A]``."""
        ...

    def explore(self, action: Tensor, std: float, generator: Generator) -> Tensor:
        """Return actions ``[B, A]`` with exploration noise."""
        ...

    def bounds(self, device: torch.device) -> Bounds:
        """Return what the planner searches in."""
        ...

    def to_native(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return an action in the units of the actuators."""
        ...


@dataclass(frozen=True)
class Box:
    """Continuous actions. The agent's actions are in [-1, 1], the actuators' in [low, high]."""

    kind: ClassVar[str] = "box"
    low: tuple[float, ...]
    """Smallest native value of each entry."""
    high: tuple[float, ...]
    """Largest native value of each entry."""

    def __post_init__(self) -> None:
        if not self.low or len(self.low) != len(self.high):
            raise ConfigError(
                f"a box of actions needs as many low as high values, at least one, got "
                f"{len(self.low)} and {len(self.high)}."
            )
        for low, high in zip(self.low, self.high, strict=True):
            if not -math.inf < low < high < math.inf:
                raise ConfigError(
                    f"a box of actions needs finite bounds with low < high, got {low} and {high}."
                )

    @property
    def size(self) -> int:
        """Entries of an action (A)."""
        return len(self.low)

    def random(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return an action that is uniform in [-1, 1]^A."""
        return rng.uniform(-1, 1, self.size).astype(np.float32)

    def explore(self, action: Tensor, std: float, generator: Generator) -> Tensor:
        """Add Gaussian noise and clip to [-1, 1]."""
        noise = torch.randn(action.shape, generator=generator, device=action.device)
        return (action + std * noise).clamp(-1, 1)

    def bounds(self, device: torch.device) -> Bounds:
        """Return [-1, 1]^A."""
        return Bounds.symmetric(self.size).to(device)

    def to_native(self, action: NDArray[Any]) -> NDArray[np.float64]:
        """Map [-1, 1]^A linearly to [low, high]; actions beyond are clipped."""
        low, high = np.array(self.low), np.array(self.high)
        unit = (np.clip(np.asarray(action, np.float64), -1, 1) + 1) / 2
        return low + unit * (high - low)


TAKEN_NAMES = frozenset({"reward", *dir(nn.ModuleDict())})
"""Names that an observation cannot have: the replay or PyTorch's module dict uses them."""

ACTION_SPACES: dict[str, type[Any]] = {Box.kind: Box}
"""Action spaces by kind, for JSON."""


@dataclass(frozen=True)
class Signature:
    """What an agent senses and how it acts."""

    observation: dict[str, Modality]
    """The observations by name."""
    action: ActionSpace

    def __post_init__(self) -> None:
        if not self.observation:
            raise ConfigError("an agent must observe something: name at least one observation.")
        for name in self.observation:
            if not name.isidentifier():
                raise ConfigError(
                    f"observation {name!r}: a name consists of letters, digits and underscores."
                )
            if name in TAKEN_NAMES:
                raise ConfigError(
                    f"observation {name!r}: this name is used otherwise; choose another one, as in "
                    f"--env.observation my_{name}={name}."
                )

    def prepare(self, raw: Mapping[str, Any]) -> dict[str, NDArray[np.generic]]:
        """Return a raw observation as the agent stores it and learns from it.

        ``raw`` holds a value for each name; other entries are ignored. Resizing, blurring and the
        selection of sensors happen here, so they travel with the agent.
        """
        if not isinstance(raw, Mapping):
            raise ObservationError(
                f"observation: expected a dict with the keys {', '.join(self.observation)}, got a "
                f"{type(raw).__name__}."
            )
        prepared = {}
        for name, modality in self.observation.items():
            if name not in raw:
                raise ObservationError(
                    f"observation: {name!r} is missing; there are {', '.join(raw) or 'no keys'}."
                )
            try:
                prepared[name] = modality.prepare(raw[name])
            except ValueError as error:
                raise ObservationError(f"observation {name!r}: {error}.") from error
        return prepared

    def vector_sizes(self) -> dict[str, int]:
        """Return the sizes of the observations that are vectors, by name."""
        shapes = {name: modality.shape for name, modality in self.observation.items()}
        return {name: shape[0] for name, shape in shapes.items() if len(shape) == 1}

    def to_json(self) -> str:
        """Return the signature as JSON text."""
        data = {
            "observation": {name: _plain(part) for name, part in self.observation.items()},
            "action": _plain(self.action),
        }
        return json.dumps(data, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Signature:
        """Read a signature. It names kinds, never code: a kind must be registered before."""
        try:
            data = json.loads(text)
            parts, action = dict(data["observation"]), dict(data["action"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"not a signature: {error!r}.") from error
        return Signature(
            {str(name): _built(MODALITIES, "modality", part) for name, part in parts.items()},
            _built(ACTION_SPACES, "action space", action),
        )


def _plain(part: Any) -> dict[str, Any]:
    return {"kind": part.kind, **dataclasses.asdict(part)}


def _built(registry: Mapping[str, type[Any]], what: str, data: Any) -> Any:
    """Return the part that ``data`` describes."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise ConfigError(f"{what}: expected a table with a kind, got {data!r}.")
    kind = data["kind"]
    if kind not in registry:
        raise ConfigError(
            f"unknown {what} {kind!r}{nearest(kind, registry)} There are {', '.join(registry)}. "
            f"{IMPORT_FIRST}"
        )
    values = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in data.items()
        if key != "kind"
    }
    try:
        return registry[kind](**values)
    except TypeError as error:
        raise ConfigError(f"{what} {kind!r}: {error}.") from error
