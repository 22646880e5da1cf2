"""The process of a job, as its parent sees it: how it starts, and what it printed."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time

from planet_bayes.data import files
from planet_bayes.errors import RunError
from planet_bayes.sweep import worker
from planet_bayes.sweep.jobs import Job

_HEADING = "--- "


def start(job: Job) -> subprocess.Popen[bytes]:
    """Start the process of a job. It ends with the thread that calls this."""
    host = socket.gethostname()
    if not job.cwd.is_dir():
        raise RunError(
            f"{host} has no folder {job.cwd}: all nodes must share the folder that the sweep is "
            "started in."
        )
    imports = [word for name in job.imports for word in ("--import", name)]
    order = worker.Order(
        parent=os.getpid(),
        folder=str(job.folder.path),
        commit=dataclasses.asdict(job.commit),
        begin=[*imports, *job.run.words],
        resume=[*imports, *job.run.resume_words],
    )
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with open(job.log, "a") as log:
        log.write(f"{_HEADING}{time.strftime('%F %T')} on {host}\n")
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", worker.__name__, json.dumps(dataclasses.asdict(order))],
            cwd=job.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def last_lines(job: Job, count: int) -> list[str]:
    """Return the end of what the last process of a job printed."""
    lines = files.read_lines(job.log)
    headings = [number for number, line in enumerate(lines) if line.startswith(_HEADING)]
    return lines[headings[-1] + 1 if headings else 0 :][-count:]
