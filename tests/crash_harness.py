"""Trains a tiny run that is killed again and again, each time at another moment.

``python crash_harness.py RUN KILLS SEED EPISODES [overlap] [offline=LOG]``. With a log, EPISODES
times as many updates learn from it, and nothing is collected. One process imports everything and
never trains; each sitting is a fork of it that resumes the run until SIGKILL. There are three kinds
of moments: a random time, between two operations on files, and inside a write, when a part of the
data is not yet on the disk. It prints JSON: how many of each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.training import loop
from tiny_run import TINY, replaced

LONGEST = 120.0  # seconds of a sitting; longer is a hang

loop.film = lambda run: None  # a film reads the state and changes nothing of it
loop.OFFLINE_UPDATES_PER_CHECKPOINT = 10

CONFIG = replaced(
    TINY,
    seed=5,
    model={"deter": 32, "stoch": 8, "hidden": 32, "dense_units": 16, "reward_units": 16},
    collect={"seed_episodes": 3},
    learn={"updates_per_episode": 5},
    run={"evaluate_every": 4, "evaluation_episodes": 1, "checkpoint_every": 2},
)
CHANGING = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"})


def die() -> NoReturn:
    """End this process as the system would end it, without a last word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def die_between(run: Path, count: int) -> None:
    """Die before the ``count``-th operation that changes a name in the run's folder."""
    left = count

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGING:
            return
        if event == "open" and (
            "r" in str(arguments[1]) or not str(arguments[0]).startswith(str(run))
        ):
            return
        left -= 1
        if left == 0:
            die()

    sys.addaudithook(hook)


def die_inside(count: int, rng: random.Random) -> None:
    """Die at the ``count``-th flush to disk, when some of the last bytes have not arrived."""
    left, original = count, os.fsync

    def fsync(handle: int) -> None:
        nonlocal left
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        left -= not path.is_dir()
        if left or path.is_dir():
            original(handle)
            return
        data = path.read_bytes()
        # Of a file that is added to, what was there before is safe.
        safe = 0 if path.suffix == ".partial" else data[:-1].rfind(b"\n") + 1
        os.truncate(path, rng.randint(safe, max(safe, len(data) - 1)))
        die()

    os.fsync = cast(Any, fsync)  # the package passes descriptors only, not files


def sit(run: Path, config: Config, prepare: Callable[[], None]) -> NoReturn:
    """Begin the run or go on with it, and leave the process."""
    try:
        prepare()
        resume = (run / "config.json").exists()
        settings = runs.resume_config(run) if resume else config
        _, ended = runs.train(settings, run, resume=resume)
        os._exit(0 if ended else 3)
    except BaseException as error:  # the parent has to hear of it
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(4)


def main() -> int:
    """Kill the run as often as asked, then let it end."""
    run, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    episodes, words = int(sys.argv[4]), sys.argv[5:]
    config = replaced(CONFIG, collect={"episodes": episodes, "overlap": "overlap" in words})
    for word in words:
        if word.startswith("offline="):
            updates = CONFIG.learn.updates_per_episode * episodes
            config = runs.offline_config(
                replaced(config, learn={"first_updates": updates}), word.removeprefix("offline=")
            )
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    while done.total() < kills:
        kind = rng.choice(("any time", "between operations", "inside a write"))
        moment, delay = rng.randint(1, 80), rng.uniform(0.0, 1.0)
        inner = random.Random(rng.random())
        prepare: dict[str, Callable[[], None]] = {
            "any time": lambda: None,
            "between operations": partial(die_between, run, moment),
            "inside a write": partial(die_inside, 1 + moment // 4, inner),
        }
        child = os.fork()
        if not child:
            sit(run, config, prepare[kind])
        if kind == "any time":
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        status = wait(child)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            done[kind] += 1
        elif os.WEXITSTATUS(status) == 0:
            print(json.dumps({"ended early": True, **done}))
            return 1  # the run was too short for so many kills
        else:
            return 2
    child = os.fork()
    if not child:
        sit(run, config, lambda: None)
    if wait(child):
        return 2
    print(json.dumps(done))
    return 0


def wait(child: int) -> int:
    """Wait for a sitting to end, but not for ever."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise SystemExit("a sitting hangs")


if __name__ == "__main__":
    raise SystemExit(main())
