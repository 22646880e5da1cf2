"""The cost of planning, learning, sampling and simulating, compared with the machine's rate.

Times are medians of repeats after a warm-up. The machine's rate at a plain matrix product is
measured between the repeats, in the same process with the same threads. The ``floor`` of a plan or
an update is the time that its arithmetic alone would take at that rate.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.agent import Agent
from planet_bayes.bench import flops
from planet_bayes.bench.memory import PeakMemory
from planet_bayes.bench.report import GEMM, Cost, Report
from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.machine import keep_freed_memory
from planet_bayes.models import Image, Modality, Vector
from planet_bayes.models.kernels import native
from planet_bayes.planner import plan
from planet_bayes.rng import numpy_stream, torch_stream
from planet_bayes.spaces import Box, Signature
from planet_bayes.training.build import build_model
from planet_bayes.training.learner import Learner
from planet_bayes.types import Belief, Episode

EPISODE_STEPS = 250
"""Agent steps of an episode in the replay: 1000 of the simulator at an action repeat of 4."""
VECTOR_SIZE = 8
"""Numbers in an observation that is not an image."""


def bench(
    config: Config,
    preset: str,
    *,
    num_actions: int = 6,
    repeats: int = 5,
    episodes: int = 1000,
    single: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure the work of a configuration.

    Args:
        config: The settings.
        preset: Name of the preset that they come from, for the report.
        num_actions: Dimensions of the action.
        repeats: How often a plan is timed after the warm-up; an update about half as often.
        episodes: Episodes in the replay that is sampled from.
        single: Also measure one member, at equal numbers of trajectories and decoded frames.
        progress: Receives the name of what is measured next.
    """
    if repeats < 1 or episodes < 1 or num_actions < 1:
        raise ConfigError("repeats, episodes and actions must be at least 1.")
    if config.run.device not in ("auto", "cpu"):
        raise ConfigError(f"bench measures the CPU; run.device is {config.run.device!r}.")
    keep_freed_memory()
    members = config.model.num_members
    report = Report(torch.get_num_threads(), native.chosen(), preset, members)
    progress("environment")
    _measure_env(report, config, repeats)
    sizes = [members, 1] if single and members > 1 else [members]
    planners = {size: planning(config, size, num_actions) for size in sizes}
    progress("planning")
    report.plan = interleaved(report, planners, repeats)
    del planners
    with tempfile.TemporaryDirectory(prefix="planet-bayes-bench-") as folder:
        progress(f"writing {episodes} episodes to sample from")
        small = _sampling(report, config, num_actions, repeats, episodes, Path(folder), progress)
        progress("learning")
        updates = {size: updating(config, size, num_actions, small) for size in sizes}
        report.update = interleaved(report, updates, max(1, repeats // 2 + 1))
    return report


def _sampling(
    report: Report,
    config: Config,
    num_actions: int,
    repeats: int,
    episodes: int,
    folder: Path,
    progress: Callable[[str], None],
) -> Replay:
    """Time sampling from many episodes; return a few of them, which take little memory."""
    replay = fill(folder, config, num_actions, episodes)
    report.episodes = len(replay)
    progress("sampling")
    learner = _learner(config, config.model.num_members, num_actions)
    numbers = iter(range(10_000))
    report.sample = _cost(lambda: learner.sample(replay, next(numbers)), 2 * repeats)
    small = Replay(folder / "small")
    for index in range(min(5, len(replay))):
        small.add(replay.episode(index))
    return small


Work = tuple[Callable[[], object], float]
"""Something to time, and the operations that it needs."""


def interleaved(report: Report, works: dict[int, Work], repeats: int) -> dict[int, Cost]:
    """Time each in turn, so that a slow phase of the machine affects all alike."""
    times: dict[int, list[float]] = {key: [] for key in works}
    peaks: dict[int, float] = {}
    for number in range(repeats + 1):
        for key, (work, _) in works.items():
            if number == 0:  # the warm-up, in which memory is measured
                with PeakMemory() as memory:
                    work()
                peaks[key] = memory.megabytes
                continue
            report.gemm_rates.append(_gemm_rate())
            times[key].append(_time(work))
    report.gemm_rates.append(_gemm_rate())
    return {
        key: Cost(statistics.median(times[key]), _spread(times[key]), peaks[key], operations)
        for key, (_, operations) in works.items()
    }


def _cost(work: Callable[[], object], repeats: int) -> Cost:
    work()
    with PeakMemory() as memory:
        times = [_time(work) for _ in range(repeats)]
    return Cost(statistics.median(times), _spread(times), memory.megabytes)


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _spread(times: list[float]) -> float:
    low, high = np.quantile(times, [0.25, 0.75])
    return float(high - low) / 2


def _gemm_rate() -> float:
    rows, inner, columns = GEMM
    left, right = torch.ones(rows, inner), torch.ones(inner, columns)
    out = torch.empty(rows, columns)
    times = [_time(lambda: torch.mm(left, right, out=out)) for _ in range(25)]
    return 2 * rows * inner * columns / statistics.median(times[5:])


def resized(config: Config, members: int) -> Config:
    """Return the same work with another number of members: trajectories, frames decoded.

    All members see one batch, whatever E, and each decodes its share of it: of the whole batch, or
    of the frames that the settings decode if these are fewer.
    """
    decoded = min(1.0, config.model.num_members * config.loss.decode_fraction)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, num_members=members),
        loss=dataclasses.replace(config.loss, decode_fraction=decoded / members),
        learn=dataclasses.replace(config.learn, batch_sharing="shared"),
    )


