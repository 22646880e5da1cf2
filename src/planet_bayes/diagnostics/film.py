"""Films of trained agents, side by side in one animation.

A film shows the environment, then what the agent sees of it and what its model reconstructs (see
`planet_bayes.training.video`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planet_bayes.checks import at_least, positive
from planet_bayes.models.modalities.panels import PANEL
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.runs import Run
from planet_bayes.training.video import record_episode

NUM_COLOURS = 64
"""Colours of the animation."""


@dataclass(frozen=True)
class FilmOptions:
    """Which part of an episode is shown, and how large."""

    episode: int = 0
    """Number of the episode. Each number has another start."""
    seconds: float = 8.0
    """Length of the film, from the start of the episode."""
    rate: float = 12.5
    """Frames per second. The film plays in real time."""
    size: int = 128
    """Height and width of each panel in pixels."""
    reconstruction: bool = True
    """Show what the agent sees and what its model reconstructs beside the environment."""

    def __post_init__(self) -> None:
        at_least(self, "", 0, "episode")
        at_least(self, "", 1, "size")
        positive(self, "", "seconds", "rate")


def film(run: Run, options: FilmOptions) -> tuple[NDArray[np.uint8], float]:
    """Return frames ``[T, S, W, 3]`` of a run's agent, and the return of the whole episode."""
    seed = integer_seed(run.config.seed, "montage-environment", options.episode)
    generator = torch_stream(run.config.seed, "montage-agent", options.episode)
    with contextlib.closing(run.make_env()) as env:
        steps_per_second = env.metadata.get("render_fps") or options.rate
        frames, total = record_episode(env, run.agent, seed, generator)
    times = np.arange(round(options.seconds * options.rate)) / options.rate
    # After the end of a short episode its last frame is held.
    shown = frames[np.minimum((times * steps_per_second).astype(int), len(frames) - 1)]
    panels = shown if options.reconstruction else shown[:, :, :PANEL]
    return np.stack([_sized(frame, options.size) for frame in panels]), total


def write_gif(frames: NDArray[np.uint8], path: Path, rate: float) -> None:
    """Write frames ``[T, H, W, 3]`` in few colours and without dither, which compresses well."""
    from PIL import Image

    # The octree keeps the few pixels of an agent's own colour, which a median cut turns grey.
    some = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)]))
    palette = some.quantize(NUM_COLOURS, method=Image.Quantize.FASTOCTREE)
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    duration = round(1000 / rate)
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration, loop=0)


def _sized(frame: NDArray[np.uint8], height: int) -> NDArray[np.uint8]:
    from PIL import Image

    width = frame.shape[1] * height // frame.shape[0]
    return np.asarray(Image.fromarray(frame).resize((width, height)))
