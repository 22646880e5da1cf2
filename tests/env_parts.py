"""Parts of tests of environments: a replaceable environment, rollouts, prepared observations."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import planet_bayes
from planet_bayes.envs import TASKS, EnvConfig, NamedObservations, gl

SUITE = [name for name, spec in TASKS.items() if spec.domain != "toy"]
WIDENED = ["finger_spin", "cheetah_run", "walker_run"]
STATE = EnvConfig(observation=("state",))
SENSORS = EnvConfig(observation=("sensors",))

needs_egl = pytest.mark.skipif(
    sys.platform.startswith("linux") and not gl.egl_works(), reason="no EGL on this machine"
)


class Plain(gymnasium.Env[Any, Any]):
    """A small environment whose every part a test may replace."""

    def __init__(self, render_mode: str | None = "rgb_array", **parts: Any) -> None:
        self.render_mode = render_mode
        self.action_space = parts.get("actions", spaces.Box(-2.0, 4.0, (2,), np.float32))
        self.observation_space = parts.get("space", spaces.Box(-9.0, 9.0, (3,), np.float32))
        self.observe = parts.get("observe", lambda step: np.full(3, step, np.float32))
        self.reward = parts.get("reward", lambda step: 1.0)
        self.frame = parts.get("frame", lambda step: np.full((40, 50, 3), step, np.uint8))
        self.length = parts.get("length", 10)
        self.count = 0
        self.renders = 0
        self.closes = 0
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observe(0), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        self.received.append(action)
        done = self.count >= self.length
        return self.observe(self.count), self.reward(self.count), done, False, {}

    def render(self) -> Any:
        self.renders += 1
        return self.frame(self.count)

    def close(self) -> None:
        self.closes += 1


def prepared(env: NamedObservations, raw: Mapping[str, Any]) -> NDArray[Any]:
    """Return the only observation of an environment, as the agent sees it."""
    (value,) = env.signature.prepare(raw).values()
    return value


def rollout(env: NamedObservations, seed: int, steps: int = 6) -> list[Any]:
    """Return all prepared observations and rewards of a few fixed pseudo-random actions."""
    generator = np.random.default_rng(3)
    record = [*env.signature.prepare(env.reset(seed=seed)[0]).values()]
    for _ in range(steps):
        action = generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        raw, reward, *_ = env.step(action)
        record += [*env.signature.prepare(raw).values(), reward]
    return record


def same(first: list[Any], second: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def package_path() -> dict[str, str]:
    """Return the environment variable with which another process finds this package."""
    root = os.path.dirname(os.path.dirname(planet_bayes.__file__))
    return {"PYTHONPATH": root}
