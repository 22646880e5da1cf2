"""What held-out episodes say about an agent's predictions: bands and a threshold, as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planet_bayes.confidence.conformal import Array, Bands
from planet_bayes.errors import RunError

FORMAT = 2
REWARD, RETURN = "reward", "return"
"""Names of the first two quantities. Those of vector observations follow."""


@dataclass(frozen=True)
class Surprise:
    """The log KL of posterior and prior in held-out episodes, and when it is an alarm."""

    mean: float
    std: float
    threshold: float
    """The smoothed, standardised surprise above which there is an alarm."""
    rate: float
    """Alarms a step of unchanged episodes."""


@dataclass(frozen=True)
class Calibration:
    """The calibrated bands and alarm of one agent: its weights and its planner."""

    level: float
    """Share of truths that a band contains."""
    entries: dict[str, int]
    """The quantities in the order of the bands' last axis, and how many entries each has."""
    bands: Bands
    surprise: Surprise
    still: tuple[int, ...]
    """Steps in a row that each entry of the vector observations may keep exactly its value."""
    episodes: int
    """Held-out episodes that it was made from."""
    steps: int
    """Their steps."""
    weights: str
    """Checksum of the agent's weights."""

    @property
    def horizon(self) -> int:
        """Steps ahead."""
        return len(self.bands.floor)

    def to_json(self) -> str:
        """Return it as text."""
        bands = {name: values.tolist() for name, values in vars(self.bands).items()}
        facts = {**vars(self), "bands": bands, "surprise": vars(self.surprise)}
        return json.dumps({"format": FORMAT, **facts}, indent=1) + "\n"


def load(path: Path) -> Calibration:
    """Read a calibration."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        version = facts.pop("format", None)
        if version == FORMAT:
            bands = {name: np.array(values, float) for name, values in facts["bands"].items()}
            surprise = Surprise(**facts["surprise"])
            parts = {"bands": Bands(**bands), "surprise": surprise, "still": tuple(facts["still"])}
            found = Calibration(**{**facts, **parts})
            _check(found)
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} cannot be read ({error}); make it again with `planet-bayes calibrate RUN`."
        ) from error
    raise RunError(
        f"{path} has format {version}, and this version reads {FORMAT}; make it again with "
        "`planet-bayes calibrate RUN`."
    )


def columns(entries: Mapping[str, int]) -> dict[str, slice]:
    """Return where each quantity is on the last axis."""
    found, start = {}, 0
    for name, count in entries.items():
        found[name] = slice(start, start + count)
        start += count
    return found


def _check(calibration: Calibration) -> None:
    shape = (calibration.horizon, sum(calibration.entries.values()))
    parts: list[Array] = list(vars(calibration.bands).values())
    if any(part.shape != shape or not np.isfinite(part).all() for part in parts):
        raise ValueError(f"its bands are not numbers of the shape {shape}")
    bands, surprise = calibration.bands, calibration.surprise
    scales = (bands.floor, bands.usual, bands.below, bands.above)
    positive = [*(float(part.min()) for part in scales), surprise.std, *calibration.still]
    if not (0.5 <= calibration.level < 1 and min(positive) > 0):
        raise ValueError("its level, a scale or a limit is out of range")
    if not np.isfinite([surprise.mean, surprise.std, surprise.threshold]).all():
        raise ValueError("its surprise has no finite numbers")
    if len(calibration.still) != shape[1] - 2:
        raise ValueError(f"it has {len(calibration.still)} limits for {shape[1] - 2} sensors")
