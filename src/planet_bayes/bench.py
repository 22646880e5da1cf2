"""What planning, learning, sampling and simulating cost, beside what the machine can do.

Times are medians of repeats after a warm-up. The machine's rate at a plain matrix product is
measured between the repeats, in the same process with the same threads; the ``floor`` of a
plan or an update is the time that its arithmetic alone would take at that rate.
"""

from __future__ import annotations

import dataclasses
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.table import Table

from planet_bayes.agent import Agent
from planet_bayes.config import METHODS, Config, MethodName
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.memory import PeakMemory
from planet_bayes.models import WorldModel, arithmetic
from planet_bayes.planner import plan
from planet_bayes.replay import Replay
from planet_bayes.rng import numpy_stream, torch_stream
from planet_bayes.training.learner import Learner
from planet_bayes.types import Belief, Episode

GEMM = (1000, 400, 600)
"""Rows, inner size and columns of the product that stands for the machine's rate."""
EPISODE_STEPS = 250
"""Agent steps of an episode in the replay: 1000 of the simulator at an action repeat of 4."""


@dataclass(frozen=True)
class Cost:
    """One measurement."""

    seconds: float
    """Median."""
    spread: float
    """Half the distance between the quartiles."""
    peak_mb: float
    """Largest resident memory of the process meanwhile, in megabytes."""
    flops: float = 0.0
    """Operations of the matrix products and convolutions; 0: not counted."""


@dataclass
class Report:
    """All that was measured."""

    threads: int
    preset: str
    ensemble: int
    gemm_rates: list[float] = field(default_factory=list)
    """Operations per second, each sample."""
    plan: dict[int, Cost] = field(default_factory=dict)
    """By number of members."""
    update: dict[int, Cost] = field(default_factory=dict)
    """By number of members, at equal numbers of decoded frames."""
    sample: Cost | None = None
    env_step: Cost | None = None
    """One step of the agent, without an image."""
    render: Cost | None = None
    """What the image adds to a step; None: this machine cannot render."""
    episodes: int = 0
    """Episodes in the replay that was sampled from."""

    @property
    def gemm(self) -> float:
        """Operations per second of the machine's plain matrix product: the median."""
        return statistics.median(self.gemm_rates)

    def floor(self, cost: Cost) -> float:
        """Return the seconds that the arithmetic would take at the machine's rate."""
        return cost.flops / self.gemm

    def ratio(self, cost: Cost) -> float:
        """Return measured time over floor."""
        return cost.seconds / self.floor(cost)

    def flat(self) -> dict[str, float | int | str | None]:
        """Return one flat table of numbers, for JSON."""
        one, many = self.plan[self.ensemble], self.update[self.ensemble]
        result: dict[str, float | int | str | None] = {
            "preset": self.preset,
            "threads": self.threads,
            "ensemble": self.ensemble,
            "gemm_gflops": self.gemm / 1e9,
            "plan_s": one.seconds,
            "plan_floor_s": self.floor(one),
            "plan_ratio": self.ratio(one),
            "plan_gflop": one.flops / 1e9,
            "plan_peak_mb": one.peak_mb,
            "update_s": many.seconds,
            "update_floor_s": self.floor(many),
            "update_ratio": self.ratio(many),
            "update_gflop": many.flops / 1e9,
            "update_peak_mb": many.peak_mb,
            "sample_s": self.sample.seconds if self.sample else None,
            "sample_peak_mb": self.sample.peak_mb if self.sample else None,
            "replay_episodes": self.episodes,
            "env_step_ms": 1000 * self.env_step.seconds if self.env_step else None,
            "render_ms": 1000 * self.render.seconds if self.render else None,
            "env_peak_mb": max(
                (c.peak_mb for c in (self.render, self.env_step) if c), default=None
            ),
        }
        if self.ensemble != 1 and 1 in self.plan:
            for name, costs in (("plan", self.plan), ("update", self.update)):
                result[f"{name}_s_single"] = costs[1].seconds
                result[f"{name}_ratio_single"] = self.ratio(costs[1])
                result[f"{name}_over_single"] = costs[self.ensemble].seconds / costs[1].seconds
        return result


