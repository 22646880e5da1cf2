"""How far a run is: counters that are saved, and a clock."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planet_bayes import config as configuration
from planet_bayes.errors import ConfigError, RunError

FORMAT = 3
"""Number of today's checkpoint format."""
FORMAT_0_1 = 2
"""Number in checkpoints of version 0.1. They have no signature and other names of weights."""


@dataclass(frozen=True)
class Progress:
    """The position in Algorithm 2, and what was recorded by then."""

    episodes: int = 0
    """Episodes in the replay, seed episodes included."""
    updates: int = 0
    """Gradient updates done."""
    updates_since_episode: int = 0
    """Updates since the last episode."""
    loss_sums: dict[str, float] = field(default_factory=dict)
    """Sums of the losses over those, for the iteration's means."""
    metrics: int = 0
    """Lines of metrics.jsonl that belong to this state."""
    seconds: float = 0.0
    """Wall-clock time so far, over all sittings."""
    cpu_seconds: float = 0.0
    """Processor time so far, over all cores: the time on one core left alone."""
    metrics_digest: str = ""
    """The SHA-256 sum of these lines."""
    skipped_since_episode: int = 0
    """Updates since the last episode that were skipped: their loss or gradient was not finite."""
    skipped_in_row: int = 0
    """Updates skipped since the last one that was done."""
    machine: dict[str, str] = field(default_factory=dict)
    """Where it was saved (see `planet_bayes.machine`)."""

    def to_json(self) -> str:
        """Return the counters as JSON text."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"


def load_progress(path: Path) -> Progress:
    """Read the counters of a checkpoint."""
    try:
        state = json.loads(path.read_text())
        version = state.pop("format", None) if isinstance(state, dict) else None
        if version in (FORMAT, FORMAT_0_1):
            return configuration.from_dict(Progress, state)
    except (OSError, ValueError, KeyError, AttributeError, RecursionError, ConfigError) as error:
        raise RunError(f"{path} is missing or damaged: {error}.") from error
    raise RunError(
        f"{path} has format {version}; this version reads the formats {FORMAT} and {FORMAT_0_1}."
    )


class Clock:
    """Wall-clock and processor time, on top of the time of earlier sittings."""

    def __init__(self, progress: Progress) -> None:
        self._seconds = progress.seconds - time.monotonic()
        self._cpu_seconds = progress.cpu_seconds - time.process_time()

    def add_cpu(self, seconds: float) -> None:
        """Count processor time that another process spent for this run."""
        self._cpu_seconds += seconds

    def times(self) -> dict[str, Any]:
        """Return the fields of `Progress` that are times."""
        return {
            "seconds": self._seconds + time.monotonic(),
            "cpu_seconds": self._cpu_seconds + time.process_time(),
        }
