"""The agent: filter the belief, plan in it, act. The only bridge between model and planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.confidence.calibration import Calibration
from planet_bayes.confidence.monitor import Confidence, Memory, Monitor
from planet_bayes.errors import ConfigError, ObservationError
from planet_bayes.models import BeliefFilter, Normal, Particles, WorldModel
from planet_bayes.models.imagination import Imagination
from planet_bayes.planner import (
    Deadline,
    Diagnostics,
    PlannerConfig,
    Proposal,
    TrajectoryModel,
    plan,
)
from planet_bayes.spaces import Signature
from planet_bayes.types import Belief

Raw = Mapping[str, Any]
"""A raw observation by name: camera frames of any size, sensor vectors."""
Prepared = Mapping[str, NDArray[np.generic]]
"""The same after `Signature.prepare`."""


@dataclass(frozen=True)
class Carry:
    """The agent's memory from step to step. A new episode begins with a new one."""

    belief: Belief
    """Every particle's belief for each of B environments, ``[P, B, ...]``: the planner's start."""
    action: Tensor
    """The last action, ``[B, A]``."""
    proposal: Proposal | None
    """The last plan, for the warm start."""
    particles: Particles | None = None
    """The weighted latents that ``belief`` was taken from, with a filter that weighs."""
    memory: Memory | None = None
    """What the monitor remembers; None: the agent has no monitor."""

    @property
    def confidence(self) -> Confidence | None:
        """How sure the agent was at this step; None: it has not been calibrated."""
        return None if self.memory is None else self.memory.confidence


