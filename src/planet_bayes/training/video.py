"""Video of an episode: the environment beside what the agent sees and its model reconstructs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from planet_bayes.agent import Agent, Carry, Prepared
from planet_bayes.data import files
from planet_bayes.models.modalities.panels import square
from planet_bayes.planner import Diagnostics
from planet_bayes.training.collect import play

DEFAULT_RATE = 20.0
"""Frames per second where the environment does not say."""


def record_episode(
    env: gymnasium.Env[Any, Any], agent: Agent, seed: int, generator: Generator, **options: Any
) -> tuple[NDArray[np.uint8], float]:
    """Return frames ``[T, 192, W, 3]`` of a noise-free episode, and its return.

    From left to right, each 192 pixels wide: the environment, if it can be rendered; then the
    panels of each modality, with the reconstruction by the mean of the particles.
    """
    frames: list[NDArray[np.uint8]] = []
    modalities = agent.signature.observation
    seen: dict[str, list[NDArray[Any]]] = {name: [] for name in modalities}
    decoded: dict[str, list[NDArray[Any]]] = {name: [] for name in modalities}
    rendered = env.render_mode == "rgb_array" or all(
        modality.dtype != np.uint8 for modality in modalities.values()
    )

    def on_step(observations: list[Prepared], carry: Carry, _: Diagnostics) -> None:
        with torch.inference_mode():
            guesses = agent.model.reconstruct(carry.belief.features)
        panels = [square(np.asarray(env.render()))] if rendered else []
        for name, modality in modalities.items():
            seen[name].append(observations[0][name])
            decoded[name].append(guesses[name].mean(0)[0].cpu().numpy())
            panels += modality.panels(seen[name], decoded[name])
        frames.append(np.concatenate(panels, axis=1))

    (total,) = play([env], agent, [seed], generator, on_step=on_step, **options)
    return np.stack(frames), total


def film_episode(
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    seed: int,
    generator: Generator,
    path: Path,
    **options: Any,
) -> tuple[NDArray[np.uint8], float]:
    """Record an episode, write it as mp4 that plays in real time, and return the recording."""
    frames, total = record_episode(env, agent, seed, generator, **options)
    write_video(frames, path, env.metadata.get("render_fps") or DEFAULT_RATE)
    return frames, total


def write_video(frames: NDArray[np.uint8], path: Path, fps: float = DEFAULT_RATE) -> None:
    """Write frames ``[T, H, W, 3]`` as mp4."""
    import imageio.v3 as iio  # late: only films need it

    options: dict[str, Any] = {"fps": fps, "codec": "libx264", "macro_block_size": 16}
    with tempfile.TemporaryDirectory() as folder:  # the encoder writes to a file only
        film = Path(folder) / path.name
        iio.imwrite(film, frames, plugin="FFMPEG", **options)
        files.write(path, film.read_bytes())
