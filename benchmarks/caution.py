"""What caution over the members of an ensemble gains beside a cliff.

A small ensemble is trained on `examples/cliff.py`. The same trained models are then evaluated with
several risks over particles (``planner.caution`` and ``planner.tail``), on the same starts with the
same wind. For each risk the table has, with 95 % intervals over training seeds (Student's t):

- falls: share of episodes that end beyond the edge;
- return, and return of the episodes without a fall;
- distance to the edge, mean over the second half of an episode (steps before a fall);
- falls and return less those of the same models without caution.

A second table compares the members with the truth. Wherever the agent without caution came near the
edge, constant actions are imagined by the members and simulated with fresh wind. Rows are bins of
the real probability to fall within the horizon.

Run:  python benchmarks/caution.py                  # from the root of the repository
      python benchmarks/caution.py --read           # the tables again
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.caution_tables import NEUTRAL, show
from examples.cliff import EDGE, NUM_STEPS, WIND, Cliff, moved, reward_at

from planet_bayes.agent import Agent, Carry
from planet_bayes.config import PRESETS, Config
from planet_bayes.data.episode import read_episode
from planet_bayes.data.folder import RunFolder
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.rng import integer_seed, numpy_stream, torch_stream
from planet_bayes.runs import load_run, train
from planet_bayes.training.collect import play

RISKS = (
    *((caution, 1.0) for caution in (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0)),
    *((0.0, tail) for tail in (0.5, 0.0)),
)
"""Caution β and tail α of each evaluation."""
NEAR = 0.6
"""Largest distance to the edge where the members are compared with the truth."""
PUSHES = np.linspace(-1, 1, 9)
"""Constant actions that are imagined and simulated there."""
COPIES = 64
"""Simulations of each of them."""
BINS = (0.0, 0.02, 0.25, 0.75, 1.0)
"""Borders of the bins of the real probability to fall."""
SAFE_DISTANCE = 0.1
"""Distance to the edge that the controller keeps to which the state is known."""

Array = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What is measured."""

    seeds: tuple[int, ...] = (300, 301, 302, 303, 304)
    """Seeds of training."""
    trained_with: float = 0.0
    """Caution of the agent that collects the training episodes."""
    episodes: int = 20
    """Starts."""
    folder: Path = Path("results/caution")
    """Where each finished seed is a file. A seed that is there already is not trained again."""
    read: bool = False
    """Only print the tables of this folder."""


def settings(seed: int, caution: float) -> Config:
    """Return the settings of training: `quick`, smaller."""
    quick = PRESETS["quick"]
    return dataclasses.replace(
        quick,
        task="examples.cliff:make",
        seed=seed,
        env=EnvConfig(observation=("state",)),
        model=dataclasses.replace(
            quick.model, deter=32, stoch=8, hidden=32, dense_units=32, reward_units=32
        ),
        planner=dataclasses.replace(
            quick.planner, horizon=12, num_trajectories=200, num_iterations=4, caution=caution
        ),
        collect=dataclasses.replace(quick.collect, seed_episodes=60, episodes=20),
        learn=dataclasses.replace(
            quick.learn,
            first_updates=500,
            updates_per_episode=30,
            learning_rate=3e-3,
            batch_size=16,
            sequence_length=20,
        ),
        run=dataclasses.replace(quick.run, device="cpu", evaluate_every=0, evaluation_episodes=1),
    )


def start_seeds(episodes: int) -> list[int]:
    """Return the seeds of the starts, which are the same for all models."""
    return [integer_seed(0, "caution-starts", index) for index in range(episodes)]


