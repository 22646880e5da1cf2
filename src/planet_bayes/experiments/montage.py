"""Trained agents side by side, as one animation.

``python -m planet_bayes.experiments.montage docs/agents.gif runs/A runs/B`` films a noise-free
episode of each run, and writes their first seconds, in real time, beside each other. A film is
that of `training.video`: the environment, what the agent sees of it if that is an image, and what
its model reconstructs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from PIL import Image

from planet_bayes import runs
from planet_bayes.experiments.settings import call
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.training.video import PANEL, record_episode

COLOURS = 64


@dataclass(frozen=True)
class Options:
    """What is filmed."""

    target: tyro.conf.Positional[Path]
    """The animation, a GIF."""
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, in the order of their films."""
    episode: int = 0
    """Which of many: each has another start."""
    seconds: float = 8.0
    """Of the episode."""
    rate: float = 12.5
    """Frames a second."""
    size: int = 128
    """Pixels on a side, of each panel."""
    reconstruction: bool = True
    """Are there panels beside the first, for what the agent sees and its model reconstructs?"""


def film(path: Path, options: Options) -> tuple[NDArray[np.uint8], float]:
    """Return frames ``[T, S, W, 3]`` of a run's agent, and the return of the whole episode."""
    run = runs.load_run(path, device="cpu")
    torch.set_num_threads(run.config.threads or 1)
    seed = integer_seed(run.config.seed, "montage-environment", options.episode)
    generator = torch_stream(run.config.seed, "montage-agent", options.episode)
    with contextlib.closing(run.make_env()) as env:
        steps_a_second = env.metadata.get("render_fps") or options.rate
        frames, total = record_episode(env, run.agent, seed, generator)
    times = np.arange(round(options.seconds * options.rate)) / options.rate
    # After the end of a short episode its last frame is held.
    shown = frames[np.minimum((times * steps_a_second).astype(int), len(frames) - 1)]
    panels = shown if options.reconstruction else shown[:, :, :PANEL]
    return np.stack([_sized(frame, options.size) for frame in panels]), total


def _sized(frame: NDArray[np.uint8], height: int) -> NDArray[np.uint8]:
    width = frame.shape[1] * height // frame.shape[0]
    return np.asarray(Image.fromarray(frame).resize((width, height)))


def montage(options: Options) -> None:
    """Film all runs and write the animation."""
    films = []
    for path in options.runs:
        frames, total = film(path, options)
        print(f"{path}: {total:.0f} in the whole episode", flush=True)
        films.append(frames)
    options.target.parent.mkdir(parents=True, exist_ok=True)
    write_gif(np.concatenate(films, axis=2), options.target, options.rate)


def write_gif(frames: NDArray[np.uint8], path: Path, rate: float) -> None:
    """Write frames ``[T, H, W, 3]`` in few colours and without dither, which a GIF packs well."""
    # The octree keeps the few pixels of an agent's own colour, which a median cut turns grey.
    some = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)]))
    palette = some.quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    duration = round(1000 / rate)
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration, loop=0)


if __name__ == "__main__":
    call(lambda words: montage(tyro.cli(Options, args=words)))
