"""The agent: filter the belief, plan in it, act. The only bridge between model and planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.errors import ObservationError
from planet_bayes.models import WorldModel
from planet_bayes.planner import Deadline, Diagnostics, PlannerConfig, Proposal, plan
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
    """Every particle's belief for each of B environments, ``[P, B, ...]``."""
    action: Tensor
    """The last action, ``[B, A]``."""
    proposal: Proposal | None
    """The last plan, for the warm start."""


class Agent:
    """PlaNet-Bayes' controller (Algorithms 2 and 3), for B environments at once.

    Actions are in [-1, 1]; ``signature.action.to_native`` converts them.

    Args:
        model: The world model to plan in.
        signature: What the agent senses and how it acts.
        planner: The planner's settings.
    """

    def __init__(self, model: WorldModel, signature: Signature, planner: PlannerConfig) -> None:
        self.model, self.signature, self.planner = model, signature, planner
        self.device = model.device
        self.bounds = signature.action.bounds(self.device)

    def initial(self, batch_size: int = 1) -> Carry:
        """Return the memory that an episode starts with."""
        action = torch.zeros(batch_size, self.signature.action.size, device=self.device)
        return Carry(self.model.initial(batch_size), action, None)

    def act(
        self,
        carry: Carry,
        observations: Sequence[Raw],
        generator: Generator,
        exploration: float = 0.0,
        time_budget: float | None = None,
    ) -> tuple[NDArray[np.float32], Carry, Diagnostics]:
        """Return the next action in each of B environments, and the new memory.

        Args:
            carry: The memory that the last call returned, or `initial` at an episode's start.
            observations: B raw observations, each a dict by name.
            generator: Source of all randomness.
            exploration: Std of the noise added to the action; 0: the planner's action.
            time_budget: The control period in seconds, from entry. The planner gets what
                filtering leaves of it, and does at least one iteration.

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
        return self.act_on_prepared(carry, prepared, generator, exploration, deadline)

    @torch.inference_mode()
    def act_on_prepared(
        self,
        carry: Carry,
        observations: Sequence[Prepared],
        generator: Generator,
        exploration: float = 0.0,
        deadline: Deadline | None = None,
    ) -> tuple[NDArray[np.float32], Carry, Diagnostics]:
        """Do what `act` does, for observations that the signature has prepared already."""
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
        belief = self.model.filter(carry.belief, carry.action, stacked, generator)
        result = plan(
            self.model.imagination(),
            belief,
            self.bounds,
            self.planner,
            generator,
            previous=carry.proposal,
            batch_size=batch_size,
            time_budget=None if deadline is None else deadline.left(),
        )
        action = result.action
        if exploration > 0:
            action = self.signature.action.explore(action, exploration, generator)
        return action.cpu().numpy(), Carry(belief, action, result.proposal), result.diagnostics
