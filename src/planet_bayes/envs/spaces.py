"""Bring any supported environment to one action space and one of three observation spaces."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import (
    AddRenderObservation,
    FlattenObservation,
    RescaleAction,
    ResizeObservation,
    TransformAction,
    TransformObservation,
)
from numpy.typing import NDArray

from planet_bayes.errors import EnvError

AnyEnv = gymnasium.Env[Any, Any]


def unit_actions(env: AnyEnv, task: str) -> AnyEnv:
    """Return ``env`` with actions in [-1, 1]^A, float32; actions beyond are clipped."""
    native = env.action_space
    _check_actions(native, task)
    assert isinstance(native, spaces.Box)
    low, high = native.low, native.high

    def to_native(action: NDArray[np.float32]) -> NDArray[Any]:
        # Clipped again because rescaling in float32 may overshoot a bound by its last bit.
        return np.clip(action.reshape(native.shape), low, high).astype(native.dtype)

    def clip(action: Any) -> NDArray[np.float32]:
        given = np.asarray(action, np.float32)
        if given.shape != shape or not np.isfinite(given).all():
            raise EnvError(
                f"{task}: expected an action of {shape[0]} finite numbers, got {action!r}."
            )
        return np.clip(given, -1.0, 1.0)

    # Cast by hand: a Box that has to lower the precision of its bounds warns about it.
    flat = spaces.Box(low.ravel().astype(np.float32), high.ravel().astype(np.float32))
    shape = flat.shape
    ones = np.ones(shape, np.float32)
    rescaled: AnyEnv = RescaleAction(TransformAction(env, to_native, flat), -ones, ones)
    # Gymnasium's ClipAction declares unbounded actions; ours are bounded, and say so.
    return TransformAction(rescaled, clip, spaces.Box(-ones, ones))


def _check_actions(space: spaces.Space[Any], task: str) -> None:
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise EnvError(
            f"{task} has the action space {space}; only continuous actions are supported, "
            "a gymnasium.spaces.Box of floats. Wrap the environment so that it takes such a Box."
        )
    if int(np.prod(space.shape)) == 0:
        raise EnvError(f"{task} has the action space {space}, which has no entries to act with.")
    endless = ~(np.isfinite(space.low) & np.isfinite(space.high))
    if endless.any():
        raise EnvError(
            f"{task} has an action space without finite bounds at the (flattened) entries "
            f"{np.flatnonzero(endless).tolist()}: {space}. Wrap the environment so that its "
            "action_space has finite low and high; the planner searches between them."
        )
    if (space.low >= space.high).any():
        raise EnvError(
            f"{task} has an action space whose low equals its high at the (flattened) entries "
            f"{np.flatnonzero(space.low >= space.high).tolist()}: {space}. Leave them out."
        )


def body_sensors(env: AnyEnv, *, speed: int | None, winding: int | None) -> AnyEnv:
    """Return a suite's environment whose observation is a body's sensors.

    Of the velocities only the entry ``speed`` is left, or none; the entry ``winding`` of the
    positions, an angle that grows with every turn, is given as its cosine and sine.
    """

    def sense(observation: dict[str, Any]) -> dict[str, Any]:
        seen = {key: value for key, value in observation.items() if key != "velocity"}
        if winding is not None:
            before, angle, after = np.split(seen["position"], [winding, winding + 1])
            seen["position"] = np.concatenate([before, np.cos(angle), np.sin(angle), after])
        if speed is not None:
            seen["speed"] = observation["velocity"][speed : speed + 1]
        return seen

    native = env.observation_space
    assert isinstance(native, spaces.Dict)
    example = {key: np.zeros_like(box.sample()) for key, box in native.spaces.items()}
    boxes: dict[str, spaces.Space[Any]] = {
        key: spaces.Box(-np.inf, np.inf, np.shape(value), np.float64)
        for key, value in sense(example).items()
    }
    return TransformObservation(env, sense, spaces.Dict(boxes, sort_keys=False))


def vector_observations(env: AnyEnv, task: str, *, entries: tuple[int, ...] = ()) -> AnyEnv:
    """Return ``env`` with its observation as one float32 vector, or some ``entries`` of it."""
    if not env.observation_space.is_np_flattenable:
        raise EnvError(
            f"{task} has the observation space {env.observation_space}, which has no fixed size. "
            "Wrap the environment so that its observation is a Box or a Dict of them."
        )
    env = FlattenObservation(env)
    native = env.observation_space
    assert isinstance(native, spaces.Box)
    size = native.shape[0]
    if size == 0:
        raise EnvError(f"{task} has an observation without entries; there is nothing to see.")
    beyond = [index for index in entries if not 0 <= index < size]
    if beyond:
        raise EnvError(
            f"{task}: sensors names {beyond}, but its flattened observation has {size} entries: "
            f"choose from 0 to {size - 1}."
        )
    chosen = np.array(entries if entries else range(size), np.int64)
    with np.errstate(over="ignore"):  # a bound beyond float32 is no bound
        low, high = native.low.astype(np.float32)[chosen], native.high.astype(np.float32)[chosen]

    def select(observation: NDArray[Any]) -> NDArray[np.float32]:
        return observation[chosen].astype(np.float32)

    return TransformObservation(env, select, spaces.Box(low, high))


def pixel_observations(env: AnyEnv, task: str, size: int) -> AnyEnv:
    """Return ``env`` with an image as observation: its own if it is one, else its rendering.

    Images of another shape are resized (and squeezed if they are not square).
    """
    if _is_image(env.observation_space):
        shape = env.observation_space.shape
        # The resizing wrapper insists on 0 and 255 as bounds, whatever the image uses.
        env = TransformObservation(env, np.asarray, spaces.Box(0, 255, shape, np.uint8))
        return ResizeObservation(env, (size, size))
    if env.render_mode != "rgb_array":
        modes = env.metadata.get("render_modes", [])
        raise EnvError(
            f"{task} cannot give pixels: its observation space is {env.observation_space} and its "
            f"render_mode is {env.render_mode!r} (it lists {modes}). Give it render_mode "
            "'rgb_array' (a function of yours receives it if it takes a render_mode argument), "
            "let it observe an image, or use observation 'state' or 'sensors'."
        )
    env = AddRenderObservation(env, render_only=True)
    if env.observation_space.shape == (size, size, 3):
        return env
    return ResizeObservation(env, (size, size))


def blurred(env: AnyEnv, side: int) -> AnyEnv:
    """Return ``env`` with each pixel of its images the mean of a square of ``side`` pixels.

    Beyond the image's border its outermost pixels go on.
    """
    if side == 1:
        return env
    import cv2  # late: a quarter of a second, and sensors need none of it

    def blur(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return cv2.blur(image, (side, side), borderType=cv2.BORDER_REPLICATE).astype(np.uint8)

    return TransformObservation(env, blur, env.observation_space)


def _is_image(space: spaces.Space[Any]) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and space.shape[-1] == 3
    )
