"""The guard: who controls after an alarm, for how long, and what the agent is told."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from model_building import VECTOR, make_observations, seeded
from planet_bayes.agent import Agent, Carry
from planet_bayes.confidence.monitor import Confidence
from planet_bayes.errors import ConfigError
from planet_bayes.guard import Guard, GuardedCarry, Takeover, hold, stop
from test_agent import make_agent
from test_monitor import calibration

BATCH = 3


class Scripted:
    """An agent whose alarms are given, step by step."""

    def __init__(self, agent: Agent, alarms: Sequence[Sequence[int]]) -> None:
        self._agent, self._alarms = agent, iter(alarms)
        self.monitor = agent.monitor
        self.told: list[np.ndarray] = []

    def initial(self, batch_size: int) -> Carry:
        return self._agent.initial(batch_size)

    def act(self, carry: Carry, *words: Any, **options: Any) -> Any:
        self.told.append(carry.action.numpy().copy())
        action, after, diagnostics = self._agent.act(carry, *words, **options)
        assert after.memory is not None
        assert after.confidence is not None
        alarm = np.array(next(self._alarms), bool)
        sure = dataclasses.replace(after.confidence, alarm=alarm)
        memory = dataclasses.replace(after.memory, confidence=sure)
        return action, dataclasses.replace(after, memory=memory), diagnostics


def play(
    alarms: Sequence[Sequence[int]], **options: Any
) -> tuple[Scripted, list[np.ndarray], list[GuardedCarry]]:
    plain = make_agent(3)
    agent = Scripted(plain.watched(calibration(plain)), alarms)
    guard = Guard(agent, **options)  # type: ignore[arg-type]
    views = make_observations(VECTOR, BATCH, 1)
    carry, actions, carries = guard.initial(BATCH), [], []
    for step in range(len(alarms)):
        action, carry, _ = guard.act(carry, views, seeded(step), rewards=[0.0] * BATCH)
        actions.append(action)
        carries.append(carry)
    return agent, actions, carries


QUIET = [0, 0, 0]


def test_the_fallback_controls_from_the_alarm_until_it_was_quiet_for_some_steps() -> None:
    seen: list[Takeover] = []

    def fallback(takeover: Takeover) -> Any:
        seen.append(takeover)
        return np.array([0.25, -2.0])

    alarms = [QUIET, [0, 1, 0], QUIET, [0, 1, 0], QUIET, QUIET, QUIET, [1, 0, 0]]
    agent, actions, carries = play(alarms, fallback=fallback, release_steps=2)
    taken = np.array([carry.taken_over for carry in carries])
    np.testing.assert_array_equal(taken[:, 1], [0, 1, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(taken[:, 0], [0, 0, 0, 0, 0, 0, 0, 1])
    assert not taken[:, 2].any()
    assert [(one.environment, one.steps) for one in seen] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        (0, 0),
    ]
    for step, executed in enumerate(actions):
        for row in range(BATCH):
            by_fallback = np.array_equal(executed[row], np.array([0.25, -1.0], np.float32))
            assert by_fallback == taken[step, row]
    # The agent is told what was executed, which its filter needs, and not what it proposed.
    for executed, told in zip(actions[:-1], agent.told[1:], strict=True):
        np.testing.assert_array_equal(told, executed)
    np.testing.assert_array_equal(seen[1].last, np.array([0.25, -1.0], np.float32))


def test_without_release_the_fallback_keeps_control_and_hold_repeats() -> None:
    alarms = [QUIET, [1, 0, 0], QUIET, QUIET, QUIET]
    _, actions, carries = play(alarms, fallback=hold, release_steps=None)
    assert [bool(carry.taken_over[0]) for carry in carries] == [False, True, True, True, True]
    for executed in actions[1:]:
        np.testing.assert_array_equal(executed[0], actions[0][0])
    _, actions, _ = play(alarms, fallback=stop, release_steps=None)
    assert (np.array(actions)[1:, 0] == 0).all()
    assert (np.array(actions)[1:, 1] != 0).any()


def test_without_a_fallback_alarms_are_logged_once_and_the_agent_controls() -> None:
    logged: list[int] = []

    def log(environment: int, sure: Confidence) -> None:
        assert sure.alarm[environment]
        logged.append(environment)

    alarms = [QUIET, [1, 0, 1], [1, 0, 0], QUIET, [1, 0, 0]]
    _, guarded, carries = play(alarms, log=log)
    _, plain, _ = play([QUIET] * 5)
    assert logged == [0, 2, 0]
    np.testing.assert_array_equal(guarded, plain)
    assert not any(carry.taken_over.any() for carry in carries)


def test_predictions_of_plans_that_were_not_executed_do_not_move_bands() -> None:
    _, _, carries = play([QUIET, QUIET, [1, 0, 0], [1, 0, 0], [1, 0, 0]], fallback=stop)
    tracked = [carry.agent.memory.tracked for carry in carries if carry.agent.memory]
    assert tracked[2] is not None
    assert tracked[4] is not None
    np.testing.assert_array_equal(tracked[4].above[0], tracked[2].above[0])
    assert (tracked[4].above[1] != tracked[2].above[1]).any()


def test_what_cannot_be_guarded_is_refused() -> None:
    plain = make_agent(2)
    with pytest.raises(ConfigError, match="calibrated"):
        Guard(plain)
    with pytest.raises(ConfigError, match="calibrated"):
        Guard(plain.watched())
    with pytest.raises(ConfigError, match="release_steps"):
        Guard(plain.watched(calibration(plain)), hold, release_steps=0)
    with pytest.raises(ConfigError, match="a guard needs an agent, such as load_run"):
        Guard("agent")  # type: ignore[arg-type]
    for options in ({"fallback": "hold"}, {"log": 5}):
        with pytest.raises(ConfigError, match="must be a function or None"):
            Guard(plain.watched(calibration(plain)), **options)
    for wrong in (np.zeros(3), np.full(2, np.nan)):
        with pytest.raises(ConfigError, match="2 finite numbers"):
            play([[1, 0, 0]], fallback=lambda takeover, wrong=wrong: wrong)
