"""The simulator as the planner's model, faster: MuJoCo's own loop over steps, for three tasks.

`SimulatorModel` of `examples/plan_in_the_simulator.py` works for all tasks of the suite and spends
most of its time in Python. `RolloutModel` gives exactly the same rewards in less than half the
time. A test compares them bit by bit.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.envs import TASKS

# The file of the example is no module of the package.
EXAMPLE = runpy.run_path(
    str(Path(__file__).parent.parent / "examples" / "plan_in_the_simulator.py")
)

Array = NDArray[np.float64]


def running(model: Any, positions: Array, sensors: Array) -> Array:
    """Return the reward of `cheetah_run`: speed / 10, without an upper limit."""
    return np.maximum(0.0, sensors[..., model.sensor("torso_subtreelinvel").adr[0]] / 10)


def spinning(model: Any, positions: Array, sensors: Array) -> Array:
    """Return the reward of `finger_spin`: 1 if the body spins fast enough."""
    return (sensors[..., model.sensor("hinge_velocity").adr[0]] <= -15.0).astype(np.float64)


def caught(model: Any, positions: Array, sensors: Array) -> Array:
    """Return the reward of `cup_catch`: 1 if the ball is inside the cup; all joints slide."""
    inside = np.ones(positions.shape[:-1], np.bool_)
    target, radius = model.site("target"), model.geom("ball").size[0]
    for axis, letter in ((0, "x"), (2, "z")):
        cup, ball = (
            model.body(body).pos[axis] + positions[..., model.joint(f"{body}_{letter}").qposadr[0]]
            for body in ("cup", "ball")
        )
        inside &= np.abs(cup + target.pos[axis] - ball) < target.size[axis] - radius
    return inside.astype(np.float64)


REWARDS: dict[str, Callable[[Any, Array, Array], Array]] = {
    "cheetah_run": running,
    "finger_spin": spinning,
    "cup_catch": caught,
}
"""From positions ``[..., Q]`` and sensors ``[..., S]`` to rewards, by task."""


class RolloutModel:
    """A task's own physics as the planner's model; its state is the environment itself."""

    def __init__(self, task: str) -> None:
        self.action_repeat = TASKS[task].action_repeat
        self.reward = REWARDS[task]
        self.slow = EXAMPLE["SimulatorModel"](self.action_repeat)

    def imagine(
        self, state: gymnasium.Env[Any, Any], actions: Tensor, generator: Generator
    ) -> Tensor:
        """Map actions ``[1, N, H, A]`` to rewards ``[1, N, 1, H]``. ``state`` does not change."""
        # Late, because MuJoCo reads the OpenGL backend at its import, and make_env chooses it.
        import mujoco
        from mujoco import rollout

        native: Any = state.unwrapped
        model, data = native.physics.model.ptr, native.physics.data.ptr
        substeps = round(native.control_timestep() / native.physics.timestep())
        _, num, horizon, _ = actions.shape
        wrapped = actions[0].flatten(0, 1).numpy()  # [N * H, A]
        controls = np.array([EXAMPLE["native_control"](state, action) for action in wrapped])
        controls = controls.reshape(num, horizon, -1).astype(np.float64)
        controls = np.repeat(controls, self.action_repeat * substeps, axis=1)  # [N, T, A]
        # The sensors of a state are computed at the step after it, hence one step more.
        controls = np.concatenate([controls, controls[:, -1:]], 1)  # [N, T + 1, A]

        kind = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, positions, velocities, activations
        first = np.empty(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, data, first, kind)
        states, sensors = rollout.rollout(
            model,
            mujoco.MjData(model),
            np.tile(first, (num, 1)),
            controls,
            # The solver starts from the last accelerations.
            initial_warmstart=np.tile(data.qacc_warmstart, (num, 1)),
        )
        if not (np.isfinite(states).all() and (np.diff(states[..., 0]) > 0).all()):
            # Time stands still after a simulation has diverged: let the suite judge.
            return self.slow.imagine(state, actions, generator)
        rewards = self.reward(model, states[:, :-1, 1 : 1 + model.nq], sensors[:, 1:])
        rewards = rewards[:, substeps - 1 :: substeps].reshape(num, horizon, self.action_repeat)
        # One after the other, as an environment adds them: rounding is then the same.
        total = sum(rewards[..., index] for index in range(self.action_repeat))
        return torch.from_numpy(total)[None, :, None]  # [1, N, 1, H]
