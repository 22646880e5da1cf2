"""A process other than rank 0: it has a learner and reads episodes, and nothing else of a run."""

from __future__ import annotations

from contextlib import suppress

import torch

from planet_bayes.data.folder import RunFolder
from planet_bayes.data.replay import Replay
from planet_bayes.errors import NumericalError
from planet_bayes.spaces import Signature
from planet_bayes.training import weights
from planet_bayes.training.build import build_model
from planet_bayes.training.distributed import Change, End, Processes, Start
from planet_bayes.training.learner import Learner


def follow(processes: Processes, device: torch.device) -> bool:
    """Do what rank 0 announces until it leaves; return whether the run has ended."""
    message = processes.receive()
    if isinstance(message, Start):
        learner, replay = _prepare(message, processes, device)
        while isinstance(message := processes.receive(), Change):
            replay.follow(message.episodes)
            if message.update is None:
                learner.rescale(replay)
            else:
                with suppress(NumericalError):  # all processes raise it; rank 0 deals with it
                    learner.update(replay, message.update)
    assert isinstance(message, End)
    return message.finished


def _prepare(start: Start, processes: Processes, device: torch.device) -> tuple[Learner, Replay]:
    config, signature = start.config, Signature.from_json(start.signature)
    learner = Learner(build_model(config, signature, device), config, processes)
    weights.load_learner(start.checkpoint, learner)
    processes.wait()
    folder, ram_bytes = RunFolder(start.path).episodes, int(config.run.replay_ram * 1e9)
    return learner, Replay(folder, ram_bytes, next(iter(signature.observation)))
