"""Video of an episode: what happened beside what the model made of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import imageio.v3 as iio
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Generator

from planet_bayes import files
from planet_bayes.agent import Agent, Carry
from planet_bayes.models import to_image
from planet_bayes.training.collect import evaluate

PANEL = 192  # pixels on a side
_INK, _REAL, _MODEL = (24, 24, 32), (120, 200, 255), (255, 160, 60)


def record_episode(
    env: gymnasium.Env, agent: Agent, seed: int, generator: Generator, **options: Any
) -> tuple[NDArray[np.uint8], float]:
    """Return frames ``[T, 192, W, 3]`` of a noise-free episode, and its return.

    From left to right, each 192 wide: the environment, if it can be rendered; what the agent sees
    of it, if that is an image; and the reconstruction by the mean of the members, the decoded
    image or each sensor's trace (blue) with the decoded one (orange) over it.
    """
    watched = _Watch(env)
    frames: list[NDArray[np.uint8]] = []
    seen: list[NDArray[np.float32]] = []
    decoded: list[NDArray[np.float32]] = []

    def on_step(carry: Carry) -> None:
        features = torch.cat([carry.belief.deter, carry.belief.stoch], -1)
        with torch.inference_mode():
            guess = agent.model.reconstruct(features).mean(0)[0].cpu()
        panels = []
        if env.render_mode == "rgb_array" or not agent.model.is_image:
            panels.append(np.asarray(env.render()))
        if agent.model.is_image:
            panels += [watched.observation, to_image(guess).numpy()]
        else:
            seen.append(watched.observation)
            decoded.append(guess.numpy())
            panels.append(_traces(np.stack(seen), np.stack(decoded)))
        frames.append(np.concatenate([_panel(panel) for panel in panels], axis=1))

    (total,) = evaluate([watched], agent, [seed], generator, on_step=on_step, **options)
    return np.stack(frames), total


def film_episode(
    env: gymnasium.Env, agent: Agent, seed: int, generator: Generator, path: Path, **options: Any
) -> tuple[NDArray[np.uint8], float]:
    """Record an episode, write it as mp4 that plays in real time, and return what was recorded."""
    frames, total = record_episode(env, agent, seed, generator, **options)
    write_video(frames, path, env.metadata.get("render_fps") or 20)
    return frames, total


def write_video(frames: NDArray[np.uint8], path: Path, fps: float = 20.0) -> None:
    """Write frames ``[T, H, W, 3]`` as mp4."""
    options: dict[str, Any] = {"fps": fps, "codec": "libx264", "macro_block_size": 16}
    with tempfile.TemporaryDirectory() as folder:  # the encoder writes to a file only
        film = Path(folder) / path.name
        iio.imwrite(film, frames, plugin="FFMPEG", **options)
        files.write(path, film.read_bytes())


class _Watch(gymnasium.Wrapper):
    """Remembers the last observation."""

    observation: Any = None

    def reset(self, **options: Any) -> Any:
        self.observation, info = self.env.reset(**options)
        return self.observation, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.observation = result[0]
        return result


def _panel(frame: NDArray[Any]) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(frame).resize((PANEL, PANEL), Image.Resampling.NEAREST))


def _traces(real: NDArray[np.float32], model: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Draw the last 64 steps of each sensor, real and decoded, as a strip chart."""
    real, model = real[-64:], model[-64:]
    image = Image.new("RGB", (PANEL, PANEL), _INK)
    draw = ImageDraw.Draw(image)
    sensors = min(real.shape[1], 12)
    height = PANEL / sensors
    for index in range(sensors):
        low = min(real[:, index].min(), model[:, index].min())
        high = max(real[:, index].max(), model[:, index].max(), low + 0.1)
        for values, colour in ((real, _REAL), (model, _MODEL)):
            share = (values[:, index] - low) / (high - low)
            xs = np.arange(len(share)) * (PANEL - 1) / 63
            ys = (index + 0.92 - 0.84 * share) * height
            points = list(zip(xs.tolist(), ys.tolist(), strict=True))
            if len(points) > 1:
                draw.line(points, fill=colour)
            else:
                draw.point(points, fill=colour)
    return np.asarray(image)
