"""Data parallelism: several processes learn one run, each from its part of every batch.

Rank 0 trains as a single process does. Before each change of its learner it announces the change,
and the others, which `planet_bayes.training.follower` runs, do the same. Their gradients are
averaged, so all have the same weights at all times.

Terms of the loss are means over the real entries of a part of a batch. Each process multiplies them
by its share of the real entries, so that the mean over processes is the mean over the batch.

Gradients are averaged after the backward pass, in one message together with the losses. PyTorch's
DistributedDataParallel would send them during the backward pass, in messages of 25 MB; those of the
presets take 2 to 30 MB, so it could hide little. It also loads PyTorch's compiler, which takes
seconds, and needs the loss as a forward pass.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Generator, Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.errors import ConfigError, PlanetBayesError
from planet_bayes.models import LossConfig, WorldModel
from planet_bayes.models.noise import PartGenerator
from planet_bayes.types import SequenceBatch

LONGEST_WAIT = timedelta(days=365)
"""Time between two announcements. Rank 0 collects and evaluates meanwhile."""
_GROUP_NUMBERS = itertools.count()


class ProcessesError(PlanetBayesError):
    """Another process of the run has ended."""


@dataclass(frozen=True)
class Start:
    """What the other processes need to make the learner of rank 0."""

    config: Config
    path: Path
    """The run's folder, which all processes can read."""
    signature: str
    """The signature as JSON: only rank 0 has an environment."""
    checkpoint: Path
    """The state of the learner."""


@dataclass(frozen=True)
class Change:
    """A change of the learner."""

    update: int | None
    """Number of the update. None: the scales are taken from the episodes."""
    episodes: list[str | None]
    """Digests of the episodes since the last change; None for one that is lost."""


@dataclass(frozen=True)
class End:
    """Rank 0 leaves."""

    finished: bool
    """Whether the run has ended; else it was stopped."""


def num_processes() -> int:
    """Return how many processes torchrun has started for this run; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def num_local_processes() -> int:
    """Return how many of them are on this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if num_processes() > 1 else 1


def is_follower() -> bool:
    """Return whether this process is one of several and not rank 0."""
    return num_processes() > 1 and os.environ["RANK"] != "0"


def own_device(device: torch.device) -> torch.device:
    """Return the device of this process: of several on a machine each has a GPU of its own."""
    if num_processes() == 1 or device.type != "cuda":
        return device
    if device.index is not None:
        raise ConfigError(
            f"run.device is {device}, one GPU for {num_processes()} processes; set it to cuda."
        )
    count, wanted = torch.cuda.device_count(), num_local_processes()
    if wanted > count:
        raise ConfigError(
            f"{wanted} processes need as many GPUs, and this machine has {count}; lower "
            "torchrun --nproc-per-node."
        )
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


class Processes:
    """The processes that learn one run together, seen from one of them.

    PyTorch's default process group must be initialised. Making this is collective.
    """

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._announcements = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
        self._announced_episodes = 0

    # Announcements.

    def announce(self, message: Start | Change | End) -> None:
        """Send a message to all other processes, as rank 0."""
        with _explained():
            dist.broadcast_object_list([message], 0, self._announcements)

    def announce_change(self, replay: Replay, update: int | None) -> None:
        """Have the other processes do what rank 0 is about to do. Elsewhere, do nothing."""
        if self.rank == 0:
            episodes = replay.digests(self._announced_episodes)
            self._announced_episodes += len(episodes)
            self.announce(Change(update, episodes))

    def receive(self) -> Start | Change | End:
        """Wait for the next message of rank 0 and return it."""
        box: list[Any] = [None]
        with _explained():
            dist.broadcast_object_list(box, 0, self._announcements)
        return box[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        with _explained():
            dist.barrier(self._announcements)

    # One update.

    def rows(self, size: int) -> slice:
        """Return this process's part of ``size`` sequences."""
        if size % self.count:
            raise ConfigError(
                f"{size} sequences cannot be divided among {self.count} processes; set "
                "learn.batch_size to a multiple, or start another number of processes. With "
                "learn.batch_sharing split, what is divided is each member's part of it."
            )
        part = size // self.count
        return slice(self.rank * part, (self.rank + 1) * part)

    def loss(
        self, model: WorldModel, batch: SequenceBatch, config: LossConfig, generator: Generator
    ) -> dict[str, Tensor]:
        """Return the terms of the loss. Their means over processes are those of the whole batch.

        Args:
            model: The model.
            batch: This process's part of the batch.
            config: The objective.
            generator: The source of noise, as a single process begins the whole batch with it.
        """
        own = PartGenerator.of(generator, self.rank, self.count)
        terms, share = model.loss(batch, config, own), self._share(batch.mask)
        return {name: term * share for name, term in terms.items()}

    def _share(self, mask: Tensor) -> Tensor:
        """Return the real entries of this part, relative to the mean over parts, ``[P or 1]``."""
        entries = mask.sum((1, 2))
        total = entries.clone()
        with _explained():
            dist.all_reduce(total)
        return entries / (total / self.count)

    def average(
        self, gradients: Sequence[Tensor], terms: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Replace gradients by their means over processes, and return the means of ``terms``."""
        values = [*gradients, *(term.detach() for term in terms.values())]
        flat = torch.cat([value.flatten() for value in values])  # one message, not one for each
        with _explained():
            dist.all_reduce(flat)
        parts = (flat / self.count).split([value.numel() for value in values])
        means = [part.view_as(value) for part, value in zip(parts, values, strict=True)]
        for gradient, mean in zip(gradients, means, strict=False):
            gradient.copy_(mean)
        return dict(zip(terms, means[len(gradients) :], strict=True))


@contextmanager
def _explained() -> Iterator[None]:
    """Turn PyTorch's error about a lost connection into one that says what to do."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessesError(
            "another process of the run has ended; look at what it printed, then resume the run. "
            f"({str(error).splitlines()[0]})"
        ) from error


@contextmanager
def joined(device: torch.device) -> Iterator[Processes | None]:
    """Join the processes that torchrun has started; yield None if there is only this one.

    A process that leaves by an error closes its connections, which is an error for the others.
    """
    if num_processes() == 1:
        yield None
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, count = next(rendezvous("env://"))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        # torchrun's store outlives a group, and keeps its addresses under the names of the next.
        store=PrefixStore(f"planet-bayes-{next(_GROUP_NUMBERS)}", store),
        rank=rank,
        world_size=count,
    )
    try:
        yield Processes()
    finally:
        dist.destroy_process_group()
