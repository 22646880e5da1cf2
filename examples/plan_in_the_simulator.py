"""Plan in the simulator itself: the return of this planner with a perfect model.

If an agent with a learned model returns less, the model is the limit; else the planner is. The
defaults are those of `quick`, except that all iterations have the same number of candidates.
Run:  python examples/plan_in_the_simulator.py --task cartpole_swingup --steps 20
An action takes seconds, since every candidate is simulated. Without --steps, a whole episode.
"""

import copy
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from rich.progress import Progress, TaskID, TextColumn
from torch import Generator, Tensor

from planet_bayes.envs import TASKS, EnvConfig, Policy, make_env, random_return
from planet_bayes.planner import METHODS, Bounds, PlannerConfig, PlannerError, Proposal, plan
from planet_bayes.rng import integer_seed, torch_stream

AnyEnv = gymnasium.Env[Any, Any]


class SimulatorModel:
    """A task's own physics as the planner's model; its state is the environment itself.

    ``action_repeat`` is the environment's. The time limit is not imagined: rewards go on after
    an episode's end, as they do in a learned model.
    """

    def __init__(self, action_repeat: int) -> None:
        self.action_repeat = action_repeat

    def imagine(self, state: AnyEnv, actions: Tensor, generator: Generator) -> Tensor:
        """Map actions ``[1, N, H, A]`` to rewards ``[1, N, 1, H]``. ``state`` does not change.

        A candidate on which the simulation diverges gets NaN, which the planner rejects.
        """
        # Late, because MuJoCo reads the OpenGL backend at its import, and make_env chooses it.
        import mujoco
        from dm_control.rl.control import PhysicsError

        batch, num, horizon, _ = actions.shape
        if batch != 1:
            raise PlannerError(f"one environment is one problem: expected B = 1, got {batch}.")
        native: Any = state.unwrapped
        substeps = round(native.control_timestep() / native.physics.timestep())
        # An episode's own settings, like a target's place, are in the MuJoCo model, which the
        # copy shares, or in the task. Stepping writes to neither the model nor the real task.
        physics = native.physics.copy(share_model=True)
        physics.legacy_step = native.physics.legacy_step
        task = copy.deepcopy(native.task)
        rewards = np.full((num, horizon), np.nan)
        for candidate, sequence in enumerate(actions[0].numpy()):
            # All of the data, not positions and velocities alone: the solver starts from the last
            # accelerations, and a step of the suite from what the step before it has computed.
            mujoco.mj_copyData(physics.data.ptr, physics.model.ptr, native.physics.data.ptr)
            own_task = copy.copy(task)
            with suppress(PhysicsError):
                for step, action in enumerate(sequence):
                    control = native_control(state, action)
                    rewards[candidate, step] = self._act(own_task, physics, control, substeps)
        physics.free()
        return torch.from_numpy(rewards)[None, :, None]  # [1, N, 1, H]

    def _act(self, task: Any, physics: Any, control: NDArray[Any], substeps: int) -> float:
        """Return the reward of one action: the suite's own steps, without their observations."""
        total = 0.0
        for _ in range(self.action_repeat):
            task.before_step(control, physics)
            physics.step(substeps)
            task.after_step(physics)
            total += float(task.get_reward(physics))
        return total


def native_control(env: AnyEnv, action: NDArray[np.float32]) -> NDArray[Any]:
    """Return an action in [-1, 1] as the wrappers of ``env`` pass it to the simulator."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ActionWrapper):
            action = env.action(action)
        env = env.env
    return action


def control_episode(
    env: AnyEnv,
    model: SimulatorModel,
    config: PlannerConfig,
    generator: Generator,
    show: Callable[[float], None],
) -> float:
    """Plan and act from a fresh reset until the episode ends; return its return."""
    assert env.action_space.shape is not None
    bounds = Bounds.symmetric(env.action_space.shape[0])
    previous: Proposal | None = None
    total, ended = 0.0, False
    while not ended:
        result = plan(model, env, bounds, config, generator, previous=previous)
        previous = result.proposal
        _, reward, terminated, truncated, _ = env.step(result.action[0].numpy())
        total += float(reward)
        ended = terminated or truncated
        show(total)
    return total


@dataclass(frozen=True)
class Settings:
    """Control a task of the suite with its own simulator as the model."""

    task: str = "cartpole_swingup"
    """A named task with a simulator: all except toy_reach."""
    seed: int = 0
    """Determines the planning and the starts, which random and zero actions share."""
    episodes: int = 1
    """How many episodes."""
    steps: int = 0
    """Cut episodes after this many actions; 0: the task's own length."""
    method: Literal["paets", "cem", "portfolio"] = "paets"
    """The planner's method."""
    horizon: int = 15
    """Actions that are simulated ahead."""
    candidates: int = 60
    """Action sequences in each iteration."""
    iterations: int = 5
    """Rounds of sample, simulate, weigh, refit."""
    initial_std: float = 1.0
    """Std of the proposal at the start of each plan; actions are in [-1, 1]."""
    min_std: float = 0.05
    """Floor of the refitted std."""
    execute: Literal["mean", "sample", "best"] = "mean"
    """The action taken: the mean of the heaviest component, a sample, or the best candidate's."""
    warm_candidates: int = 5
    """Number of first candidates that are component means of the last plan."""
    keep_elites: int = 3
    """Number of best candidates that an iteration passes on to the next."""

    @property
    def planner(self) -> PlannerConfig:
        """The planner's settings."""
        return METHODS[self.method](
            horizon=self.horizon,
            num_trajectories=self.candidates,
            num_iterations=self.iterations,
            initial_std=self.initial_std,
            min_std=self.min_std,
            execute=self.execute,
            warm_candidates=self.warm_candidates,
            keep_elites=self.keep_elites,
        )


def main(settings: Settings) -> None:
    """Control the episodes and print each return beside those of random and zero actions."""
    spec = TASKS.get(settings.task)
    if spec is None or spec.domain == "toy":
        names = ", ".join(name for name, other in TASKS.items() if other.domain != "toy")
        raise SystemExit(f"{settings.task} has no simulator to plan in; there are {names}.")
    env_config = EnvConfig(observation=("state",), max_steps=settings.steps)
    length = -(-spec.simulator_steps // spec.action_repeat)
    length = min(length, settings.steps or length)
    policies: tuple[Policy, ...] = ("random", "zero")
    random, zero = (
        random_return(settings.task, env_config, settings.episodes, settings.seed, policy)
        for policy in policies
    )
    model = SimulatorModel(spec.action_repeat)
    reached = TextColumn("return {task.fields[reached]:.1f}")
    line = Progress(*Progress.get_default_columns(), reached)
    with closing(make_env(settings.task, env_config)) as env, line:
        for episode in range(settings.episodes):
            bar = line.add_task(f"episode {episode}", total=length, reached=0.0)

            def show(total: float, bar: TaskID = bar) -> None:
                line.update(bar, advance=1, reached=total)

            env.reset(seed=integer_seed(settings.seed, "baseline-env", episode))
            generator = torch_stream(settings.seed, "planner", episode)
            began = time.monotonic()
            total = control_episode(env, model, settings.planner, generator, show)
            line.remove_task(bar)
            line.console.print(
                f"{settings.task}, episode {episode}, {length} actions: "
                f"planned {total:.1f} in {(time.monotonic() - began) / 60:.1f} min, "
                f"random {random[episode]:.1f}, zero {zero[episode]:.1f}",
                soft_wrap=True,
            )


if __name__ == "__main__":
    main(tyro.cli(Settings))
