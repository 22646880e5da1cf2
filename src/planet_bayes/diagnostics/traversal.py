"""Traversal of the stochastic state: what each of its dimensions means to the decoder.

One member filters an episode. From one of its beliefs, each dimension of s is moved on its own, by
multiples of the std that it has over the episode, and the result is decoded. h stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.data import files
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModalityNetwork, Normal, WorldModel
from planet_bayes.models.losses import total_correlation
from planet_bayes.training.strip import MAX_CHARTS, is_picture
from planet_bayes.types import Episode

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

Array = NDArray[Any]

OFFSETS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
"""How far a dimension is moved, in its stds over the episode."""
WIDTH = 11.0
"""Inches."""
STRIP_INCHES, CHART_INCHES = 0.78, 1.5
STRIP_COLUMNS, CHART_COLUMNS = 2, 5


@dataclass(frozen=True)
class Traversal:
    """What the decoder makes of a belief whose dimensions are moved one by one."""

    decoded: dict[str, Array]
    """Observations by name in prepared units, ``[S, offsets, ...]``."""
    changes: dict[str, Array]
    """Their changes in the units of training, ``[S, offsets, ...]``."""
    total_correlation: float
    """Of the member's states over the episode, in nats."""

    @property
    def effect(self) -> Array:
        """Root mean square change of all observations by each dimension, ``[S]``."""
        parts = [
            np.square(change).reshape(len(change), -1).mean(1) for change in self.changes.values()
        ]
        return np.asarray(np.sqrt(np.mean(parts, 0)))

    @property
    def order(self) -> list[int]:
        """Dimensions from the largest effect to the smallest."""
        return [int(number) for number in np.argsort(-self.effect, kind="stable")]


@torch.no_grad()
def traverse(
    model: WorldModel, episode: Episode, entry: int, member: int, generator: Generator
) -> Traversal:
    """Move each dimension of one member's state.

    Args:
        model: The world model, on the CPU.
        episode: The episode that is filtered.
        entry: Entry of the episode whose belief is moved.
        member: Number of the member, from 0.
        generator: Source of all randomness.
    """
    if not 0 <= member < model.num_particles:
        raise ConfigError(f"member must be from 1 to {model.num_particles}, got {member + 1}.")
    particles, size = model.num_particles, model.config.stoch
    observation = {
        name: torch.from_numpy(values)[None, None] for name, values in episode.observation.items()
    }
    embed = model.encode(model.inputs(observation, generator)).expand(particles, -1, -1, -1)
    action = torch.from_numpy(episode.action).expand(particles, 1, -1, -1)
    noise = model.belief_noise((len(episode), particles, 1, size), generator)
    filtered = model.filter_sequences(embed, action, noise)
    own = Normal(filtered.posterior.mean[member, None], filtered.posterior.std[member, None])
    drawn = own.sample(torch.randn(own.mean.shape, generator=generator))  # [1, 1, T, S]
    everything = torch.ones(1, 1, len(episode))
    nats = total_correlation(drawn, own, everything, generator, count=len(episode))
    deter, stoch = filtered.deter[member, 0, entry], filtered.stoch[member, 0, entry]
    moved = _moved(stoch, drawn[0, 0].std(0))  # [S, offsets, S]
    features = torch.cat([deter.expand(*moved.shape[:2], -1), moved], -1)
    changes = {}
    for name, module in model.senses.items():
        values = cast(ModalityNetwork, module).decode(features)
        changes[name] = (values - values[:, OFFSETS.index(0.0), None]).numpy()
    decoded = {name: values.numpy() for name, values in model.reconstruct(features).items()}
    return Traversal(decoded, changes, float(nats))


def _moved(stoch: Tensor, std: Tensor) -> Tensor:
    """Return states ``[S, offsets, S]`` of a state ``[S]``: in row d, dimension d is moved."""
    steps = torch.tensor(OFFSETS)[None, :, None] * torch.diag(std)[:, None]
    return stoch + steps


def draw(traversal: Traversal, title: str, path: Path) -> None:
    """Write the figure as PNG: the dimension of the largest effect first.

    Args:
        traversal: The traversal.
        title: What stands above.
        path: Where to.
    """
    from matplotlib.figure import Figure  # late: nothing else needs it

    count = len(traversal.order)
    pictures = {name: is_picture(values[0]) for name, values in traversal.decoded.items()}
    heights = [
        STRIP_INCHES * -(-count // STRIP_COLUMNS) + 0.4
        if picture
        else CHART_INCHES * -(-count // CHART_COLUMNS) + 0.5
        for picture in pictures.values()
    ]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained", dpi=120)
    figure.suptitle(title, fontsize=11)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (name, picture) in zip(parts, pictures.items(), strict=True):
        if picture:
            _draw_strips(part, traversal, name)
        else:
            _draw_charts(part, traversal, name)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    files.write(path, buffer.getvalue())


def _draw_strips(part: SubFigure, traversal: Traversal, name: str) -> None:
    """Draw a row of images for each dimension."""
    images = traversal.decoded[name].round().clip(0, 255).astype(np.uint8)
    order = traversal.order
    grid = part.subplots(-(-len(order) // STRIP_COLUMNS), STRIP_COLUMNS, squeeze=False)
    side = images.shape[2]
    for number, axes in enumerate(grid.flat):
        axes.set_axis_off()
        if number < len(order):
            gaps = np.pad(images[order[number]], ((0, 0), (0, 0), (0, 1), (0, 0)), mode="maximum")
            gaps[:, :, -1] = 255
            axes.imshow(np.concatenate(list(gaps), 1)[:, :-1], interpolation="nearest")
            axes.text(-2, side / 2, f"s {order[number] + 1}", ha="right", va="center", fontsize=8)
        if number < STRIP_COLUMNS:
            for place, offset in enumerate(OFFSETS):
                words = f"{offset:+.0f}" if offset else "0"
                middle = place * (side + 1) + side / 2
                axes.text(middle, -2, words, ha="center", va="bottom", fontsize=7)
    part.supxlabel(f"{name}; columns: stds from the belief", fontsize=9)


def _draw_charts(part: SubFigure, traversal: Traversal, name: str) -> None:
    """Draw the change of each entry over the offsets, a chart for each dimension."""
    order, changes = traversal.order, traversal.changes[name]
    flat = changes.reshape(*changes.shape[:2], -1)[..., :MAX_CHARTS]
    columns = min(CHART_COLUMNS, len(order))
    lines = -(-len(order) // columns)
    grid = part.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for number, axes in enumerate(grid.flat):
        if number >= len(order):
            axes.remove()
            continue
        for entry in range(flat.shape[-1]):
            axes.plot(OFFSETS, flat[order[number], :, entry], linewidth=1.3, label=f"{entry}")
        axes.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        axes.set_title(f"s {order[number] + 1}", fontsize=8, pad=2)
        axes.tick_params(labelsize=7)
    part.supxlabel("stds of the dimension from the belief", fontsize=9)
    part.supylabel("change, in the units of training", fontsize=9)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    named = [f"{name} {label}" for label in labels]
    part.legend(handles, named, loc="outside right upper", fontsize=8, frameon=False)
