"""Collecting while learning: episodes from a second process, for a core that would be idle.

The process makes its own environment and model. It receives weights and the number of an episode,
and returns that episode. An episode is a function of these and of the settings, so one that is
interrupted is collected again, the same.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import gymnasium
import torch
from safetensors.torch import load, save
from torch import Tensor

from planet_bayes import plugins
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.envs import make_env
from planet_bayes.errors import ConfigError, EnvError, PlanetBayesError
from planet_bayes.spaces import Signature
from planet_bayes.training import weights
from planet_bayes.training.build import build_agent, build_model
from planet_bayes.training.collect import Collected, Stopped, collect_episode

POLL_SECONDS = 0.1
"""Time between looks for a stop request while waiting."""
CLOSE_SECONDS = 10.0
"""Time for the process to close its environment before it is terminated."""


class CollectorError(PlanetBayesError):
    """The collecting process failed or ended."""


@dataclass(frozen=True)
class Failure:
    """An error in the process, in words: not every exception can be sent."""

    message: str
    details: str
    from_environment: bool


@dataclass(frozen=True)
class Result:
    """An episode, and the processor time that it took."""

    collected: Collected
    cpu_seconds: float


class Collector:
    """The process, seen from the learner: `begin` an episode, do other work, `finish` it.

    ``should_stop`` is looked at while waiting; `Stopped` is raised then. `close` it in the end;
    if that never happens, the process ends at its next step after this one has.
    """

    def __init__(
        self,
        config: Config,
        signature: Signature,
        device: torch.device,
        should_stop: Callable[[], bool],
    ) -> None:
        self._should_stop = should_stop
        self._connection, theirs = multiprocessing.get_context("spawn").Pipe()
        try:
            with theirs:
                self._process = spawn(theirs, config, signature, device)
        except BaseException:
            self._connection.close()
            raise
        try:
            reply = self._receive()
            if isinstance(reply, Failure):
                raise _noted(
                    ConfigError(
                        f"collect.overlap: {config.task} works here but cannot be made in another "
                        f"process: {reply.message.rstrip('. ')}. Name it as "
                        "package.module:function, in a file that can be imported there. Register "
                        "parts of your own in a module of planet-bayes --import, or at the top "
                        "level of your script. Or leave collect.overlap off."
                    ),
                    reply,
                )
        except Stopped:
            pass  # the caller finds out when it asks for an episode
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """The process's number."""
        return self._process.pid

    def begin(self, number: int, actor: dict[str, Tensor]) -> None:
        """Have episode ``number`` collected with the weights ``actor``; one at a time."""
        try:
            self._connection.send((number, save(actor)))
        except OSError:
            self._raise_ended()

    def finish(self) -> Result:
        """Wait for the episode that was begun and return it."""
        reply = self._receive()
        if isinstance(reply, Result):
            return reply
        assert isinstance(reply, Failure)
        if reply.from_environment:
            raise _noted(EnvError(reply.message), reply)
        raise _noted(
            CollectorError(f"the process that collects (collect.overlap) failed: {reply.message}"),
            reply,
        )

    def close(self) -> None:
        """End the process: closing the pipe tells it to, and is seen at its next step."""
        self._connection.close()
        try:
            self._process.join(CLOSE_SECONDS)
        finally:
            for end in (self._process.terminate, self._process.kill):
                if self._process.is_alive():
                    end()
                    self._process.join(1)

    def _receive(self) -> Result | Failure | None:
        """Wait for word from the process, or for a stop request."""
        try:
            while not self._connection.poll(POLL_SECONDS):
                if self._should_stop():
                    raise Stopped
            reply: Result | Failure | None = self._connection.recv()
        except (EOFError, OSError):
            self._raise_ended()
        return reply

    def _raise_ended(self) -> NoReturn:
        self._process.join(1)
        time.sleep(POLL_SECONDS)  # a signal that ended it may have been sent to us as well
        if self._should_stop():
            raise Stopped
        raise CollectorError(
            "the process that collects (collect.overlap) ended with exit code "
            f"{self._process.exitcode} and without a word; it may have printed something. If this "
            "was at the start of a script, put its training under `if __name__ == '__main__':`."
        )


def spawn(
    connection: Connection, config: Config, signature: Signature, device: torch.device
) -> BaseProcess:
    """Start the process; Ctrl-C reaches it too, and is left to this one from the first moment."""
    process = multiprocessing.get_context("spawn").Process(
        target=_main,
        args=(
            *(connection, config, signature.to_json(), str(device)),
            *(os.getcwd(), plugins.registering()),
        ),
        name="planet-bayes-collector",
        daemon=True,
    )
    resource_tracker.ensure_running()  # before, since starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()  # inherits what is blocked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _main(
    connection: Connection,
    config: Config,
    signature: str,
    device: str,
    folder: str,
    modules: tuple[str, ...],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir(folder)  # spawning goes to the folder in which Python was started
    torch.set_num_threads(1)
    serve(connection, config, signature, device, modules)


def serve(
    connection: Connection,
    config: Config,
    signature: str,
    device: torch.device | str,
    modules: tuple[str, ...] = (),
) -> None:
    """Collect the episodes that are asked for, until the other end of the pipe is closed.

    ``modules`` register the parts of one's own that the settings and the signature name.
    """
    with contextlib.ExitStack() as stack:
        reply: Result | Failure | None
        try:
            for name in modules:
                plugins.register(name)
            env = stack.enter_context(contextlib.closing(make_env(config.task, config.env)))
            senses = Signature.from_json(signature)
            agent = build_agent(config, build_model(config, senses, device), senses)
            reply = None
        except Exception as error:
            reply = _failure(error)
        while True:
            try:
                connection.send(reply)
                if isinstance(reply, Failure):
                    return
                number, actor = connection.recv()
            except (EOFError, OSError):
                return
            reply = _collect(connection, config, env, agent, number, actor)


def _collect(
    connection: Connection,
    config: Config,
    env: gymnasium.Env[Any, Any],
    agent: Agent,
    number: int,
    actor: bytes,
) -> Result | Failure:
    began = time.process_time()
    try:
        weights.put_tensors(load(actor), agent.model)
        # Nothing is sent meanwhile, so what there is to read can only be the pipe's end.
        collected = collect_episode(config, env, agent, number, connection.poll)
    except Exception as error:
        return _failure(error)
    return Result(collected, time.process_time() - began)


def _failure(error: Exception) -> Failure:
    ours = isinstance(error, PlanetBayesError)
    message = str(error) if ours else f"{type(error).__name__}: {error}"
    return Failure(message, traceback.format_exc(), isinstance(error, EnvError))


def _noted(error: PlanetBayesError, failure: Failure) -> PlanetBayesError:
    error.add_note(f"in the process that collects:\n{failure.details}")
    return error
