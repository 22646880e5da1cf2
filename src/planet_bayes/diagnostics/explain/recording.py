"""Follow an agent through an episode, and record what it believed and planned at every step.

The agent plays the episode, or filters one that was recorded. In the second case it does not act:
at each step it plans from its belief, and the belief then follows the action that was taken.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.agent import Agent, Prepared, planned_actions
from planet_bayes.confidence.calibration import RETURN
from planet_bayes.diagnostics.conditions import AnyEnv
from planet_bayes.planner import Diagnostics
from planet_bayes.planner._plans import LEAST_DISTANCE, LEAST_WEIGHT, component_distances
from planet_bayes.training.collect import Recorder
from planet_bayes.types import Belief, Episode

Array = NDArray[Any]

MAX_STEPS = 1000
"""Steps of an episode that are recorded. A page of more is too large for a browser."""


@dataclass(frozen=True)
class Moments:
    """What the agent believed and planned at each of T steps.

    Axes: T steps, P members, M components, H horizon, A action.
    """

    deter: Array
    """``[T, P, D]``."""
    stoch: Array
    """``[T, P, S]``."""
    weight: Array
    """Of the mixture's components, ``[T, M]``."""
    mean: Array
    """Of each component, ``[T, M, H, A]``."""
    std: Array
    """Of each component, ``[T, M, H, A]``."""
    modes: Array
    """The action sequence of each component, ``[T, M, H, A]``."""
    returns: Array
    """What each member imagines that a mode returns, ``[T, M, P]``."""
    value: Array
    """The value of a mode, ``[T, M]``: the returns' mean over members, or the risk that is set."""
    distance: Array
    """Bhattacharyya distances of components, ``[T, M, M]``."""
    sequence: Array
    """The plan that the agent keeps, ``[T, H, A]``. It begins with its action."""
    samples: Array
    """Effective number of candidates, ``[T]``."""
    components: Array
    """Effective number of components, ``[T]``."""
    distinct: Array
    """Number of distinct plans, ``[T]``."""
    seconds: Array
    """Time to filter and plan, ``[T]``."""
    log_kl: Array
    """Log KL of posterior and prior, ``[T]``; NaN: the agent's filter has no posterior."""
    low: Array
    """Lower edge of the calibrated band of the return, ``[T, H]``; NaN: not calibrated."""
    high: Array
    """Upper edge."""
    alarm: Array
    """Whether the surprise is above its threshold, ``[T]``."""

    def __len__(self) -> int:
        return len(self.deter)

    def part(self, steps: slice) -> Moments:
        """Return some of the steps."""
        names = [part.name for part in dataclasses.fields(self)]
        return Moments(**{name: getattr(self, name)[steps] for name in names})

    @property
    def features(self) -> Array:
        """The beliefs, ``[T, P, D + S]``."""
        return np.concatenate([self.deter, self.stoch], -1)

    @property
    def belief(self) -> Belief:
        """The beliefs as the model takes them, ``[P, T, ...]``."""
        parts = (torch.from_numpy(part).transpose(0, 1) for part in (self.deter, self.stoch))
        return Belief(*parts)

    @property
    def heaviest(self) -> Array:
        """The component whose mode the agent keeps, ``[T]``."""
        return self.weight.argmax(-1)

    @property
    def dead(self) -> Array:
        """Components that are hardly ever sampled, ``[T, M]``."""
        return self.weight < LEAST_WEIGHT

    @property
    def merged(self) -> Array:
        """The better living component that a living one is a copy of, ``[T, M]``; -1: none.

        The heaviest comes first, then the others by value.
        """
        steps, count = self.weight.shape
        found = np.full((steps, count), -1)
        for step in range(steps):
            first = self.heaviest[step]
            order = sorted(range(count), key=lambda m: (m != first, -self.value[step, m]))
            apart: list[int] = []
            for one in order:
                if self.dead[step, one]:
                    continue
                near = [m for m in apart if self.distance[step, one, m] <= LEAST_DISTANCE]
                if near:
                    found[step, one] = near[0]
                else:
                    apart.append(one)
        return found


@dataclass(frozen=True)
class Recording:
    """An episode, and what the agent made of it."""

    episode: Episode
    """What was seen, done and earned: T + 1 entries."""
    moments: Moments
    """At the first T of them."""
    acted: bool
    """Whether the agent chose the actions."""
    complete: bool
    """Whether the episode ended, and was not cut at `MAX_STEPS`."""
    frames: Array | None = None
    """Pictures of the environment ``[T + 1, height, width, 3]``; None: there are none."""
    states: Array | None = None
    """The environment's own observations, flat, ``[T + 1, K]``; None: not known."""


