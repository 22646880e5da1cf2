"""What the processes of `test_distributed` do: ``python distributed_runs.py NAME FOLDER``.

The environment is torchrun's, or `environment`. Rank 0 writes what it found to the folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from model_building import ACTIONS, BOTH, IMAGE, VECTOR, Modalities, build
from planet_bayes import runs
from planet_bayes.data.replay import Replay
from planet_bayes.errors import PlanetBayesError
from planet_bayes.training import Event, distributed, learner, loop
from planet_bayes.training.distributed import Change, Processes
from planet_bayes.training.events import Updated
from planet_bayes.training.learner import Learner
from planet_bayes.types import Episode
from tiny_run import TINY, replaced

UPDATES = 3
SMALL_NORM = 0.5
CASES: dict[str, tuple[Modalities, dict[str, Any]]] = {
    "own": (VECTOR, {}),
    "clipped": (VECTOR, {}),
    "shared, dither": (IMAGE, {"learn": {"batch_sharing": "shared"}}),
    "split, 8 bits": (BOTH, {"model": {"image_bits": 8}, "learn": {"batch_sharing": "split"}}),
    "dropout": (VECTOR, {"model": {"posterior": "dropout", "dropout_rate": 0.3}}),
    "sgmcmc": (VECTOR, {"model": {"posterior": "sgmcmc"}, "learn": {"cycle_updates": 2}}),
    "half of the frames": (VECTOR, {"loss": {"decode_fraction": 0.5}}),
}
"""By name, what a learner sees and the settings that differ."""

SMOOTH = replaced(TINY, model={"activation": "elu"}, planner={"optimality": "exponential"})
"""A run in which rounding stays small. Elites and ReLUs are steps: a last digit can switch them."""
OVERLAP = replaced(SMOOTH, collect={"overlap": True})


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for a process."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    return {name: str(value) for name, value in (names | where).items()}


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def short_episodes(folder: Path, modalities: Modalities) -> Replay:
    """Return a replay of episodes that are shorter than the sequences, by various amounts."""
    replay, rng = Replay(folder), np.random.default_rng(0)
    for length in (2, 3, 5, 8, 12):
        observation: dict[str, Any] = {
            name: rng.integers(0, 256, (length, *modality.shape), np.uint8)
            if modality.dtype == np.uint8
            else rng.normal(size=(length, *modality.shape)).astype(np.float32)
            for name, modality in modalities.items()
        }
        action = rng.uniform(-1, 1, (length, ACTIONS)).astype(np.float32)
        reward = rng.normal(size=length).astype(np.float32)
        replay.add(Episode(observation, action, reward, np.zeros(length, np.bool_)))
    return replay


def learn(case: str, folder: Path, processes: Processes | None) -> dict[str, Tensor]:
    """Return a learner's first gradient, its losses, and its weights after some updates."""
    modalities, changes = CASES[case]
    config = replaced(TINY, learn={"batch_size": 8, "sequence_length": 10}, model={})
    config = replaced(config, **changes)
    model = build(2, modalities, **changes.get("model", {}))
    one = Learner(model, config, processes)
    replay = short_episodes(folder / case, modalities)
    if processes is not None:
        masks = [torch.zeros_like(one.sample(replay, 0).mask) for _ in range(processes.count)]
        torch.distributed.all_gather(masks, one.sample(replay, 0).mask)
        assert masks[0].sum() != masks[1].sum()  # else a mean over processes needs no weights
    learner.MAX_GRADIENT_NORM = SMALL_NORM if case == "clipped" else 1000.0
    found: dict[str, Tensor] = {}
    for number in range(UPDATES):
        if processes is not None and processes.rank:
            assert processes.receive() == Change(number, [] if number else replay.digests())
        losses = one.update(replay, number)
        found |= {f"loss.{number}.{name}": torch.tensor(x) for name, x in losses.items()}
        if number == 0:
            gradients = {name: value.grad for name, value in model.named_parameters()}
            found |= {f"gradient.{n}": g.clone() for n, g in gradients.items() if g is not None}
    found |= {f"weights.{name}": value for name, value in one.acting_model.state_dict().items()}
    return {name: value.detach().clone() for name, value in found.items()}


def learners(folder: Path) -> None:
    """Learn each case, and write what every process found."""
    with distributed.joined(torch.device("cpu")) as processes:
        assert processes is not None
        for case in CASES:
            own = folder / f"rank-{processes.rank}"
            found = learn(case, own, Processes())  # a new one: it counts the replay's episodes
            save_file(found, own / f"{case}.safetensors")


def killed(folder: Path) -> None:
    """Kill rank 0 in the middle of the second iteration."""
    runs.train(SMOOTH, folder / "killed", report=at_update(2, kill))


def whole_runs(folder: Path) -> None:
    """Train several runs, and go on with the one that was killed."""
    try:
        runs.train(replaced(SMOOTH, learn={"batch_size": 5}), folder / "odd")
        error = ""
    except PlanetBayesError as refused:
        error = str(refused)
    ended = {}
    _, ended["plain"] = runs.train(SMOOTH, folder / "plain")
    _, ended["overlap"] = runs.train(OVERLAP, folder / "overlap")
    stop = StopAfter(6)
    _, ended["half"] = runs.train(
        SMOOTH, folder / "stopped", should_stop=stop.should_stop, report=stop.report
    )
    for name in ("stopped", "killed"):
        path = folder / name
        _, ended[name] = runs.train(runs.resume_config(path), path, resume=True)
    found = {"ended": ended, "error": error}
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))


class StopAfter:
    """Asks to stop after a number of updates."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def report(self, event: Event) -> None:
        """Count the updates."""
        self.left -= isinstance(event, Updated)

    def should_stop(self) -> bool:
        """Return whether there were enough."""
        return self.left <= 0


def at_update(done: int, act: Callable[[], None]) -> Callable[[Event], None]:
    """Return a report that acts after an update of the second iteration."""

    def report(event: Event) -> None:
        if isinstance(event, Updated) and (event.iteration, event.done) == (1, done):
            act()

    return report


def kill() -> None:
    """End this process as the system would."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Do what the first argument names."""
    torch.set_num_threads(1)
    loop.film = lambda run: None  # a film changes nothing
    work: dict[str, Callable[[Path], None]] = {
        "learners": learners,
        "killed": killed,
        "whole_runs": whole_runs,
    }
    work[sys.argv[1]](Path(sys.argv[2]))


if __name__ == "__main__":
    main()
