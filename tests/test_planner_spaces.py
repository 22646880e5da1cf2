"""Bounds."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import pytest
import torch

from planet_bayes.planner import (
    Bounds,
    PlannerError,
)
from planning import (
    INF,
    NAN,
)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([1.0], [-1.0], "below"),
        ([0.0, -1.0], [1.0, -1.0], "below"),
        ([-INF], [1.0], "finite"),
        ([-1.0], [INF], "finite"),
        ([NAN], [1.0], "finite"),
        ([-1.0, -1.0], [1.0], "shapes"),
        ([[-1.0]], [[1.0]], "shapes"),
        (-1.0, 1.0, "shapes"),
        ([], [], "shapes"),
    ],
)
def test_bad_bounds(low, high, message):
    with pytest.raises(PlannerError, match=message):
        Bounds(torch.tensor(low), torch.tensor(high))
