"""What happens on an alarm: the agent's actions, or those of a controller that takes over.

A `Guard` is used like the agent that it guards. It never hides the alarm (``carry.confidence``).
It never stops the agent either: the agent goes on filtering and planning, so that it can take
control back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from planet_bayes.agent import Agent, Carry, Raw
from planet_bayes.confidence.monitor import Confidence
from planet_bayes.errors import ConfigError
from planet_bayes.planner import Diagnostics

Action = NDArray[np.float32]

RELEASE_STEPS = 20
"""Default number of steps in a row without an alarm after which the agent takes control back."""


@dataclass(frozen=True)
class Takeover:
    """What a fallback controller sees of one environment, at one step."""

    environment: int
    """Its index, from 0 to B - 1."""
    steps: int
    """Steps since it took over. At 0 a controller with a state of its own resets it."""
    observation: Raw
    """The raw observation by name."""
    last: Action
    """The last action that was executed, ``[A]``; zeros at an episode's start."""
    proposed: Action
    """What the agent would do, ``[A]``."""


Fallback = Callable[[Takeover], Action]
"""Returns an action ``[A]`` in [-1, 1]."""


def hold(takeover: Takeover) -> Action:
    """Repeat the last action before the alarm."""
    return takeover.last


def stop(takeover: Takeover) -> Action:
    """Return the action 0: the middle of the actuators' range."""
    return np.zeros_like(takeover.last)


@dataclass(frozen=True)
class GuardedCarry:
    """The memory of a guarded agent. A new episode begins with a new one."""

    agent: Carry
    quiet: NDArray[np.int64]
    """Steps since the last alarm in each of B environments, ``[B]``."""
    taken: NDArray[np.int64]
    """Steps that the fallback has controlled without a break, ``[B]``; 0: the agent controls."""

    @property
    def confidence(self) -> Confidence | None:
        """How sure the agent is; None: it has not been calibrated."""
        return self.agent.confidence

    @property
    def taken_over(self) -> NDArray[np.bool_]:
        """Whether the fallback chose the last action, ``[B]``."""
        return self.taken > 0


class Guard:
    """An agent and what takes over on an alarm, for B environments at once.

    The fallback takes over at the step of an alarm. It keeps control until there have been
    ``release_steps`` steps in a row without one. While the system stays changed, the alarm comes
    back and so does the fallback.

    Args:
        agent: The agent. It must be calibrated.
        fallback: Chooses actions after an alarm: `hold`, `stop` or a function of yours. None: the
            agent stays in control.
        log: Called with the index of an environment and the confidence when an alarm begins there.
        release_steps: Steps without an alarm until the agent takes control back. None: it does not
            before the next episode.
    """

    def __init__(
        self,
        agent: Agent,
        fallback: Fallback | None = None,
        log: Callable[[int, Confidence], None] | None = None,
        release_steps: int | None = RELEASE_STEPS,
    ) -> None:
        if not hasattr(agent, "monitor"):
            raise ConfigError(
                f"a guard needs an agent, such as load_run(...).agent, got {type(agent).__name__}."
            )
        for name, function in (("fallback", fallback), ("log", log)):
            if function is not None and not callable(function):
                raise ConfigError(f"{name} must be a function or None, got {function!r}.")
        if agent.monitor is None or agent.monitor.calibration is None:
            raise ConfigError(
                "a guard needs an agent that has been calibrated, or no alarm ever comes: run "
                "`planet-bayes calibrate` first."
            )
        if release_steps is not None and release_steps < 1:
            raise ConfigError(f"release_steps must be at least 1 or None, got {release_steps}.")
        self.agent, self.fallback = agent, fallback
        self.log, self.release_steps = log, release_steps

    def initial(self, batch_size: int = 1) -> GuardedCarry:
        """Return the memory that an episode starts with."""
        zero = np.zeros(batch_size, np.int64)
        return GuardedCarry(self.agent.initial(batch_size), zero, zero)

    def act(
        self,
        carry: GuardedCarry,
        observations: Sequence[Raw],
        generator: Generator,
        time_budget: float | None = None,
        rewards: Sequence[float] | None = None,
    ) -> tuple[Action, GuardedCarry, Diagnostics]:
        """Return the next action in each of B environments, and the new memory.

        Args:
            carry: The memory that the last call returned, or `initial` at an episode's start.
            observations: B raw observations, each a dict by name.
            generator: Source of all randomness.
            time_budget: The control period in seconds, for the agent.
            rewards: What the last actions earned in each environment, if known.
        """
        last = carry.agent.action.numpy(force=True)
        actions, after, diagnostics = self.agent.act(
            carry.agent, observations, generator, time_budget=time_budget, rewards=rewards
        )
        sure = after.confidence
        assert sure is not None
        quiet = np.where(sure.alarm, 0, carry.quiet + 1)
        if self.log is not None:
            before = carry.confidence
            begins = sure.alarm if before is None else sure.alarm & ~before.alarm
            for index in np.flatnonzero(begins).tolist():
                self.log(index, sure)
        if self.fallback is None:
            return actions, GuardedCarry(after, quiet, carry.taken), diagnostics
        limit = np.inf if self.release_steps is None else self.release_steps
        taking = sure.alarm | ((carry.taken > 0) & (quiet < limit))
        chosen = actions.copy()
        for index in np.flatnonzero(taking).tolist():
            seen = Takeover(
                index,
                int(carry.taken[index]),
                observations[index],
                last[index],
                actions[index],
            )
            chosen[index] = _checked(self.fallback(seen), actions.shape[1])
        if taking.any():
            after = dataclasses.replace(
                after,
                action=torch.tensor(chosen, device=after.action.device),
                memory=None if after.memory is None else after.memory.without(taking),
            )
        return chosen, GuardedCarry(after, quiet, np.where(taking, carry.taken + 1, 0)), diagnostics


def _checked(action: Action, size: int) -> Action:
    found = np.asarray(action, np.float32)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise ConfigError(
            f"the fallback must return {size} finite numbers, of which those beyond [-1, 1] are "
            f"clipped, got {found.tolist()}."
        )
    return found.clip(-1, 1)
