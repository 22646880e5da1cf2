"""Where an episode comes from: played now, stored by the run, or logged in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planet_bayes.data.folder import RunFolder
from planet_bayes.diagnostics.explain.recording import Recording, follow, play
from planet_bayes.envs import TASKS, NamedObservations, baseline_returns, make_env
from planet_bayes.errors import ConfigError, EnvError, RunError
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.offline import logged_episode

Array = NDArray[Any]

STATE = "state"
"""The source of an environment's whole observation."""
MAX_STATES = 64
"""Entries of the largest observation that is kept as the environment's state."""
BASELINE_EPISODES = 10
PICTURE_SIZE = 128
"""Largest height and width of pictures of the environment."""
WITHOUT = "Without the environment, name a recorded episode: --episode N or --log FILE."


@dataclass(frozen=True)
class Scene:
    """A recorded episode, and what is known of the environment."""

    recording: Recording
    title: str
    """Which episode it is."""
    period: float | None = None
    """Seconds for each action; None: not known."""
    names: tuple[str, ...] = ()
    """Of the entries of the environment's own observation; empty: not known."""


def play_start(run: Run, start: int, name: str = "explain", seed: int | None = None) -> Scene:
    """Play a noise-free episode from a numbered start.

    Args:
        run: The run, on the CPU.
        start: Number of the start.
        name: Of the set of starts.
        seed: Root of the randomness; None: that of the run.
    """
    root = run.config.seed if seed is None else seed
    env, state = environment(run)
    with contextlib.closing(env):
        rate = env.metadata.get("render_fps")
        recording = play(
            env,
            run.agent,
            integer_seed(root, f"{name}-environment", start),
            torch_stream(root, f"{name}-agent", start),
            pictures(env, run),
            state,
        )
        names = state_names(env)
    return Scene(recording, f"start {start}", 1 / rate if rate else None, names)


def follow_stored(run: Run, number: int) -> Scene:
    """Follow an episode of the run's replay."""
    folder = RunFolder(run.path).episodes
    found = sorted(folder.glob("*.npz"))
    if not found:
        raise RunError(f"{run.path} stores no episodes; play one, or name a file with --log.")
    if not 0 <= number < len(found):
        raise ConfigError(f"episode: {run.path} has the episodes 0 to {len(found) - 1}.")
    return _followed(run, found[number], f"stored episode {number}")


def follow_log(run: Run, path: Path) -> Scene:
    """Follow an episode in a file."""
    if not path.is_file():
        raise ConfigError(f"log: there is no file {path}.")
    return _followed(run, path, f"logged episode {path.name}")


def _followed(run: Run, path: Path, title: str) -> Scene:
    episode = logged_episode(path, run.agent.signature)
    recording = follow(run.agent, episode, torch_stream(run.config.seed, "explain-agent", 0))
    return Scene(recording, title)


def environment(run: Run) -> tuple[NamedObservations, str | None]:
    """Return the environment, and under which name it returns its whole observation, if it does."""
    config = run.config.env
    known = next((name for name, source in config.sources.items() if source == STATE), None)
    if known is None and STATE not in config.sources:
        more = dataclasses.replace(config, observation=(*config.observation, STATE))
        with contextlib.suppress(EnvError, ConfigError):  # it may have no state of a fixed size
            env = make_env(run.config.task, more)
            return env, STATE if state_names(env) else None
    try:
        env = run.make_env()
        return env, known if state_names(env) else None
    except (EnvError, ConfigError) as error:
        raise EnvError(f"{error} {WITHOUT}") from error


def state_names(env: NamedObservations) -> tuple[str, ...]:
    """Return names of the entries of an environment's own observation, as it is flattened.

    There are none of images and of what has no fixed size.
    """
    native = env.env.observation_space
    parts = native.spaces if isinstance(native, spaces.Dict) else {STATE: native}
    names: list[str] = []
    for key, space in parts.items():
        if not isinstance(space, spaces.Box) or len(space.shape) > 1:
            return ()
        count = spaces.flatdim(space)
        names += [key] if count == 1 else [f"{key}[{index}]" for index in range(count)]
    return tuple(names) if len(names) <= MAX_STATES else ()


def pictures(env: NamedObservations, run: Run) -> Callable[[], Array | None]:
    """Return a function that renders the environment, until that fails."""
    modalities = run.agent.signature.observation.values()
    works = all(modality.dtype != np.uint8 for modality in modalities)

    def picture() -> Array | None:
        nonlocal works
        if not works:
            return None
        try:
            frame = np.asarray(env.render())
        except EnvError:
            works = False
            return None
        scale = PICTURE_SIZE / max(frame.shape[:2])
        if scale >= 1:
            return frame
        height, width = (max(1, round(scale * side)) for side in frame.shape[:2])
        return np.asarray(cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA))

    return picture


def baselines(run: Run, played: bool) -> dict[str, list[float]]:
    """Return the returns of simple policies, by name, as `planet-bayes evaluate` found them.

    If it did not, and the agent has ``played`` one of the named tasks, they are played now.
    """
    found = _evaluated(run)
    if found or not played or run.config.task not in TASKS:
        return found
    config = run.config
    made = baseline_returns(config.task, config.env, BASELINE_EPISODES, config.seed)
    return {str(policy): values for policy, values in made.items()}


def _evaluated(run: Run) -> dict[str, list[float]]:
    try:
        facts = json.loads(RunFolder(run.path).evaluation.read_text())
        found = {name: facts.get(f"{name}_returns") for name in ("random", "zero")}
        return {name: list(map(float, values)) for name, values in found.items() if values}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
