"""The training loop (Algorithm 2), as a state machine that can stop and go on anywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from planet_bayes import config as configuration
from planet_bayes import files
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.envs import make_env
from planet_bayes.errors import EnvError, NumericalError, RunError
from planet_bayes.files import DamagedError
from planet_bayes.models import WorldModel
from planet_bayes.planner import PlannerError
from planet_bayes.replay import Replay
from planet_bayes.rng import integer_seed, torch_stream
from planet_bayes.training import checkpoint
from planet_bayes.training.checkpoint import Progress
from planet_bayes.training.collect import (
    Stopped,
    collect_numbered,
    collect_random,
    episode_streams,
    evaluate,
)
from planet_bayes.training.learner import Learner
from planet_bayes.training.machine import machine
from planet_bayes.training.metrics import Metrics
from planet_bayes.training.overlap import Collector, CollectorError
from planet_bayes.training.restore import find_state
from planet_bayes.training.video import film_episode
from planet_bayes.types import Episode


@dataclasses.dataclass(frozen=True)
class Event:
    """Something worth telling the person who watches."""

    kind: str
    """``seed``, ``update``, ``evaluate``, ``row``, ``video`` or ``warning``."""
    data: dict[str, Any]


def build_model(config: Config, env: gymnasium.Env, device: torch.device | str) -> WorldModel:
    """Return the world model of ``config`` for the spaces of ``env``, with initial weights."""
    assert env.observation_space.shape is not None
    assert env.action_space.shape is not None
    return WorldModel(
        observation_shape=env.observation_space.shape,
        num_actions=env.action_space.shape[0],
        members=config.members,
        config=config.model,
        generator=torch_stream(config.seed, "initialise"),
    ).to(device)


class Trainer:
    """One run in one folder. Iteration i: updates, evaluation if due, then an episode.

    Nothing random has a state: episode n and update n draw from streams that their number
    names. So whatever the moment of a stop, resuming from a checkpoint repeats what was lost
    bit for bit.

    With ``train.overlap`` the episode is collected while the updates and the evaluation run,
    with the weights from before them, the actor's; it joins when they are done.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[Event], None] = lambda event: None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.run = config, run
        self.should_stop, self.report = should_stop, report
        if not resume and any((run / name).exists() for name in ("config.json", "checkpoints")):
            raise RunError(f"{run} already holds a run; resume it or name another folder.")
        resume = resume and not checkpoint.not_begun(run)
        self.actor: dict[str, Tensor] | None = None
        self.collector: Collector | None = None
        self.progress = Progress()
        self._saved: tuple[int, int, int] | None = None
        with contextlib.ExitStack() as stack:
            self.env = stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            self.learner = Learner(build_model(config, self.env, device), config)
            self.model = self.learner.acting
            self.agent = Agent(self.model, config.resolved_planner)
            if not resume:
                self._start_collector(stack)  # what fails here leaves no folder behind
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(files.lock(run))
            self.replay = Replay(run / "episodes", int(config.train.replay_ram * 1e9))
            if resume:
                self._restore()
                self._start_collector(stack)
            else:
                configuration.save(config, run / "config.json")  # before anything else
            self._open(stack)
            if self._saved is None:
                self.save()  # so that whatever happens next, there is something to resume
                files.sync(run)
            if resume:
                configuration.save(config, run / "config.json")
            self._resources = stack.pop_all()

    def _start_collector(self, stack: contextlib.ExitStack) -> None:
        train = self.config.train
        if train.overlap and self.iteration < train.episodes:
            self.collector = Collector(self.config, self.learner.device, self.should_stop)
            stack.callback(self.collector.close)

    def _restore(self) -> None:
        """Load the state that the run goes on from, and mend what can be."""
        train = self.config.train
        state = find_state(self.run, self.replay, train.seed_episodes, self.learner.device)
        self.progress = state.progress
        checkpoint.load_learner(state.checkpoint, self.learner)
        if train.overlap and self.progress.updates_since_episode:
            self.actor = checkpoint.load_actor(state.checkpoint, self.model)
        if self.iteration < train.episodes:
            # A run that had ended goes on: its last row, without an episode, is done again.
            rows = min(self.progress.metrics, self.iteration)
            self.progress = dataclasses.replace(self.progress, metrics=rows)
        if state.exact and self.progress == state.progress and self.config == state.config:
            self._saved = self._position  # else it is saved at once, as it is now
        for path in state.newer:
            files.set_aside(path)  # so that no one takes them for the newest
        warnings = list(state.warnings)
        for index in state.remake:
            if not self.replay.replace(index, self._random_episode(index)):
                warnings.append(f"{self.replay.path(index)} has changed: it is not the same again.")
        self.replay.restore(self.progress.episodes, state.lost)
        for message in warnings:
            self.report(Event("warning", {"message": message}))

    def _open(self, stack: contextlib.ExitStack) -> None:
        """Bring the folder's other files to the state that the run goes on from."""
        files.remove_partials(self.run, "config.json", "metrics.jsonl", "metrics.csv")
        files.remove_partials(self.run / "checkpoints")
        self.metrics = stack.enter_context(
            contextlib.closing(Metrics(self.run, self.progress.metrics))
        )
        self._clock = (time.monotonic(), time.process_time())

    @property
    def iteration(self) -> int:
        """Number of the current iteration: episodes collected with the agent."""
        return max(0, self.progress.episodes - self.config.train.seed_episodes)

    def train(self) -> bool:
        """Run to the end and return True, or to a stop request and return False."""
        try:
            self._seed()
            while self.iteration <= self.config.train.episodes and not self._finished():
                self._iterate()
        except Stopped:
            self.save()
            return False
        except (EnvError, CollectorError, DamagedError, NumericalError, PlannerError):
            self.save()  # what was collected and learned before the fault is not lost
            raise
        finally:
            self.close()
        return True

    @property
    def _position(self) -> tuple[int, int, int]:
        """What tells the state from any other of the run."""
        return self.progress.episodes, self.progress.updates, self.progress.metrics

    def save(self) -> None:
        """Write a checkpoint of the present state, unless there is one."""
        if self._saved == self._position:
            return
        self._advance()
        in_between = self.progress.updates_since_episode > 0  # else the actor is the model
        checkpoint.save(
            self.run,
            self.config,
            self.learner,
            dataclasses.replace(
                self.progress,
                metrics_digest=self.metrics.digest,
                machine=machine(self.learner.device),
            ),
            self.actor if in_between else None,
        )
        self._saved = self._position

    def close(self) -> None:
        """Release the environment, the files and the folder."""
        self._resources.close()

    def _finished(self) -> bool:
        return self.progress.metrics > self.config.train.episodes

    def _advance(self, **changes: Any) -> None:
        now, old = (time.monotonic(), time.process_time()), self._clock
        self._clock = now
        self.progress = dataclasses.replace(
            self.progress,
            seconds=self.progress.seconds + now[0] - old[0],
            cpu_seconds=self.progress.cpu_seconds + now[1] - old[1],
            **changes,
        )

    def _seed(self) -> None:
        """Collect the random episodes (line 1)."""
        train = self.config.train
        while len(self.replay) < train.seed_episodes:
            self.replay.add(self._random_episode(len(self.replay), self.should_stop))
            self._advance(episodes=len(self.replay))
            self.report(Event("seed", {"done": len(self.replay), "of": train.seed_episodes}))
            if len(self.replay) == train.seed_episodes:
                self.save()

    def _random_episode(
        self, number: int, should_stop: Callable[[], bool] = lambda: False
    ) -> Episode:
        seed, _, rng = episode_streams(self.config.seed, "collect", number, self.learner.device)
        absorbing = self.config.train.absorbing_steps
        return collect_random(self.env, seed, rng, absorbing, should_stop)

    def _iterate(self) -> None:
        iteration, train = self.iteration, self.config.train
        if train.overlap:
            self._begin_episode()
        self._learn()
        row: dict[str, Any] = {
            "episode": iteration,
            "steps": self.replay.num_steps,
            "updates": self.progress.updates,
        }
        skipped = self.progress.skipped_since_episode
        count = max(1, self.progress.updates_since_episode - skipped)
        losses = {f"loss_{k}": v / count for k, v in self.progress.loss_sums.items()}
        last = iteration == train.episodes
        regular = train.evaluate_every and iteration and iteration % train.evaluate_every == 0
        late = iteration > max(0, train.episodes - train.evaluate_last)
        if last or regular or late:
            row |= self._evaluate(iteration)
        if last or (train.video_every and iteration and iteration % train.video_every == 0):
            self._video(iteration)
        begun: dict[str, Any] = {}
        if not last:
            row |= self._collect()
            begun = {
                "updates_since_episode": 0,
                "skipped_since_episode": 0,
                "loss_sums": {},
                "episodes": len(self.replay),
            }
        self._advance(metrics=self.progress.metrics + 1, **begun)
        row |= losses | {"skipped_updates": skipped}
        row["minutes"] = self.progress.seconds / 60
        row["cpu_minutes"] = self.progress.cpu_seconds / 60
        self.metrics.add(row)
        self.report(Event("row", row))
        if last or iteration % train.checkpoint_every == 0:
            self.save()

    def _learn(self) -> None:
        """Fit the ensemble to the data (line 3)."""
        train = self.config.train
        self.learner.model.train()
        first = 0 if self.iteration else train.first_updates
        of = max(train.updates_per_episode, first)
        while self.progress.updates_since_episode < of:
            if self.should_stop():
                raise Stopped
            if not self.progress.updates_since_episode:
                # Not before: the weights that are saved at a stop go with the scales they had.
                self.learner.rescale(self.replay)
            values = self._update()
            done = self.progress.updates_since_episode
            where = {"episode": self.iteration, "done": done, "of": of}
            self.report(Event("update", where | values))

    def _update(self) -> dict[str, float]:
        """Do one update. One whose loss or gradient is not finite is left out, and counted."""
        progress, train = self.progress, self.config.train
        counts = {
            "updates": progress.updates + 1,
            "updates_since_episode": progress.updates_since_episode + 1,
        }
        try:
            values = self.learner.update(self.replay, progress.updates)
        except NumericalError as error:
            self._advance(
                skipped_since_episode=progress.skipped_since_episode + 1,
                skipped_in_row=progress.skipped_in_row + 1,
                **counts,
            )
            if self.progress.skipped_in_row >= train.max_skipped_updates:
                raise NumericalError(
                    f"{error} {self.progress.skipped_in_row} updates in a row were like it, so "
                    "the run stops. Look at the data, or resume with a lower "
                    "--train.learning-rate."
                ) from error
            self.report(Event("warning", {"message": f"{error} It is left out."}))
            return {}
        sums = progress.loss_sums
        self._advance(
            skipped_in_row=0,
            loss_sums={name: sums.get(name, 0.0) + value for name, value in values.items()},
            **counts,
        )
        return values

    def _begin_episode(self) -> None:
        """Have the episode of this iteration collected with the weights before its updates."""
        if not self.progress.updates_since_episode:
            self.actor = checkpoint.model_tensors(self.model)
        assert self.actor is not None
        if self.collector is not None and self.iteration < self.config.train.episodes:
            self.collector.begin(len(self.replay), self.actor)

    def _collect(self) -> dict[str, Any]:
        """Collect an episode with the agent (lines 4 to 11); it is on disk before we go on."""
        if self.collector is None:
            number = len(self.replay)
            collected = collect_numbered(
                self.config, self.env, self.agent, number, self.should_stop
            )
        else:
            result = self.collector.finish()
            collected = result.collected
            # Its processor time counts as if it had been spent here.
            self._clock = (self._clock[0], self._clock[1] - result.cpu_seconds)
        self.replay.add(collected.episode)
        return dict(collected.facts)

    def _evaluate(self, iteration: int) -> dict[str, Any]:
        self.report(Event("evaluate", {"episodes": self.config.train.evaluation_episodes}))
        returns = evaluate_agent(
            self.config,
            self.agent,
            self.config.train.evaluation_episodes,
            iteration,
            self.should_stop,
        )
        return {"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns}

    def _video(self, iteration: int) -> None:
        """Record an episode; a machine that cannot render still trains."""
        seed, generator, _ = episode_streams(
            self.config.seed, "video", iteration, self.learner.device
        )
        path = self.run / "videos" / f"episode-{iteration:05d}.mp4"
        try:
            path.parent.mkdir(exist_ok=True)
            frames, total = film_episode(
                self.env, self.agent, seed, generator, path, should_stop=self.should_stop
            )
            self.metrics.add_video(frames, iteration)
        except (EnvError, OSError, RuntimeError) as error:
            self.report(Event("warning", {"message": f"no video: {error}"}))
            return
        self.report(Event("video", {"path": str(path), "return": total}))


def evaluate_agent(
    config: Config,
    agent: Agent,
    episodes: int,
    number: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Return the returns of noise-free episodes, in fresh environments planned as one batch."""
    seeds = [
        integer_seed(config.seed, "evaluate-environment", number, index)
        for index in range(episodes)
    ]
    generator = torch_stream(config.seed, "evaluate-agent", number, device=agent.device)
    with contextlib.ExitStack() as stack:
        envs = [
            stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            for _ in range(episodes)
        ]
        return evaluate(envs, agent, seeds, generator, should_stop)