class Agent:
    """PlaNet-Bayes' controller (Algorithms 2 and 3), for B environments at once.

    Actions are in [-1, 1]; ``signature.action.to_native`` converts them.

    Args:
        model: The world model to plan in.
        signature: What the agent senses and how it acts.
        planner: The planner's settings.
        belief_filter: Weighs the particles (Eqs. 12 and 13). None: the inference model draws them
            and all weights are equal (Eq. 16).
        monitor: Compares what the agent expects with what happens. It changes no action.
    """

    def __init__(
        self,
        model: WorldModel,
        signature: Signature,
        planner: PlannerConfig,
        belief_filter: BeliefFilter | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        if monitor is not None and belief_filter is not None:
            raise ConfigError(
                "a monitor compares the inference model's posterior with the prior, and an agent "
                "with agent.belief importance or particle_filter has no such posterior."
            )
        known = None if monitor is None else monitor.calibration
        if known is not None and known.horizon != planner.horizon:
            raise ConfigError(
                f"the calibration is for {known.horizon} steps ahead and the planner's horizon is "
                f"{planner.horizon}, about which it says nothing: calibrate this agent."
            )
        self.model, self.signature, self.planner = model, signature, planner
        self.belief_filter, self.monitor = belief_filter, monitor
        self.device = model.device
        self.bounds = signature.action.bounds(self.device)

    def watched(self, calibration: Calibration | None = None) -> Agent:
        """Return the same agent with a monitor (see `planet_bayes.confidence.monitor`).

        Without a calibration the monitor remembers what the agent predicts and does not judge it.
        """
        monitor = Monitor(self.model, self.signature.vector_sizes(), calibration)
        return Agent(self.model, self.signature, self.planner, self.belief_filter, monitor)

    def initial(self, batch_size: int = 1) -> Carry:
        """Return the memory that an episode starts with."""
        action = torch.zeros(batch_size, self.signature.action.size, device=self.device)
        memory = None if self.monitor is None else Memory()
        if self.belief_filter is None:
            return Carry(self.model.initial(batch_size), action, None, memory=memory)
        particles = self.belief_filter.initial(batch_size)
        return Carry(particles.start, action, None, particles)

    def act(
        self,
        carry: Carry,
        observations: Sequence[Raw],
        generator: Generator,
        exploration: float = 0.0,
        time_budget: float | None = None,
        rewards: Sequence[float] | None = None,
    ) -> tuple[NDArray[np.float32], Carry, Diagnostics]:
        """Return the next action in each of B environments, and the new memory.

        The new memory's ``confidence`` says how sure the agent is, if it has been calibrated.

        Args:
            carry: The memory that the last call returned, or `initial` at an episode's start.
            observations: B raw observations, each a dict by name.
            generator: Source of all randomness.
            exploration: Std of the noise added to the action; 0: the planner's action.
            time_budget: The control period in seconds, from entry. The planner gets what
                filtering leaves of it, and does at least one iteration.
            rewards: What the last actions earned in each environment. Only the bands of rewards
                and returns need it, to follow a change. None: not known, and at an episode's start.

        Returns:
            Actions ``[B, A]`` in [-1, 1], the memory for the next call, and the planner's
            diagnostics.
        """
        deadline = None if time_budget is None else Deadline(time_budget)
        if isinstance(observations, Mapping):
            raise ObservationError(
                "observations: expected a list with a dict for each environment, got one dict; "
                "write [observation]."
            )
        prepared = [self.signature.prepare(raw) for raw in observations]
        return self.act_on_prepared(carry, prepared, generator, exploration, deadline, rewards)

    @torch.inference_mode()
    def act_on_prepared(
        self,
        carry: Carry,
        observations: Sequence[Prepared],
        generator: Generator,
        exploration: float = 0.0,
        deadline: Deadline | None = None,
        rewards: Sequence[float] | None = None,
        imagination: TrajectoryModel[Belief] | None = None,
    ) -> tuple[NDArray[np.float32], Carry, Diagnostics]:
        """Do what `act` does, for observations that the signature has prepared already.

        ``imagination`` is the planner's model; None: that of the world model.
        """
        batch_size = len(carry.action)
        if len(observations) != batch_size:
            raise ObservationError(
                f"observations: expected {batch_size}, one for each environment of the carry, got "
                f"{len(observations)}."
            )
        stacked = {
            name: torch.as_tensor(np.stack([one[name] for one in observations])).to(self.device)
            for name in self.signature.observation
        }
        belief, posterior, particles = self._filtered(carry, stacked, generator)
        own: Imagination | None = None
        if imagination is None:
            imagination = own = self.model.imagination()
        result = plan(
            imagination,
            belief,
            self.bounds,
            self.planner,
            generator,
            previous=carry.proposal,
            batch_size=batch_size,
            time_budget=None if deadline is None else deadline.left(),
            particle_weights=None if particles is None else particles.member_weights,
        )
        action = result.action
        if exploration > 0:
            action = self.signature.action.explore(action, exploration, generator)
        memory = None
        if self.monitor is not None:
            assert posterior is not None
            expected = planned_actions(result.proposal, action)
            memory = self.monitor.update(
                carry.memory or Memory(), belief, posterior, expected, stacked, rewards, own
            )
        new = Carry(belief, action, result.proposal, particles, memory)
        # A copy: the caller may scale it in place, and the next filter step needs it as it is.
        return action.numpy(force=True).copy(), new, result.diagnostics

    def _filtered(
        self, carry: Carry, observation: Mapping[str, Tensor], generator: Generator
    ) -> tuple[Belief, Normal | None, Particles | None]:
        """Return the belief to plan from, and the posterior or the particles that it is from."""
        if self.belief_filter is None:
            filtered = self.model.filter(carry.belief, carry.action, observation, generator)
            return *filtered, None
        assert carry.particles is not None, "the carry is of an agent without this filter"
        particles = self.belief_filter.update(carry.particles, carry.action, observation, generator)
        return particles.start, None, particles


def planned_actions(proposal: Proposal, action: Tensor) -> Tensor:
    """Return the sequence ``[B, H, A]`` that is expected to follow.

    It is the mode of the heaviest component, and begins with the action ``[B, A]`` that is
    executed.
    """
    heaviest = proposal.components().weight.argmax(-1)  # [B]
    modes = proposal.modes()  # [B, M, H, A]
    sequence = modes[torch.arange(len(modes), device=modes.device), heaviest].clone()
    sequence[:, 0] = action
    return sequence