def outcome(cliffs: Iterable[Cliff], returns: list[float]) -> Row:
    """Return the figures of one episode in each environment."""
    late = [[EDGE - one for one in cliff.path[NUM_STEPS // 2 :]] for cliff in cliffs]
    before = [[one for one in distances if one >= 0] for distances in late]
    return {
        "returns": returns,
        "falls": [cliff.fell for cliff in cliffs],
        "distances": [float(np.mean(one)) if one else None for one in before],
    }


def evaluated(agent: Agent, config: Config, episodes: int, probe: Probe | None = None) -> Row:
    """Return the figures of noise-free episodes of an agent."""
    with contextlib.ExitStack() as stack:
        envs: list[Any] = [
            stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            for _ in range(episodes)
        ]
        cliffs = [env.unwrapped for env in envs]

        def on_step(_: object, carry: Carry, __: object) -> None:
            if probe is not None:
                probe.add(carry, cliffs)

        generator = torch_stream(0, "caution-agent")
        returns = play(envs, agent, start_seeds(episodes), generator, on_step=on_step)
    return outcome(cliffs, returns)


def baseline(policy: Callable[[Cliff, np.random.Generator], float], episodes: int) -> Row:
    """Return the figures of a policy that sees the environment itself."""
    cliffs, returns = [], []
    for seed in start_seeds(episodes):
        cliff, total, ended = Cliff(), 0.0, False
        cliff.reset(seed=seed)
        rng = numpy_stream(seed, "caution-baseline")
        while not ended:
            action = np.array([policy(cliff, rng)], np.float32)
            _, reward, terminated, truncated, _ = cliff.step(action)
            total, ended = total + reward, terminated or truncated
        cliffs.append(cliff)
        returns.append(total)
    return outcome(cliffs, returns)


def keep_distance(cliff: Cliff, _: np.random.Generator) -> float:
    """Return the action of a controller that knows position and speed."""
    return 6 * (EDGE - SAFE_DISTANCE - cliff.path[-1]) - 4 * cliff.speed


BASELINES: dict[str, Callable[[Cliff, np.random.Generator], float]] = {
    "random": lambda _, rng: float(rng.uniform(-1, 1)),
    "zero": lambda _, __: 0.0,
    "state known": keep_distance,
}


def truth(
    position: Array, speed: Array, horizon: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the real mean return of each constant action ``[K, N]``, and how often it falls."""
    shape = (len(position), len(PUSHES), COPIES)
    place = np.broadcast_to(position[:, None, None], shape)
    pace = np.broadcast_to(speed[:, None, None], shape)
    total, fallen = np.zeros(shape), np.zeros(shape, np.bool_)
    for _ in range(horizon):
        place, pace = moved(place, pace, PUSHES[:, None], WIND * rng.standard_normal(shape))
        total += np.where(fallen, 0.0, reward_at(place))
        fallen = fallen | (place > EDGE)
    return total.mean(-1), fallen.mean(-1)


class Probe:
    """Collects what the members imagine near the edge, and the truth."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.agent, self.rng = agent, numpy_stream(seed, "caution-probe")
        self.found: list[Array] = []
        """Mean and std of members, truth, share of falls: each ``[4, K · N]``."""

    @torch.inference_mode()
    def add(self, carry: Carry, cliffs: list[Cliff]) -> None:
        """Compare at the present states that are near the edge."""
        near = [index for index, one in enumerate(cliffs) if 0 <= EDGE - one.path[-1] < NEAR]
        if not near:
            return
        horizon = self.agent.planner.horizon
        pushes = torch.tensor(PUSHES, dtype=torch.float32)[None, :, None, None]
        actions = pushes.expand(len(cliffs), -1, horizon, 1)  # [B, N, H, 1]
        model = self.agent.model.imagination()
        rewards = model.imagine(carry.belief, actions.contiguous(), torch.Generator())
        returns = rewards.sum(-1)[near].double().numpy()  # [K, N, P]
        position = np.array([cliffs[index].path[-1] for index in near])
        speed = np.array([cliffs[index].speed for index in near])
        real, falls = truth(position, speed, horizon, self.rng)
        rows = (returns.mean(-1), returns.std(-1), real, falls)
        self.found.append(np.stack([row.ravel() for row in rows]))

    def row(self) -> list[Row]:
        """Return the figures of each bin of the real probability to fall."""
        predicted, std, real, falls = np.concatenate([np.empty((4, 0)), *self.found], -1)
        bins = np.digitize(falls, BINS[1:-1], right=True)
        rows = []
        for index in range(len(BINS) - 1):
            here = bins == index
            error = predicted[here] - real[here]
            figures = {
                "imagined": predicted[here],
                "real": real[here],
                "squared_error": error**2,
                "variance": std[here] ** 2,
                "inside": np.abs(error) <= 2 * std[here],
            }
            means = {
                name: float(np.mean(one)) if one.size else None for name, one in figures.items()
            }
            rows.append({"points": int(here.sum()), **means})
        return rows


def measured(seed: int, options: Options) -> Row:
    """Train one model and return its figures with each risk."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path, _ = train(settings(seed, options.trained_with), Path(folder) / "run")
        run = load_run(path, device="cpu")
        seen = [read_episode(one) for one in sorted(RunFolder(path).episodes.glob("*.npz"))]
    seconds, rows, first = time.process_time() - began, [], run.config.collect.seed_episodes
    falls = [bool(one.terminal.any()) for one in seen]
    probe = Probe(run.agent, seed)
    for caution, tail in RISKS:
        planner = dataclasses.replace(run.agent.planner, caution=caution, tail=tail)
        agent = Agent(run.agent.model, run.agent.signature, planner)
        found = evaluated(
            agent, run.config, options.episodes, probe if (caution, tail) == NEUTRAL else None
        )
        rows.append({"caution": caution, "tail": tail, **found})
    return {
        "seed": seed,
        "trained_with": options.trained_with,
        "training_seconds": seconds,
        "seconds": time.process_time() - began,
        "falls_of_seed_episodes": sum(falls[:first]),
        "falls_of_agent_episodes": sum(falls[first:]),
        "risks": rows,
        "probe": probe.row(),
    }


def main() -> None:
    """Measure what is missing and print the tables."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Callable[[], Row]] = {
        "baselines": lambda: {
            name: baseline(policy, options.episodes) for name, policy in BASELINES.items()
        }
    }
    name = "seed" if options.trained_with == 0 else f"trained-with-{options.trained_with:g}-seed"
    for seed in options.seeds:
        made[f"{name}-{seed}"] = lambda seed=seed: measured(seed, options)
    rows = []
    for name, make in made.items():
        path = options.folder / f"{name}.jsonl"
        if not path.is_file() and not options.read:
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(make()) + "\n")
            os.replace(partial, path)
        if path.is_file():
            rows.append(json.loads(path.read_text()))
    print(show(rows[1:], rows[0], BINS))


if __name__ == "__main__":
    main()
