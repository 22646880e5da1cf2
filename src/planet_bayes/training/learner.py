"""One gradient update: sample, ELBO, clip, step, average."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.errors import NumericalError
from planet_bayes.models import Snapshots, WorldModel
from planet_bayes.rng import numpy_stream, torch_stream
from planet_bayes.training.adam import Adam
from planet_bayes.training.clipping import clip_by_particle
from planet_bayes.training.distributed import Processes
from planet_bayes.training.sgmcmc import CyclicalSGHMC
from planet_bayes.types import SequenceBatch

MAX_GRADIENT_NORM = 1000.0
"""PlaNet's. Each particle's weights have a norm of their own, and so have the shared networks."""


class Learner:
    """The model and its optimiser. Update ``n`` is a function of the state and of ``n``.

    ``model`` has the weights that are learned. ``acting_model`` is the one to act with: the same,
    or with ``learn.ema_decay`` a copy with the moving average of the learned weights.
    ``sampler`` moves the chain of the posterior `sgmcmc`; Adam moves everything else.

    With ``processes``, each of them has a learner, and `rescale` and `update` are collective.
    """

    def __init__(
        self, model: WorldModel, config: Config, processes: Processes | None = None
    ) -> None:
        self.model, self.config, self.device = model, config, model.device
        self.processes = processes
        self.acting_model = copy.deepcopy(model).eval() if config.learn.ema_decay else model
        learn, posterior = config.learn, model.posterior
        priors = posterior.priors() if isinstance(posterior, Snapshots) else {}
        others = (parameter for parameter in model.parameters() if parameter not in priors)
        self.optimiser = Adam(others, learn.learning_rate)
        self.sampler = CyclicalSGHMC(
            priors,
            learn.learning_rate,
            learn.cycle_updates,
            learn.posterior_temperature,
            config.seed,
            self.optimiser.state,
        )
        self._own = model.particle_parameters()
        own = set(self._own)
        self._shared = [parameter for parameter in model.parameters() if parameter not in own]
        split = model.num_fitted if learn.batch_sharing == "split" else 1
        self._sequences = learn.batch_size // split
        self._counts = np.zeros((model.num_fitted, 0), np.int64)
        self._rows = slice(None) if processes is None else processes.rows(self._sequences)

    def sample(self, replay: Replay, number: int) -> SequenceBatch:
        """Draw the batch of update ``number`` as ``learn.batch_sharing`` says.

        Of several processes, each gets its part of the sequences.
        """
        learn = self.config.learn
        groups = 1 if learn.batch_sharing == "shared" else self.model.num_fitted
        return replay.sample(
            numpy_stream(self.config.seed, "replay", number),
            groups,
            self._sequences,
            learn.sequence_length,
            seed_episodes=self.config.collect.seed_episodes,
            agent_weight=learn.agent_weight,
            onset_share=learn.onset_share,
            rows=self._rows,
            counts=self._bootstrap(len(replay)) if learn.batch_sharing == "bootstrap" else None,
        ).to(self.device)

    def _bootstrap(self, episodes: int) -> NDArray[np.int64]:
        """Return how often each episode is in each member's bootstrap sample, ``[P, n]``."""
        known = self._counts.shape[1]
        if known < episodes:
            new = bootstrap_counts(self.config.seed, self.model.num_fitted, known, episodes)
            self._counts = np.concatenate([self._counts, new], 1)
        return self._counts[:, :episodes]

    def rescale(self, replay: Replay) -> None:
        """Take the scales of observations and rewards from the episodes, if the model has any."""
        if self.config.model.normalise:
            if self.processes is not None:
                self.processes.announce_change(replay, None)
            moments = replay.moments()
            for model in {self.model, self.acting_model}:
                model.rescale(moments)

    def update(self, replay: Replay, number: int) -> dict[str, float]:
        """Do update ``number`` and return the losses' means over particles.

        A term or a gradient that is not finite raises, and leaves weights and moments alone.
        """
        processes = self.processes
        if processes is not None:
            processes.announce_change(replay, number)
        batch = self.sample(replay, number)
        generator = torch_stream(self.config.seed, "learn", number, device=self.device)
        if processes is None:
            terms = self.model.loss(batch, self.config.loss, generator)
        else:
            terms = processes.loss(self.model, batch, self.config.loss, generator)
        self.model.zero_grad(set_to_none=True)
        terms["total"].sum().backward()
        if processes is not None:
            parameters = self.model.parameters()
            gradients = [one.grad for one in parameters if one.grad is not None]
            terms = processes.average(gradients, terms)
        norms = clip_by_particle(self._own, self._shared, self.model.num_fitted, MAX_GRADIENT_NORM)
        values = _as_floats({**terms, **norms})
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if broken:
            culprits = [name for name in broken if name != "total"] or broken
            raise NumericalError(f"update {number}: {', '.join(culprits)} is not finite.")
        self.optimiser.step()
        self._sample_posterior(number, replay.num_steps)
        if self.acting_model is not self.model:
            self._average(number)
        return values

    def _sample_posterior(self, number: int, num_data: int) -> None:
        """Move the chain of the posterior `sgmcmc`, if there is one, and take its snapshot."""
        if isinstance(self.model.posterior, Snapshots):
            now = self.sampler.step(number, num_data)
            self.model.posterior.keep(now.ends)

    @torch.no_grad()
    def _average(self, number: int) -> None:
        """Move the acting weights towards the learned ones; faster in the first updates.

        Buffers of the posterior (snapshots, masks) are copied.
        """
        past = min(self.config.learn.ema_decay, (1 + number) / (10 + number))
        learned = list(self.model.parameters())
        get_ema_multi_avg_fn(past)(list(self.acting_model.parameters()), learned, None)
        for acting, buffer in zip(
            self.acting_model.posterior.buffers(), self.model.posterior.buffers(), strict=True
        ):
            acting.copy_(buffer)


def bootstrap_counts(seed: int, groups: int, first: int, last: int) -> NDArray[np.int64]:
    """Return how often episodes ``first:last`` are in each group's sample, ``[groups, n]``.

    The counts are Poisson with mean 1: those of a bootstrap sample, of which the size is not fixed.
    Those of an episode depend on its number alone, so that episodes can be added.
    """
    drawn = [numpy_stream(seed, "bootstrap", i).poisson(1.0, groups) for i in range(first, last)]
    return np.array(drawn, np.int64).reshape(-1, groups).T


def _as_floats(terms: dict[str, Tensor]) -> dict[str, float]:
    stacked = torch.stack([term.detach().mean() for term in terms.values()])
    return dict(zip(terms, stacked.tolist(), strict=True))  # one transfer, not one per term
