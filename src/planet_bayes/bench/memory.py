"""Peak memory of a piece of work."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """The process's largest resident memory within a ``with`` block.

    Linux can forget an earlier peak; elsewhere the peak is that of the process so far.
    """

    megabytes: float = 0.0

    def __enter__(self) -> PeakMemory:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # memory that earlier work freed does not count
        with contextlib.suppress(OSError):
            _RESET.write_text("5")
        return self

    def __exit__(self, *exception: object) -> None:
        self.megabytes = _peak() / 1e6


def _peak() -> float:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
