"""One sitting of a run: its environment, model, files and counters, from opening to closing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from planet_bayes import config as configuration
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.commits import current_commit, read_commits, record_commits
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.replay import Replay
from planet_bayes.envs import NamedObservations, make_env
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.machine import machine
from planet_bayes.training import checkpoint, weights
from planet_bayes.training.build import build_agent, build_model
from planet_bayes.training.collect import Stopped, collect_random, never
from planet_bayes.training.distributed import Processes, Start
from planet_bayes.training.events import Problem, Report
from planet_bayes.training.learner import Learner
from planet_bayes.training.metrics import Metrics
from planet_bayes.training.offline import Log, load_log, open_log
from planet_bayes.training.overlap import Collector
from planet_bayes.training.progress import Clock, Progress
from planet_bayes.training.restore import Remakes, State, find_state
from planet_bayes.types import Episode


class Session:
    """The open resources and the position of a run. Use it as a context manager.

    Entering makes the environment, takes the folder's lock, and restores the newest state or
    writes the first checkpoint. Leaving releases everything.
    """

    env: NamedObservations
    learner: Learner
    agent: Agent
    replay: Replay
    metrics: Metrics
    clock: Clock

    def __init__(
        self,
        config: Config,
        path: Path,
        resume: bool,
        should_stop: Callable[[], bool],
        report: Report,
        device: torch.device | str,
        processes: Processes | None = None,
    ) -> None:
        self.config, self.folder = config, RunFolder(path)
        self.should_stop, self.report, self.device = should_stop, report, device
        self.processes = processes
        self.progress = Progress()
        self.actor: dict[str, Tensor] | None = None
        self.collector: Collector | None = None
        self.log: Log | None = None
        self._resume = resume
        self._saved: tuple[int, int, int] | None = None
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resources.__exit__(kind, error, trace)

    def _open(self, stack: contextlib.ExitStack) -> None:
        config, folder = self.config, self.folder
        if not self._resume and folder.holds_run:
            raise RunError(f"{folder.path} already holds a run; resume it or name another folder.")
        resume = self._resume and not checkpoint.not_begun(folder.path)
        self.env = stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
        signature = self.env.signature
        self.learner = Learner(build_model(config, signature, self.device), config, self.processes)
        self.agent = build_agent(config, self.learner.acting_model, signature)
        if not resume:
            self._open_log()  # a failure here leaves no folder behind
            self._start_collector(stack)  # and none here
        folder.path.mkdir(parents=True, exist_ok=True)
        stack.enter_context(files.lock(folder.path))
        self.replay = Replay(
            folder.episodes, int(config.run.replay_ram * 1e9), next(iter(signature.observation))
        )
        if resume:
            self._restore()
            self._start_collector(stack)
        else:
            configuration.save(config, folder.config)  # before anything else
            if self.log is not None:
                files.write(folder.log, self.log.to_json())
        if not self.finished:
            self._record_commit(resume)
        files.remove_partials(
            folder.path,
            *(folder.config.name, folder.commits.name, folder.metrics.name, folder.table.name),
            *(folder.log.name, folder.held_out.name),
        )
        files.remove_partials(folder.checkpoints)
        self.metrics = stack.enter_context(
            contextlib.closing(Metrics(folder.path, self.progress.metrics))
        )
        self.clock = Clock(self.progress)
        if self._saved is None:
            self.save()  # so that there is something to resume, whatever happens next
            files.sync(folder.path)
        if resume:
            configuration.save(config, folder.config)
        if self.processes is not None:
            newest = checkpoint.latest(folder.path)  # of the present state
            self.processes.announce(Start(config, folder.path, signature.to_json(), newest))
            self.processes.wait()  # until they have read it

    def _start_collector(self, stack: contextlib.ExitStack) -> None:
        if self.config.collect.overlap and not self.is_last_iteration:
            self.collector = Collector(
                self.config, self.agent.signature, self.learner.device, self.should_stop
            )
            stack.callback(self.collector.close)

    def _open_log(self) -> None:
        """Check the log that a new run shall learn from."""
        if not self.config.offline:
            return
        self.log = open_log(Path(self.config.offline), self.agent.signature)
        if self.log.folder.resolve() in (
            self.folder.episodes.resolve(),
            self.folder.path.resolve(),
        ):
            raise ConfigError(
                f"offline: the run would write its own episodes to the log, {self.log.folder}; "
                "name another folder for the run."
            )
        if len(self.log) != self.config.collect.seed_episodes:
            raise ConfigError(
                f"offline: {self.log.folder} holds {len(self.log)} episodes, but "
                f"collect.seed_episodes is {self.config.collect.seed_episodes}; make the settings "
                "with offline_config, or bring back the folder as it was."
            )

    def _remakes(self) -> Remakes:
        """Return which seed episodes can be made again."""
        seeds = self.config.collect.seed_episodes
        if not self.config.offline:
            return Remakes(lambda index: index < seeds, "It is collected again.")
        try:
            self.log = load_log(self.folder.log)
        except RunError as error:
            self.report(Problem(f"{error} Damaged episodes cannot be copied again."))
            return Remakes(lambda index: False, "", needed=seeds)
        return Remakes(self.log.holds, f"It is copied again from {self.log.folder}.", needed=seeds)

    def seed_episode(self, index: int, should_stop: Callable[[], bool] = never) -> Episode:
        """Return seed episode ``index``: of random actions, or of the log."""
        if not self.config.offline:
            return collect_random(self.config, self.env, self.agent.signature, index, should_stop)
        if should_stop():
            raise Stopped
        if self.log is None:
            raise RunError(
                f"{self.folder.log} is lost, and not all episodes were copied: begin a new run."
            )
        return self.log.episode(index, self.agent.signature)

    def _restore(self) -> None:
        """Load the state to resume from, and repair what can be repaired."""
        state = find_state(self.folder.path, self.replay, self._remakes(), self.learner.device)
        self._check_signature(state)
        self.progress = state.progress
        weights.load_learner(state.checkpoint, self.learner)
        if self.config.collect.overlap and self.progress.updates_since_episode:
            self.actor = weights.load_actor(state.checkpoint, self.learner.acting_model)
        if not self.is_last_iteration:
            # A run that had ended goes on: its last row, without an episode, is done again.
            rows = min(self.progress.metrics, self.iteration)
            self.progress = dataclasses.replace(self.progress, metrics=rows)
        if state.exact and self.progress == state.progress and self.config == state.config:
            self._saved = self._position  # else it is saved at once, as it is now
        for path in state.newer:
            files.set_aside(path)  # so that they are not taken for the newest
        warnings = list(state.warnings)
        for index in state.remake:
            if not self.replay.replace(index, self.seed_episode(index)):
                warnings.append(f"{self.replay.path(index)} has changed: it is not the same again.")
        self.replay.restore(self.progress.episodes, state.lost)
        for message in warnings:
            self.report(Problem(message))

    def _record_commit(self, resume: bool) -> None:
        """Add the present commit to those of the run, and report a change."""
        path, now = self.folder.path, current_commit()
        before = read_commits(path) if resume else []
        if before and before[-1] != now:
            self.report(
                Problem(f"The run continues from commit {now}; before, it was {before[-1]}.")
            )
        if before[-1:] != [now]:
            record_commits(path, [*before, now])

    def _check_signature(self, state: State) -> None:
        saved = checkpoint.load_signature(state.checkpoint)
        if saved is not None and saved != self.agent.signature:
            raise RunError(
                f"{self.config.task} has changed since the run began: the run has the signature "
                f"{saved}, the environment now has {self.agent.signature}."
            )

    @property
    def iteration(self) -> int:
        """Number of the current iteration: episodes collected with the agent."""
        return max(0, self.progress.episodes - self.config.collect.seed_episodes)

    @property
    def is_last_iteration(self) -> bool:
        """Whether all episodes are collected; the last iteration learns and evaluates only."""
        return self.iteration >= self.config.collect.episodes

    @property
    def finished(self) -> bool:
        """Whether the last iteration is done."""
        return self.progress.metrics > self.config.collect.episodes

    @property
    def _position(self) -> tuple[int, int, int]:
        """What distinguishes the state from any other of the run."""
        return self.progress.episodes, self.progress.updates, self.progress.metrics

    def advance(self, **changes: Any) -> None:
        """Change counters."""
        self.progress = dataclasses.replace(self.progress, **changes)

    def save(self) -> None:
        """Write a checkpoint of the present state, unless there is one."""
        if self._saved == self._position:
            return
        self.advance(
            **self.clock.times(),
            metrics_digest=self.metrics.digest,
            machine=machine(self.learner.device),
        )
        # Right after an episode the collecting process has the same weights as the model.
        actor = self.actor if self.progress.updates_since_episode else None
        checkpoint.save(
            self.folder.path, self.config, self.agent.signature, self.learner, self.progress, actor
        )
        self._saved = self._position
