"""The control period as a limit: when to stop so that a call keeps its time budget."""

from __future__ import annotations

import time

import torch

from planet_bayes.planner._types import PlannerError

_clock = time.perf_counter  # tests put their own here

_LEAST = 1e-9  # seconds: what is left when nothing is, so that it is still a valid budget
_MARGIN = 1.1  # on an iteration's duration: for jitter, and for what comes after the last one


class Deadline:
    """A time budget that runs from the moment this is made.

    For `plan` alone its ``time_budget`` is enough. Where other work shares the control
    period, make one of these before it and pass on ``left()``.
    """

    def __init__(self, seconds: float, device: torch.device | None = None) -> None:
        begun = _clock()
        if not 0 < seconds < float("inf"):
            raise PlannerError(
                f"time_budget must be positive and finite, in seconds, got {seconds}; "
                "None is no limit."
            )
        self._end = begun + seconds
        self._device = device
        self._last: float | None = None
        self._durations: list[float] = []
        self.stopped = False
        """Whether `another` said no."""

    def left(self) -> float:
        """Return the seconds that are left; never quite zero, for `plan` does one iteration."""
        return max(self._end - _clock(), _LEAST)

    def another(self) -> bool:
        """Return whether one more iteration is expected to end in time; ask before each.

        The first always is. Each later one is expected to take a tenth more than the longer of
        the two before it: a single short one does not deceive, and an iteration that was slow
        to warm up, or had more candidates, is soon forgotten.
        """
        # Without waiting for the device the clock would time the launch of its work only.
        if self._device is not None and self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        now = _clock()
        if self._last is not None:
            self._durations = [*self._durations[-1:], now - self._last]
        self._last = now
        if self._durations:
            self.stopped = now + _MARGIN * max(self._durations) > self._end
        return not self.stopped
