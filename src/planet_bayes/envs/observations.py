"""Raw observations by name, and the modalities that prepare them.

The environment returns what its sources give: frames as they are rendered, vectors as they are
measured. Resizing, blurring and the selection of sensors belong to the modalities, which travel
with the agent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from planet_bayes.envs.config import EnvConfig
from planet_bayes.envs.tasks import TaskSpec
from planet_bayes.errors import ConfigError, EnvError, nearest
from planet_bayes.models import MODALITIES, Image, Modality, Vector
from planet_bayes.spaces import Box, Signature

AnyEnv = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class _Source:
    """Where one observation comes from."""

    modality: Modality
    space: spaces.Space[Any]
    """Of the raw value."""
    keys: tuple[str, ...] = ()
    """Path into the native observation; empty: all of it."""
    rendered: bool = False
    """The value is the rendered frame."""


class NamedObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns raw observations as a dict by name.

    An image becomes an `Image`, anything else a `Vector`. An environment with an attribute
    ``modalities``, a dict by the keys of its observation, chooses other modalities for these.

    Args:
        env: The environment, with actions in [-1, 1].
        task: Its name, for error messages.
        spec: Its row in the table of tasks, if it has one.
        config: Sources of the observations.
        native: The space of native actions.
    """

    signature: Signature
    """How an agent prepares the observations, and the native range of its actions."""

    def __init__(
        self, env: AnyEnv, task: str, spec: TaskSpec | None, config: EnvConfig, native: spaces.Box
    ) -> None:
        super().__init__(env)
        self._sources = {
            name: _source(env, task, spec, config, source)
            for name, source in config.sources.items()
        }
        self.observation_space = spaces.Dict(
            {name: source.space for name, source in self._sources.items()}, sort_keys=False
        )
        self.signature = Signature(
            {name: source.modality for name, source in self._sources.items()},
            Box(tuple(native.low.ravel().tolist()), tuple(native.high.ravel().tolist())),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._named(observation), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._named(observation), reward, terminated, truncated, info

    def _named(self, observation: Any) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for name, source in self._sources.items():
            if source.rendered:
                named[name] = self.env.render()
                continue
            space, value = self.env.observation_space, observation
            for key in source.keys:
                assert isinstance(space, spaces.Dict)
                space, value = space[key], value[key]
            # Copies: an environment may reuse the memory of its observations.
            vector = isinstance(source.modality, Vector)
            named[name] = spaces.flatten(space, value) if vector else copy.deepcopy(value)
        return named


def _source(
    env: AnyEnv, task: str, spec: TaskSpec | None, config: EnvConfig, source: str
) -> _Source:
    native = env.observation_space
    if isinstance(native, spaces.Dict) and source in native.spaces:
        if source == "sensors" and config.sensors:
            raise ConfigError(
                f"env.sensors selects entries of the whole state, but {task} has an observation "
                "called sensors of its own, which is taken whole. Leave env.sensors empty."
            )
        if source in _own_modalities(env, task):
            return _Source(_own_modalities(env, task)[source], native[source], (source,))
        return _measured(native[source], f"{task}: {source}", config, (source,))
    if source == "pixels":
        return _pixels(env, task, config)
    if source not in ("sensors", "state"):
        keys = list(native.spaces) if isinstance(native, spaces.Dict) else []
        known = ["pixels", "sensors", "state", *keys]
        raise ConfigError(
            f"env.observation: {task} has no source {source!r}{nearest(source, known)} There are "
            f"{', '.join(known)}."
        )
    measured = _measured(native, task, config, (), flat=True)
    assert isinstance(measured.modality, Vector)
    if source == "state":
        return measured
    size = measured.modality.size
    beyond = [index for index in config.sensors if not 0 <= index < size]
    if beyond:
        raise EnvError(
            f"{task}: env.sensors names {beyond}, but its flattened observation has {size} "
            f"entries: choose from 0 to {size - 1}."
        )
    modality = Vector(size, config.sensors)
    if spec is not None and not config.sensors:
        modality = _body_sensors(native, size, spec)
    return _Source(modality, measured.space)


def _own_modalities(env: AnyEnv, task: str) -> Mapping[str, Modality]:
    """Return the modalities that the environment itself names for keys of its observation."""
    modalities = getattr(env.unwrapped, "modalities", {})
    for key, modality in modalities.items():
        if getattr(modality, "kind", None) not in MODALITIES:
            raise EnvError(
                f"{task}: its modality for {key!r} is {modality!r}, whose kind is not registered "
                "in planet_bayes.models.MODALITIES. Register it, so that a saved agent can be read."
            )
    return modalities


def _body_sensors(native: spaces.Space[Any], size: int, spec: TaskSpec) -> Vector:
    """Return the sensors of a suite task: all entries except velocities, then the forward speed.

    An angle without bounds is replaced by its cosine and sine.
    """
    assert isinstance(native, spaces.Dict)
    entries: list[int] = []
    angles: tuple[int, ...] = ()
    speed: tuple[int, ...] = ()
    first = 0
    for key, space in native.spaces.items():
        count = spaces.flatdim(space)
        if key not in spec.velocities:
            entries += range(first, first + count)
        elif key == spec.velocities[0] and spec.speed_entry is not None:
            speed = (first + spec.speed_entry,)
        if key == "position" and spec.angle_entry is not None:
            angles = (first + spec.angle_entry,)
        first += count
    return Vector(size, (*entries, *speed), angles)


def _measured(
    space: spaces.Space[Any],
    what: str,
    config: EnvConfig,
    keys: tuple[str, ...],
    flat: bool = False,
) -> _Source:
    if _is_image(space) and not flat:
        return _Source(Image(config.image_size, config.blur), space, keys)
    if not space.is_np_flattenable:
        raise EnvError(
            f"{what} has the observation space {space}, which has no fixed size. Wrap the "
            "environment so that its observation is a Box or a Dict of them."
        )
    box = spaces.flatten_space(space)
    assert isinstance(box, spaces.Box)
    if box.shape[0] == 0:
        raise EnvError(f"{what} has an observation without entries.")
    return _Source(Vector(box.shape[0]), box, keys)


def _pixels(env: AnyEnv, task: str, config: EnvConfig) -> _Source:
    """Return the environment's own observation if it is an image, else its rendered frame."""
    modality = Image(config.image_size, config.blur)
    if _is_image(env.observation_space):
        return _Source(modality, env.observation_space)
    if env.render_mode != "rgb_array":
        modes = env.metadata.get("render_modes", [])
        raise EnvError(
            f"{task} cannot give pixels: its observation space is {env.observation_space} and its "
            f"render_mode is {env.render_mode!r} (it lists {modes}). Give it render_mode "
            "'rgb_array' (a function of yours receives it if it takes a render_mode argument), "
            "let it observe an image, or use observation 'state' or 'sensors'."
        )
    env.reset(seed=0)
    frame: Any = env.render()
    return _Source(modality, spaces.Box(0, 255, frame.shape, np.uint8), rendered=True)


def _is_image(space: spaces.Space[Any]) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and space.shape[-1] == 3
    )