def tables(report: Report) -> list[RenderableType]:
    """Return the report for a terminal."""
    main = Table("", "E", "time", "±", "GFLOP", "floor", "ratio", "peak MB", box=None)
    for name, costs in (("one plan", report.plan), ("one update", report.update)):
        for members, cost in costs.items():
            main.add_row(
                name,
                str(members),
                _seconds(cost.seconds),
                _seconds(cost.spread),
                f"{cost.flops / 1e9:.3g}",
                _seconds(report.floor(cost)),
                f"{report.ratio(cost):.2f}",
                f"{cost.peak_mb:.0f}",
            )
    others = {
        f"batch of {report.episodes} episodes": report.sample,
        "step, no image": report.env_step,
        "its image": report.render,
    }
    for name, other in others.items():
        if other is not None:
            times = _seconds(other.seconds), _seconds(other.spread)
            main.add_row(name, "", *times, "", "", "", f"{other.peak_mb:.0f}")
    rows, inner, columns = GEMM
    head = (
        f"{machine()}; threads: {report.threads}; preset: {report.preset}\n"
        f"matrix product {rows}×{inner} by {inner}×{columns}, float32: "
        f"{report.gemm / 1e9:.1f} GFLOP/s\n"
        "an update: one batch for all members, each decoding its share of it\n"
    )
    return [head, main]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def machine() -> str:
    """Return the processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {torch.backends.cpu.get_cpu_capability()}"
    except OSError:
        pass
    return platform.processor() or platform.machine()


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
    """Measure ``config``; with ``single`` also one member at equal trajectories and frames."""
    if repeats < 1 or episodes < 1 or num_actions < 1:
        raise ConfigError("repeats, episodes and actions must be at least 1.")
    if config.device not in ("auto", "cpu"):
        raise ConfigError(f"bench measures the CPU; device is {config.device!r}.")
    report = Report(torch.get_num_threads(), preset, config.members)
    progress("environment")
    _measure_env(report, config, repeats)
    sizes = [config.members, 1] if single and config.members > 1 else [config.members]
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
    learner = _learner(config, config.members, num_actions)
    numbers = iter(range(10_000))
    report.sample = _cost(lambda: learner.sample(replay, next(numbers)), 2 * repeats)
    small = Replay(folder / "small")
    for index in range(min(5, len(replay))):
        small.add(replay.episode(index))
    return small


Work = tuple[Callable[[], object], float]
"""Something to time, and the operations that it needs."""


def interleaved(report: Report, works: dict[int, Work], repeats: int) -> dict[int, Cost]:
    """Time each in turn, so that a slow spell of the machine falls on all alike."""
    times: dict[int, list[float]] = {key: [] for key in works}
    peaks: dict[int, float] = {}
    for number in range(repeats + 1):
        for key, (work, _) in works.items():
            if number == 0:  # the warm-up, and the time to look at memory
                with PeakMemory() as memory:
                    work()
                peaks[key] = memory.megabytes
                continue
            report.gemm_rates.append(_gemm_rate())
            times[key].append(_time(work))
    report.gemm_rates.append(_gemm_rate())
    return {
        key: Cost(statistics.median(times[key]), _spread(times[key]), peaks[key], flops)
        for key, (_, flops) in works.items()
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


def _resized(config: Config, members: int) -> Config:
    """Return the same work with another number of members: trajectories, frames decoded.

    An update is one batch that all members see, whatever E, and each decodes its share of it:
    of the whole batch, or of what the settings decode if that is less.
    """
    single: MethodName = "m_only" if METHODS[config.method][1] else "planet"
    particles = config.members * config.model.latent_samples
    trajectories = config.num_trajectories or config.planner.num_candidates * particles
    decoded = min(1.0, config.members * config.loss.decode_fraction)
    return dataclasses.replace(
        config,
        method=config.method if members > 1 else single,
        num_members=members,
        num_trajectories=trajectories,
        loss=dataclasses.replace(config.loss, decode_fraction=decoded / members),
        planner=dataclasses.replace(config.planner, converged_std=0.0),  # all iterations
        train=dataclasses.replace(config.train, batch_sharing="shared"),
    )


def _shape(config: Config) -> tuple[int, ...]:
    size = config.env.image_size
    return (size, size, 3) if config.env.observation == "pixels" else (8,)


def _model(config: Config, members: int, num_actions: int) -> WorldModel:
    generator = torch_stream(config.seed, "bench")
    return WorldModel(_shape(config), num_actions, members, config.model, generator)


def planning(config: Config, members: int, num_actions: int) -> Work:
    """Return one planning call of ``members``, from an arbitrary belief, untrained."""
    config = _resized(config, members)
    model, planner = _model(config, members, num_actions), config.resolved_planner
    agent = Agent(model, planner)
    generator = torch_stream(config.seed, "bench-plan")
    belief = Belief(
        deter=torch.randn(members, 1, config.model.deter, generator=generator).tanh(),
        stoch=torch.randn(members, 1, config.model.stoch, generator=generator),
    )
    candidates = sum(planner.candidates_at(number) for number in range(planner.num_iterations))
    trajectories = candidates * members * config.model.latent_samples
    flops = arithmetic.imagining(model, trajectories, planner.horizon)
    return lambda: plan(model, belief, agent.bounds, planner, generator), flops


def _learner(config: Config, members: int, num_actions: int) -> Learner:
    config = _resized(config, members)
    return Learner(_model(config, members, num_actions), config)


def updating(config: Config, members: int, num_actions: int, replay: Replay) -> Work:
    """Return one gradient update of ``members``, sampling included."""
    learner = _learner(config, members, num_actions)
    train = learner.config.train
    frames = train.batch_size * train.sequence_length
    decoded = members * max(1, round(learner.config.loss.decode_fraction * frames))
    flops = arithmetic.updating(learner.model, frames, members * frames, decoded)
    numbers = iter(range(10_000))
    return lambda: learner.update(replay, next(numbers)), flops


def fill(folder: Path, config: Config, num_actions: int, episodes: int) -> Replay:
    """Write episodes of noise and return the replay of them."""
    replay = Replay(folder / "episodes", int(config.train.replay_ram * 1e9))
    rng = numpy_stream(config.seed, "bench-episodes")
    length, shape = EPISODE_STEPS + 1, _shape(config)
    for _ in range(episodes):
        observation: NDArray[np.generic]
        if len(shape) == 3:
            noise = rng.bytes(length * int(np.prod(shape)))
            observation = np.frombuffer(noise, np.uint8).reshape(length, *shape)
        else:
            observation = rng.standard_normal((length, *shape), np.float32)
        action = rng.uniform(-1, 1, (length, num_actions)).astype(np.float32)
        replay.add(Episode(observation, action, rng.random(length, np.float32)))
    return replay


def _measure_env(report: Report, config: Config, repeats: int) -> None:
    """Time steps of the task without and with an image of the agent's size."""
    sensors = dataclasses.replace(config.env, observation="state", sensors=())
    pixels = dataclasses.replace(config.env, observation="pixels", sensors=())
    steps = 10 * repeats
    report.env_step = _env_cost(config, sensors, steps)
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
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

        return _cost(step, steps)
    finally:
        env.close()
