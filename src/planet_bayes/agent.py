"""The agent: filter the belief, plan in it, act. The only bridge between model and planner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.models import WorldModel
from planet_bayes.planner import Bounds, Deadline, Diagnostics, PlannerConfig, Proposal, plan
from planet_bayes.types import Belief


@dataclass(frozen=True)
class Carry:
    """What the agent remembers from step to step. A new episode begins with a new one."""

    belief: Belief
    """Every member's belief for each of B environments, ``[E, B, ...]``."""
    action: Tensor
    """The last action, ``[B, A]``."""
    plan: Proposal | None
    """The last plan, for the warm start."""


class Agent:
    """PlaNet-Bayes' controller (Algorithms 2 and 3), for B environments at once.

    Actions are in [-1, 1]; environments made by `planet_bayes.make_env` take them so.
    """

    def __init__(self, model: WorldModel, planner: PlannerConfig) -> None:
        self.model = model
        self.planner = planner
        self.device = model.rssm.input.weight.device
        self.bounds = Bounds.symmetric(model.num_actions).to(self.device)

    def initial(self, batch_size: int = 1) -> Carry:
        """Return the memory that an episode starts with."""
        action = torch.zeros(batch_size, self.model.num_actions, device=self.device)
        return Carry(self.model.rssm.initial(batch_size), action, None)

    @torch.inference_mode()
    def act(
        self,
        carry: Carry,
        observation: NDArray[np.generic] | Tensor,
        generator: Generator,
        exploration: float = 0.0,
        time_budget: float | None = None,
    ) -> tuple[NDArray[np.float32], Carry, Diagnostics]:
        """Return actions ``[B, A]`` for observations ``[B, ...]``, and the new memory.

        ``exploration`` is the std of Gaussian noise added to the action, as in PlaNet's
        collection; with 0 the planner's action is executed as it is. ``time_budget``, in
        seconds from entry, is the control period: the planner gets what filtering leaves of
        it, and does at least one iteration.
        """
        deadline = None if time_budget is None else Deadline(time_budget)
        seen = torch.as_tensor(observation, device=self.device)
        expected = (carry.action.shape[0], *self.model.observation_shape)
        if tuple(seen.shape) != expected:
            raise ValueError(
                f"observation: expected shape {expected} (B, ...), got {tuple(seen.shape)}."
            )
        if self.model.is_image and seen.dtype != torch.uint8:
            raise ValueError(f"observation: expected uint8 images, got {seen.dtype}.")
        if not self.model.is_image:
            seen = seen.float()
            if not bool(torch.isfinite(seen).all()):
                raise ValueError("observation: it has NaN or infinite entries.")
        belief = self.model.filter(carry.belief, carry.action, seen, generator)
        result = plan(
            self.model,
            belief,
            self.bounds,
            self.planner,
            generator,
            previous=carry.plan,
            batch_size=expected[0],
            time_budget=None if deadline is None else deadline.left(),
        )
        action = result.action
        if exploration > 0:
            noise = torch.randn(action.shape, generator=generator, device=self.device)
            action = (action + exploration * noise).clamp(-1, 1)
        return action.cpu().numpy(), Carry(belief, action, result.plan), result.diagnostics
