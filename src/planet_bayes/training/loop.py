"""The training loop: Algorithm 2, as a sequence of steps that can stop and resume anywhere.

Nothing random has a state: episode n and update n draw from streams that their numbers name. So
whatever the moment of a stop, resuming from a checkpoint repeats what was lost, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from planet_bayes import extras
from planet_bayes.config import Config
from planet_bayes.data.files import DamagedError
from planet_bayes.errors import EnvError, NumericalError
from planet_bayes.planner import PlannerError
from planet_bayes.training import weights
from planet_bayes.training.collect import (
    Recorder,
    Stopped,
    collect_episode,
    episode_streams,
    never,
)
from planet_bayes.training.distributed import Processes, ProcessesError
from planet_bayes.training.evaluation import evaluate_agent, hold_out
from planet_bayes.training.events import (
    Evaluating,
    Event,
    IterationDone,
    Problem,
    Report,
    SeedEpisode,
    Updated,
    VideoWritten,
)
from planet_bayes.training.overlap import CollectorError
from planet_bayes.training.plan_record import PlanRecord
from planet_bayes.training.session import Session
from planet_bayes.training.showing import show_evaluation
from planet_bayes.training.video import film_episode

MAX_SKIPPED_UPDATES = 10
"""Updates in a row whose loss or gradient may be non-finite before the run stops."""
OFFLINE_UPDATES_PER_CHECKPOINT = 1000
"""Updates between checkpoints of an offline run, which has a single iteration."""
_SAVED_FAULTS = (
    *(EnvError, CollectorError, DamagedError),
    *(NumericalError, PlannerError, ProcessesError),
)


def ignore(event: Event) -> None:
    """Report nothing."""


class Trainer:
    """Trains one run in one folder. Making a trainer opens and writes nothing.

    Args:
        config: The settings.
        path: The run's folder.
        resume: Resume the run in this folder; else the folder must not hold one.
        should_stop: Called often; when it returns True, the run writes a checkpoint and stops.
        report: Receives the run's events.
        device: Where the model is.
        processes: The processes that learn the run, of which this one is rank 0. None: only this.
    """

    def __init__(
        self,
        config: Config,
        path: Path,
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = never,
        report: Report = ignore,
        device: torch.device | str = "cpu",
        processes: Processes | None = None,
    ) -> None:
        self.config, self.path, self.resume = config, path, resume
        self.should_stop, self.report, self.device = should_stop, report, device
        self.processes = processes

    def session(self) -> Session:
        """Return a sitting of the run, to be entered."""
        return Session(
            self.config,
            self.path,
            self.resume,
            self.should_stop,
            self.report,
            self.device,
            self.processes,
        )

    def train(self) -> bool:
        """Run to the end and return True, or to a stop request and return False."""
        with self.session() as run:
            try:
                seed(run)  # line 1
                while not run.finished:
                    iterate(run)
            except Stopped:
                run.save()
                return False
            except _SAVED_FAULTS:
                run.save()  # nothing that was collected and learned before the fault is lost
                raise
        return True


def iterate(run: Session) -> None:
    """Do one iteration: learn, evaluate, collect, save."""
    iteration, last = run.iteration, run.is_last_iteration
    begin_episode(run)
    learn(run)  # line 3
    row: dict[str, Any] = {
        "episode": iteration,
        "steps": run.replay.num_steps,
        "updates": run.progress.updates,
    }
    losses = mean_losses(run)
    if last or evaluation_is_due(run.config, iteration):
        row |= evaluate(run)
    if last or is_due(run.config.run.video_every, iteration):
        film(run)
    if not last:
        row |= collect(run)  # lines 4 to 11
    record(run, row | losses)
    if last or iteration % run.config.run.checkpoint_every == 0:
        run.save()


def seed(run: Session) -> None:
    """Collect the random episodes (line 1), or copy the logged ones."""
    total = run.config.collect.seed_episodes
    while len(run.replay) < total:
        run.replay.add(run.seed_episode(len(run.replay), run.should_stop))
        run.advance(episodes=len(run.replay))
        run.report(SeedEpisode(len(run.replay), total))
        if len(run.replay) == total:
            run.save()


def learn(run: Session) -> None:
    """Fit the model to the data (line 3)."""
    settings = run.config.learn
    run.learner.model.train()
    first = 0 if run.iteration else settings.first_updates
    total = max(settings.updates_per_episode, first)
    while run.progress.updates_since_episode < total:
        if run.should_stop():
            raise Stopped
        if not run.progress.updates_since_episode:
            # Not before: weights that are saved at a stop belong to the scales that they had.
            run.learner.rescale(run.replay)
        losses = update(run)
        done = run.progress.updates_since_episode
        run.report(Updated(run.iteration, done, total, losses))
        if run.config.offline and done % OFFLINE_UPDATES_PER_CHECKPOINT == 0:
            run.save()


def update(run: Session) -> dict[str, float]:
    """Do one update. One whose loss or gradient is not finite is skipped and counted."""
    progress = run.progress
    counts = {
        "updates": progress.updates + 1,
        "updates_since_episode": progress.updates_since_episode + 1,
    }
    try:
        losses = run.learner.update(run.replay, progress.updates)
    except NumericalError as error:
        run.advance(
            skipped_since_episode=progress.skipped_since_episode + 1,
            skipped_in_row=progress.skipped_in_row + 1,
            **counts,
        )
        if run.progress.skipped_in_row >= MAX_SKIPPED_UPDATES:
            raise NumericalError(
                f"{error} {run.progress.skipped_in_row} updates in a row were like it, so the run "
                "stops. Look at the data, or resume with a lower --learn.learning-rate."
            ) from error
        run.report(Problem(f"{error} It is skipped."))
        return {}
    sums = progress.loss_sums
    run.advance(
        skipped_in_row=0,
        loss_sums={name: sums.get(name, 0.0) + value for name, value in losses.items()},
        **counts,
    )
    return losses


def mean_losses(run: Session) -> dict[str, float]:
    """Return the means of the losses over the iteration's updates, and how many were skipped."""
    skipped = run.progress.skipped_since_episode
    count = max(1, run.progress.updates_since_episode - skipped)
    losses = {f"loss_{name}": value / count for name, value in run.progress.loss_sums.items()}
    return losses | {"skipped_updates": skipped}


