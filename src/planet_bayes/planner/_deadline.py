"""The control period as a limit: when to stop so that a call stays within its time budget."""

from __future__ import annotations

import time

import torch

from planet_bayes.errors import PlannerError

_clock = time.perf_counter  # tests replace it

MIN_BUDGET_SECONDS = 1e-9  # an exhausted budget is this long, which is still a valid budget
DURATION_MARGIN = 1.1  # factor on the expected duration: jitter, and work after the last iteration


class Deadline:
    """A time budget in seconds that starts when the object is created.

    `plan` creates its own from ``time_budget``. If other work shares the control period, create a
    deadline before that work and pass ``left()`` to `plan`. ``device`` is the device of the work;
    the clock waits for it.
    """

    def __init__(self, seconds: float, device: torch.device | None = None) -> None:
        start = _clock()
        if not 0 < seconds < float("inf"):
            raise PlannerError(
                f"time_budget must be positive and finite, in seconds, got {seconds}; "
                "None means no limit."
            )
        self._end = start + seconds
        self._device = device
        self._last: float | None = None
        self._durations: list[float] = []
        self.stopped = False
        """Whether `another` has returned False."""

    def left(self) -> float:
        """Return the remaining seconds; always positive, since `plan` does one iteration anyway."""
        return max(self._end - _clock(), MIN_BUDGET_SECONDS)

    def another(self) -> bool:
        """Return whether one more iteration is expected to end in time; call before each.

        The answer for the first is always True. Each later one is expected to take 10 % longer
        than the longer of the previous two: a single short iteration has no effect, and a slow
        one (warm-up, more candidates) is forgotten after two.
        """
        # Without waiting for the device, the clock would measure only the launch of its work.
        if self._device is not None and self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        now = _clock()
        if self._last is not None:
            self._durations = [*self._durations[-1:], now - self._last]
        self._last = now
        if self._durations:
            self.stopped = now + DURATION_MARGIN * max(self._durations) > self._end
        return not self.stopped
