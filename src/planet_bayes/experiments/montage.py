"""Trained agents side by side, as one animation.

``python -m planet_bayes.experiments.montage docs/agents.gif runs/A runs/B`` films the first
seconds of a noise-free episode of each run, in real time, and writes the films beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from PIL import Image

from planet_bayes import runs
from planet_bayes.rng import integer_seed, torch_stream

COLOURS = 64


@dataclass(frozen=True)
class Options:
    """What is filmed."""

    target: tyro.conf.Positional[Path]
    """The animation, a GIF."""
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, in the order of their films."""
    seconds: float = 8.0
    """Of the episode."""
    rate: float = 12.5
    """Frames a second."""
    size: int = 128
    """Pixels on a side, of each film."""


def film(path: Path, options: Options) -> tuple[NDArray[np.uint8], float]:
    """Return frames ``[T, S, S, 3]`` of a run's agent, and the return so far."""
    run = runs.load_run(path, device="cpu")
    torch.set_num_threads(run.config.threads or 1)
    env, carry = run.make_env(), run.agent.initial()
    steps_a_second = env.metadata.get("render_fps") or options.rate
    generator = torch_stream(run.config.seed, "montage-agent")
    frames: list[NDArray[np.uint8]] = []
    total, step, ended = 0.0, 0, False
    try:
        observation, _ = env.reset(seed=integer_seed(run.config.seed, "montage-environment"))
        while len(frames) < options.seconds * options.rate:
            # A frame is due whenever the episode's clock has passed its time; after the end of
            # a short episode its last one is held.
            if ended or step / steps_a_second >= len(frames) / options.rate:
                frames.append(_sized(np.asarray(env.render()), options.size))
                continue
            action, carry, _ = run.agent.act(carry, observation[None], generator)
            observation, reward, terminated, truncated, _ = env.step(action[0])
            total, step, ended = total + float(reward), step + 1, terminated or truncated
    finally:
        env.close()
    return np.stack(frames), total


def _sized(frame: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(frame).resize((size, size)))


def montage(options: Options) -> None:
    """Film all runs and write the animation."""
    films = []
    for path in options.runs:
        frames, total = film(path, options)
        print(f"{path}: {total:.0f} in {options.seconds:g} s", flush=True)
        films.append(frames)
    options.target.parent.mkdir(parents=True, exist_ok=True)
    write_gif(np.concatenate(films, axis=2), options.target, options.rate)


def write_gif(frames: NDArray[np.uint8], path: Path, rate: float) -> None:
    """Write frames ``[T, H, W, 3]`` in few colours and without dither, which a GIF packs well."""
    palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)])).quantize(COLOURS)
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    duration = round(1000 / rate)
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration, loop=0)


if __name__ == "__main__":
    montage(tyro.cli(Options))
