"""One gradient update: sample, ELBO, clip, step, average."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from planet_bayes.config import Config
from planet_bayes.errors import ConfigError, NumericalError
from planet_bayes.models import WorldModel
from planet_bayes.replay import Replay
from planet_bayes.rng import numpy_stream, torch_stream
from planet_bayes.types import SequenceBatch


class Learner:
    """The model and its optimiser. Update ``n`` is a function of the state and of ``n``.

    ``model`` has the weights that are learned; ``acting`` is the one to act with, the same or,
    with ``train.averaging``, a copy with the average of these weights over the last updates.
    """

    def __init__(self, model: WorldModel, config: Config) -> None:
        self.model = model
        self.config = config
        self.device = model.rssm.input.weight.device
        for option in ("mixed_precision", "compile"):
            if getattr(config.train, option) and self.device.type == "cpu":
                raise ConfigError(
                    f"train.{option} is for GPUs, where it saves time; on a CPU it would cost "
                    "time. Leave it off, or set device to cuda."
                )
        self.acting = copy.deepcopy(model).eval() if config.train.averaging else model
        if config.train.compile:
            for one in {model, self.acting}:
                one.rssm.compile_steps()
        self.optimiser = torch.optim.Adam(
            model.parameters(),
            lr=config.train.learning_rate,
            eps=config.train.adam_epsilon,
            fused=True,
        )

    def sample(self, replay: Replay, number: int) -> SequenceBatch:
        """Draw the batch of update ``number`` as ``batch_sharing`` says."""
        train, members = self.config.train, self.model.members
        groups = 1 if train.batch_sharing == "shared" else members
        size = train.batch_size // members if train.batch_sharing == "split" else train.batch_size
        rng = numpy_stream(self.config.seed, "replay", number)
        batch = replay.sample(
            rng,
            groups,
            size,
            train.sequence_length,
            early=train.seed_episodes,
            weight=train.agent_weight,
            onset_share=train.onset_share,
        )
        return SequenceBatch(
            observation=batch.observation.to(self.device, non_blocking=True),
            action=batch.action.to(self.device, non_blocking=True),
            reward=batch.reward.to(self.device, non_blocking=True),
            mask=batch.mask.to(self.device, non_blocking=True),
        )

    def rescale(self, replay: Replay) -> None:
        """Take the scales of sensors and rewards from the episodes, if the model has any."""
        if self.model.scaling is None:
            return
        found = replay.moments()
        for model in {self.model, self.acting}:
            assert model.scaling is not None
            model.scaling.set(found.observation_mean, found.observation_std, found.reward_std)

    def update(self, replay: Replay, number: int) -> dict[str, float]:
        """Do update ``number`` and return the losses' means over members.

        A term or a gradient that is not finite raises, and leaves weights and moments alone.
        """
        batch = self.sample(replay, number)
        generator = torch_stream(self.config.seed, "learn", number, device=self.device)
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.config.train.mixed_precision
        ):
            terms = self.model.loss(batch, self.config.loss, generator)
        self.optimiser.zero_grad(set_to_none=True)
        terms["total"].sum().backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.gradient_clip)
        values = _as_floats(terms, norm)
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if broken:
            culprits = [name for name in broken if name != "total"] or broken
            raise NumericalError(f"update {number}: {', '.join(culprits)} is not finite.")
        self.optimiser.step()
        if self.acting is not self.model:
            self._average(number)
        return values

    @torch.no_grad()
    def _average(self, number: int) -> None:
        """Move the acting weights towards the learned ones; faster at first, to forget chance."""
        past = min(self.config.train.averaging, (1 + number) / (10 + number))
        learned = list(self.model.parameters())
        get_ema_multi_avg_fn(past)(list(self.acting.parameters()), learned, None)


def _as_floats(terms: dict[str, Tensor], norm: Tensor) -> dict[str, float]:
    names = [*terms, "gradient_norm"]
    stacked = torch.stack([*(term.detach().mean() for term in terms.values()), norm])
    return dict(zip(names, stacked.tolist(), strict=True))  # one transfer, not one per term
