"""The figures of one run under one or several conditions, as records and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.diagnostics.calibration import Comparison, auroc, calibrated
from planet_bayes.diagnostics.conditions import CLEAN, CONDITIONS, SEED, Collection
from planet_bayes.diagnostics.foresight import Foresight, check_counts, foresee_all
from planet_bayes.errors import ConfigError
from planet_bayes.runs import Run

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """How the members' uncertainty about one quantity compares with the truth, each ``[H]``."""

    rmse: Array
    """Root mean square error of the members' mean."""
    std: Array
    """Root mean square over points of the members' std (ddof = 1)."""
    ratio: Array
    """The first over the second."""
    coverage: Array
    """Share of truths within ±2 std of the members' mean."""
    rank_correlation: Array
    """Spearman's correlation of error and std over points."""
    error_correlation: Array
    """Mean over pairs of members of the correlation of their errors."""
    auroc: Array | None = None
    """Of the std, for telling the points of this condition from clean ones."""


def figures(foresight: Foresight, clean: Foresight | None = None) -> dict[str, Figures]:
    """Return the figures of the return and of each observation, by name."""
    usual = {} if clean is None else clean.quantities()
    return {
        name: measured(compared, usual.get(name))
        for name, compared in foresight.quantities().items()
    }


def measured(compared: Comparison, clean: Comparison | None = None) -> Figures:
    """Return the figures of one quantity."""
    return Figures(
        rmse=compared.rmse(),
        std=compared.disagreement(),
        ratio=compared.ratio(),
        coverage=compared.coverage(),
        rank_correlation=compared.rank_correlation(),
        error_correlation=compared.error_correlation(),
        auroc=None if clean is None else auroc(compared.std, clean.std),
    )


@dataclass(frozen=True)
class Report:
    """What a model foresees under each condition."""

    foresight: dict[str, Foresight]
    """By the name of the condition."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a condition is missing, by its name."""

    @property
    def members(self) -> int:
        """P."""
        return next(iter(self.foresight.values())).members.shape[1]

    def figures(self) -> dict[str, dict[str, Figures]]:
        """Return the figures by condition and quantity."""
        clean = self.foresight.get(CLEAN)
        return {name: figures(one, clean) for name, one in self.foresight.items()}

    def to_json(self) -> dict[str, Any]:
        """Return all figures at all steps. Those that are not finite are None."""
        reference = calibrated(self.members) if self.members > 1 else None
        return {
            "members": self.members,
            "calibrated": None if reference is None else dict(vars(reference)),
            "conditions": {
                name: {
                    "points": len(self.foresight[name].real),
                    "sampling_share": plain(self.foresight[name].sampling_share()),
                    "reward": _rewards(self.foresight[name]),
                    "quantities": {
                        quantity: {key: plain(values) for key, values in vars(found).items()}
                        for quantity, found in quantities.items()
                    },
                }
                for name, quantities in self.figures().items()
            },
            "skipped": self.skipped,
        }


def judge(run: Run, collection: Collection, horizon: int, every: int) -> Report:
    """Return what a run's model foresees of the episodes of all conditions.

    Args:
        run: The run, on the CPU.
        collection: The episodes.
        horizon: Steps imagined ahead. Shorter episodes are left out.
        every: Steps between the points that are imagined from.
    """
    check_counts(horizon=horizon, every=every)
    foresight, skipped = {}, dict(collection.skipped)
    for name, made in collection.episodes.items():
        long = [episode for episode in made if len(episode) > horizon]
        if long:
            stream = f"diagnose-{name}-model"
            foresight[name] = foresee_all(run.agent.model, long, horizon, every, SEED, stream)
        else:
            skipped[name] = f"every episode is shorter than the horizon, {horizon}."
    if CLEAN not in foresight:
        raise ConfigError(f"{CONDITIONS[CLEAN].title}: {skipped[CLEAN]} Choose a smaller horizon.")
    return Report(foresight, skipped)


def _rewards(foresight: Foresight) -> Mapping[str, Any]:
    return {
        "error": plain(foresight.error()),
        "constant_error": plain(foresight.real.std(0)),
        "correlation_of_returns": plain(foresight.correlation()),
    }


def plain(values: Array | None) -> list[float | None] | None:
    """Return numbers that JSON knows."""
    if values is None:
        return None
    return [float(value) if math.isfinite(value) else None for value in values]