def is_due(every: int, iteration: int) -> bool:
    """Return whether something that happens every so many episodes happens now."""
    return bool(every and iteration and iteration % every == 0)


def evaluation_is_due(config: Config, iteration: int) -> bool:
    """Return whether an evaluation happens now, besides the one at the end."""
    late = iteration > max(0, config.collect.episodes - config.run.evaluate_last)
    return late or is_due(config.run.evaluate_every, iteration)


def evaluate(run: Session) -> dict[str, Any]:
    """Play noise-free episodes."""
    episodes = run.config.run.evaluation_episodes
    run.report(Evaluating(episodes))
    env = run.env if run.config.run.single_environment else None
    plans, recorders = PlanRecord(), [Recorder() for _ in range(episodes)]
    returns = evaluate_agent(
        run.config, run.agent, episodes, run.iteration, run.should_stop, env, plans, recorders
    )
    made = [recorder.episode() for recorder in recorders]
    hold_out(run.folder.held_out, made, weights.digest(run.agent.model))
    show_evaluation(run, made[0], plans)
    return {"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns}


def film(run: Session) -> None:
    """Record an episode. A machine that cannot render still trains."""
    streams = episode_streams(run.config.seed, "video", run.iteration, run.learner.device)
    path = run.folder.video(run.iteration)
    try:
        path.parent.mkdir(exist_ok=True)
        frames, total = film_episode(
            run.env,
            run.agent,
            streams.env_seed,
            streams.agent,
            path,
            should_stop=run.should_stop,
        )
        run.metrics.add_video(frames, run.iteration)
    except ImportError as error:
        run.report(Problem(f"no video: {extras.advice(error) or error}"))
        return
    except (EnvError, OSError, RuntimeError) as error:
        run.report(Problem(f"no video: {error}"))
        return
    run.report(VideoWritten(path, total))


def begin_episode(run: Session) -> None:
    """With ``collect.overlap``, begin to collect with the weights from before the updates."""
    if not run.config.collect.overlap:
        return
    if not run.progress.updates_since_episode:
        run.actor = weights.model_tensors(run.learner.acting_model)
    assert run.actor is not None
    if run.collector is not None and not run.is_last_iteration:
        run.collector.begin(len(run.replay), run.actor)


def collect(run: Session) -> dict[str, Any]:
    """Collect an episode with the agent (lines 4 to 11). It is on disk before this returns."""
    if run.collector is None:
        collected = collect_episode(
            run.config, run.env, run.agent, len(run.replay), run.should_stop
        )
    else:
        result = run.collector.finish()
        collected = result.collected
        run.clock.add_cpu(result.cpu_seconds)
    run.replay.add(collected.episode)
    return dict(collected.facts)


def record(run: Session, row: dict[str, Any]) -> None:
    """Add the iteration's row to the metrics, and count the iteration as done."""
    if len(run.replay) > run.progress.episodes:
        run.advance(
            episodes=len(run.replay),
            updates_since_episode=0,
            skipped_since_episode=0,
            loss_sums={},
        )
    run.advance(metrics=run.progress.metrics + 1, **run.clock.times())
    row["minutes"] = run.progress.seconds / 60
    row["cpu_minutes"] = run.progress.cpu_seconds / 60
    run.metrics.add(row)
    run.report(IterationDone(row))
