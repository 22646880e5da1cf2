"""The process of a job: it becomes ``planet-bayes train``, and ends when its parent does.

A parent that is killed cannot stop its children, and a child that it leaves behind would hold the
lock of its run. So the child asks the system for SIGKILL at its parent's end. The request survives
`os.execv`. A run that is killed continues from its last checkpoint, bit for bit.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from planet_bayes.data import files
from planet_bayes.data.commits import Commit, current_commit
from planet_bayes.data.folder import RunFolder
from planet_bayes.errors import PlanetBayesError, RunError

LOCK_SECONDS = 180.0
"""How long to wait for a run's lock. An NFS server keeps that of a lost node for its lease: 90 s
by default."""
_PR_SET_PDEATHSIG = 1  # of sys/prctl.h


@dataclass(frozen=True)
class Order:
    """What a worker has to do."""

    parent: int
    """The process to end with."""
    folder: str
    """The run's folder."""
    commit: dict[str, Any]
    """The only commit that the run may be made from."""
    begin: list[str]
    """Arguments of `planet-bayes` if the folder holds no run."""
    resume: list[str]
    """Arguments of `planet-bayes` if it does."""


def main(order: Order) -> NoReturn:
    """Become the command that the order asks for."""
    end_with(order.parent)
    now, wanted = current_commit(), Commit(**order.commit)
    if now != wanted:
        raise RunError(f"the sweep is of commit {wanted}, and the code here is of {now}.")
    wait_for_lock(Path(order.folder))
    words = order.resume if RunFolder(Path(order.folder)).holds_run else order.begin
    os.execv(sys.executable, [sys.executable, "-m", "planet_bayes.cli", *words])


def end_with(parent: int) -> None:
    """Let the system kill this process as soon as its parent has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before the call
        raise RunError("the sweep has ended.")


def wait_for_lock(folder: Path, seconds: float = LOCK_SECONDS) -> None:
    """Wait until no other process uses a run's folder; raise if one still does in the end."""
    until = time.monotonic() + seconds
    while folder.is_dir():
        try:
            with files.lock(folder):
                return
        except RunError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    try:
        main(Order(**json.loads(sys.argv[1])))
    except PlanetBayesError as error:
        sys.exit(f"error: {error}")