class Tape:
    """Acts with an agent and records each step.

    Args:
        agent: The agent. Without a filter of its own it should have a monitor (`watched`).
        generator: Source of all randomness.
    """

    def __init__(self, agent: Agent, generator: Generator) -> None:
        self.agent, self.generator, self.carry = agent, generator, agent.initial()
        self._steps: list[Moments] = []

    def step(self, observation: Prepared, reward: float | None) -> NDArray[np.float32]:
        """Filter, plan, record, and return the action ``[A]``."""
        given = None if reward is None else [reward]
        before = time.perf_counter()
        action, self.carry, diagnostics = self.agent.act_on_prepared(
            self.carry, [observation], self.generator, rewards=given
        )
        self._steps.append(self._moment(diagnostics, time.perf_counter() - before))
        return action[0]

    def took(self, action: NDArray[np.float32]) -> None:
        """Say that another action was taken than the one that the agent chose."""
        taken = torch.from_numpy(action)[None].to(self.agent.device)
        self.carry = dataclasses.replace(self.carry, action=taken)

    def moments(self) -> Moments:
        """Return what was recorded."""
        names = [part.name for part in dataclasses.fields(Moments)]
        return Moments(
            **{name: np.stack([getattr(s, name) for s in self._steps]) for name in names}
        )

    @torch.inference_mode()
    def _moment(self, diagnostics: Diagnostics, seconds: float) -> Moments:
        carry, proposal = self.carry, diagnostics.proposal
        components, modes = proposal.components(), proposal.modes()
        # The same random numbers as those of the values, where transitions are random.
        same = Generator(self.agent.device).manual_seed(0)
        rewards = self.agent.model.imagine(carry.belief, modes, same)  # [1, M, P, H]
        memory, sure = carry.memory, carry.confidence
        unknown = np.full(modes.shape[2], np.nan)
        log_kl = None if memory is None else memory.log_kl
        return Moments(
            deter=_plain(carry.belief.deter[:, 0]),
            stoch=_plain(carry.belief.stoch[:, 0]),
            weight=_plain(components.weight[0]),
            mean=_plain(components.mean[0]),
            std=_plain(components.std[0]),
            modes=_plain(modes[0]),
            returns=_plain(rewards[0].sum(-1)),
            value=_plain(diagnostics.mode_values[0]),
            distance=_plain(component_distances(components)[0]),
            sequence=_plain(planned_actions(proposal, carry.action)[0]),
            samples=_plain(diagnostics.effective_samples[0]),
            components=_plain(diagnostics.effective_components[0]),
            distinct=_plain(diagnostics.distinct_plans[0]),
            seconds=np.asarray(seconds),
            log_kl=np.asarray(np.nan if log_kl is None else log_kl[0]),
            low=unknown if sure is None else sure.bands[RETURN].low[0],
            high=unknown if sure is None else sure.bands[RETURN].high[0],
            alarm=np.asarray(sure is not None and bool(sure.alarm[0])),
        )


def _plain(tensor: Tensor) -> Array:
    return tensor.numpy(force=True).copy()


def watched(agent: Agent) -> Agent:
    """Return the agent with a monitor if it can have one, for the surprise."""
    if agent.monitor is not None or agent.belief_filter is not None:
        return agent
    return agent.watched()


def play(
    env: AnyEnv,
    agent: Agent,
    seed: int,
    generator: Generator,
    picture: Callable[[], Array | None] | None = None,
    state: str | None = None,
) -> Recording:
    """Play a noise-free episode and record it.

    Args:
        env: The environment.
        agent: The agent.
        seed: Of the episode's start.
        generator: Source of the agent's randomness.
        picture: Returns a picture of the environment as it is now, or None if there is none.
        state: Name of the raw observation to keep as the environment's state.
    """
    tape, recorder = Tape(watched(agent), generator), Recorder()
    raw, _ = env.reset(seed=seed)
    observation: Prepared = agent.signature.prepare(raw)
    action = np.zeros(agent.signature.action.size, np.float32)
    reward: float | None = None
    frames: list[Array] = []
    states: list[Array] = []
    terminated = truncated = False
    for _ in range(MAX_STEPS + 1):
        recorder.add(observation, action, reward or 0.0, terminated)
        shown = None if picture is None else picture()
        if shown is not None:
            frames.append(shown)
        if state is not None:
            states.append(np.asarray(raw[state], np.float32))
        if terminated or truncated or len(recorder.rewards) > MAX_STEPS:
            break
        action = tape.step(observation, reward)
        raw, earned, terminated, truncated, _ = env.step(action)
        observation, reward = agent.signature.prepare(raw), float(earned)
    return Recording(
        recorder.episode(),
        tape.moments(),
        acted=True,
        complete=terminated or truncated,
        frames=_stacked(frames) if len(frames) == len(recorder.rewards) else None,
        states=_stacked(states),
    )


def follow(agent: Agent, episode: Episode, generator: Generator) -> Recording:
    """Filter a recorded episode, and record what the agent would plan at each step."""
    complete = len(episode) <= MAX_STEPS + 1
    episode = episode.first(MAX_STEPS + 1)
    tape = Tape(watched(agent), generator)
    for step in range(len(episode) - 1):
        observation = {name: values[step] for name, values in episode.observation.items()}
        tape.step(observation, float(episode.reward[step]) if step else None)
        tape.took(episode.action[step + 1])
    return Recording(episode, tape.moments(), acted=False, complete=complete)


def _stacked(parts: Sequence[Array]) -> Array | None:
    return np.stack(parts) if parts else None
