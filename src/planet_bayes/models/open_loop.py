"""Open-loop prediction: filter a few observations, then imagine the actions that were taken.

A window is a stretch of an episode. Its first steps are the context, which every particle filters
from the zero belief, as learning does at the start of a sequence. The rest is imagined: the
particles get the actions, and see no further observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Generator, Tensor

from planet_bayes.models.modalities import ModalityNetwork
from planet_bayes.models.world_model import WorldModel
from planet_bayes.types import Belief, Episode


@dataclass(frozen=True)
class OpenLoop:
    """What P particles make of N windows of T steps, of which the first are the context."""

    model: WorldModel
    context: int
    """Steps whose observations are filtered. The others are imagined."""
    features: Tensor
    """``[P, N, T, D + S]``."""
    rewards: Tensor
    """Predicted rewards ``[P, N, T]``."""
    real_rewards: Tensor
    """``[N, T]``."""
    inputs: dict[str, Tensor]
    """Real observations by name, ``[N, T, ...]``, in the units in which the model is trained."""

    def decoded(self, name: str, some: Tensor | slice = slice(None)) -> Tensor:
        """Return an observation of some windows, ``[P, n, T, ...]``, in the units of `inputs`."""
        return cast(ModalityNetwork, self.model.senses[name]).decode(self.features[:, some])

    def reconstructed(self, name: str, window: int = 0) -> Tensor:
        """Return an observation of a window, ``[P, T, ...]``, in the units of prepared ones."""
        return self.model.reconstruct(self.features[:, window], [name])[name]


@torch.no_grad()
def open_loop(
    model: WorldModel,
    episode: Episode,
    starts: Sequence[int],
    context: int,
    steps: int,
    generator: Generator,
) -> OpenLoop:
    """Predict windows of an episode.

    Args:
        model: The world model.
        episode: The episode.
        starts: First entry of each window.
        context: Observations that are filtered, at least 1.
        steps: Steps that are imagined after them.
        generator: Source of all randomness, on the model's device.
    """
    device, particles = model.device, model.num_particles
    entries = torch.as_tensor(list(starts))[:, None] + torch.arange(context + steps)  # [N, T]
    observation = {
        name: torch.from_numpy(values)[entries].to(device)
        for name, values in episode.observation.items()
    }
    action = torch.from_numpy(episode.action)[entries].to(device)  # [N, T, A]
    inputs = {
        name: values[0] for name, values in model.inputs(_batched(observation), generator).items()
    }
    seen = {name: values[:, :context] for name, values in inputs.items()}
    embed = model.encode(seen).expand(particles, -1, -1, -1)  # [P, N, context, embed]
    size = (particles, len(entries), model.config.stoch)
    noise = model.belief_noise((context, *size), generator)
    taken = action.expand(particles, -1, -1, -1)
    filtered = model.filter_sequences(embed, taken[:, :, :context], noise)
    belief = Belief(filtered.deter[:, :, -1], filtered.stoch[:, :, -1])
    drawn = None
    if model.config.latent_noise != "mean":
        drawn = torch.randn((steps, *size), generator=generator, device=device)
    ahead = model.rollout(belief, action[:, context:].transpose(0, 1), drawn)  # [H, P, N, F]
    features = torch.cat([filtered.features, ahead.permute(1, 2, 0, 3)], 2)
    real = torch.from_numpy(episode.reward)[entries].to(device)
    return OpenLoop(model, context, features, model.head("reward").predict(features), real, inputs)


def _batched(observation: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return observations with a leading axis of one particle, as in learning."""
    return {name: values[None] for name, values in observation.items()}