def _signature(config: Config, num_actions: int) -> Signature:
    """Return a signature of the settings' sizes; no environment is needed for it."""
    env = config.env
    observation: dict[str, Modality] = {
        name: Image(env.image_size, env.blur) if source == "pixels" else Vector(VECTOR_SIZE)
        for name, source in env.sources.items()
    }
    return Signature(observation, Box((-1.0,) * num_actions, (1.0,) * num_actions))


@dataclass
class _Counter:
    """A model that counts the candidates that the planner asks for."""

    num_particles: int
    candidates: int = 0

    def imagine(self, state: None, actions: Tensor, generator: Generator) -> Tensor:
        """Return zero rewards ``[B, N, P, H]``."""
        batch, num, horizon, _ = actions.shape
        self.candidates += num
        return torch.zeros(batch, num, self.num_particles, horizon)


def planning(config: Config, members: int, num_actions: int) -> Work:
    """Return one planning call of ``members``, from an arbitrary belief, untrained."""
    config = resized(config, members)
    signature = _signature(config, num_actions)
    model = build_model(config, signature, "cpu")
    bounds = Agent(model, signature, config.planner).bounds
    generator = torch_stream(config.seed, "bench-plan")
    belief = Belief(
        deter=torch.randn(members, 1, config.model.deter, generator=generator).tanh(),
        stoch=torch.randn(members, 1, config.model.stoch, generator=generator),
    )
    counter = _Counter(members)
    plan(counter, None, bounds, config.planner, torch.Generator())
    operations = flops.imagining(model, counter.candidates * members, config.planner.horizon)

    def work() -> object:
        with torch.inference_mode():
            return plan(model.imagination(), belief, bounds, config.planner, generator)

    return work, operations


def _learner(config: Config, members: int, num_actions: int) -> Learner:
    config = resized(config, members)
    return Learner(build_model(config, _signature(config, num_actions), "cpu"), config)


def updating(config: Config, members: int, num_actions: int, replay: Replay) -> Work:
    """Return one gradient update of ``members``, sampling included."""
    learner = _learner(config, members, num_actions)
    learn = learner.config.learn
    frames = learn.batch_size * learn.sequence_length
    decoded = members * max(1, round(learner.config.loss.decode_fraction * frames))
    modalities = _signature(config, num_actions).observation
    operations = flops.updating(learner.model, modalities, frames, members * frames, decoded)
    numbers = iter(range(10_000))
    return lambda: learner.update(replay, next(numbers)), operations


def fill(folder: Path, config: Config, num_actions: int, episodes: int) -> Replay:
    """Write episodes of noise and return the replay of them."""
    replay = Replay(folder / "episodes", int(config.run.replay_ram * 1e9))
    rng = numpy_stream(config.seed, "bench-episodes")
    length, modalities = EPISODE_STEPS + 1, _signature(config, num_actions).observation
    for _ in range(episodes):
        replay.add(
            Episode(
                {name: _noise(modality, length, rng) for name, modality in modalities.items()},
                rng.uniform(-1, 1, (length, num_actions)).astype(np.float32),
                rng.random(length, np.float32),
                np.zeros(length, np.bool_),
            )
        )
    return replay


def _noise(modality: Modality, length: int, rng: np.random.Generator) -> NDArray[np.generic]:
    shape = (length, *modality.shape)
    if modality.dtype == np.uint8:
        return np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape)
    return rng.standard_normal(shape, np.float32)


def _measure_env(report: Report, config: Config, repeats: int) -> None:
    """Time steps of the task without and with an image of the agent's size."""
    state = dataclasses.replace(config.env, observation=("state",), sensors=())
    pixels = dataclasses.replace(config.env, observation=("pixels",), sensors=())
    steps = 10 * repeats
    report.env_step = _env_cost(config, state, steps)
    try:
        both = _env_cost(config, pixels, steps)
    except EnvError:
        return
    extra = max(0.0, both.seconds - report.env_step.seconds)  # a toy's image costs nothing
    report.render = dataclasses.replace(both, seconds=extra)


def _env_cost(config: Config, settings: EnvConfig, steps: int) -> Cost:
    env = make_env(config.task, settings)
    try:
        env.reset(seed=config.seed)
        env.action_space.seed(config.seed)

        def step() -> None:
            raw, _, terminated, truncated, _ = env.step(env.action_space.sample())
            env.signature.prepare(raw)
            if terminated or truncated:
                env.reset()

        return _cost(step, steps)
    finally:
        env.close()
