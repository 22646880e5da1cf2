"""Actions in [-1, 1] for every supported environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import RescaleAction, TransformAction
from numpy.typing import NDArray

from planet_bayes.errors import EnvError

AnyEnv = gymnasium.Env[Any, Any]


def unit_actions(env: AnyEnv, task: str) -> AnyEnv:
    """Return ``env`` with float32 actions in [-1, 1]^A. Actions outside are clipped."""
    native = env.action_space
    _check_actions(native, task)
    assert isinstance(native, spaces.Box)
    low, high = native.low, native.high

    def to_native(action: NDArray[np.float32]) -> NDArray[Any]:
        # Clipped again: rescaling in float32 may exceed a bound by the last bit.
        return np.clip(action.reshape(native.shape), low, high).astype(native.dtype)

    def clip(action: Any) -> NDArray[np.float32]:
        given = np.asarray(action, np.float32)
        if given.shape != shape or not np.isfinite(given).all():
            raise EnvError(
                f"{task}: expected an action of {shape[0]} finite numbers, got {action!r}."
            )
        return np.clip(given, -1.0, 1.0)

    # Cast here, because a Box warns if it has to lower the precision of its bounds.
    flat = spaces.Box(low.ravel().astype(np.float32), high.ravel().astype(np.float32))
    shape = flat.shape
    ones = np.ones(shape, np.float32)
    rescaled: AnyEnv = RescaleAction(TransformAction(env, to_native, flat), -ones, ones)
    # Gymnasium's ClipAction would declare unbounded actions.
    return TransformAction(rescaled, clip, spaces.Box(-ones, ones))


def _check_actions(space: spaces.Space[Any], task: str) -> None:
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise EnvError(
            f"{task} has the action space {space}; only continuous actions are supported, "
            "a gymnasium.spaces.Box of floats. Wrap the environment so that it takes such a Box."
        )
    if int(np.prod(space.shape)) == 0:
        raise EnvError(f"{task} has the action space {space}, which has no entries.")
    unbounded = ~(np.isfinite(space.low) & np.isfinite(space.high))
    if unbounded.any():
        raise EnvError(
            f"{task} has an action space without finite bounds at the (flattened) entries "
            f"{np.flatnonzero(unbounded).tolist()}: {space}. Wrap the environment so that its "
            "action_space has finite low and high; the planner searches between them."
        )
    if (space.low >= space.high).any():
        raise EnvError(
            f"{task} has an action space whose low equals its high at the (flattened) entries "
            f"{np.flatnonzero(space.low >= space.high).tolist()}: {space}. Leave them out."
        )
