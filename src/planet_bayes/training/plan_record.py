"""What is recorded of an episode's plans: a few numbers of each, and their means."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from planet_bayes.planner import Diagnostics


@dataclass
class PlanRecord:
    """Collects the numbers of many plans."""

    plans: list[Tensor] = field(default_factory=list)
    """Five numbers of each plan: means over its problems."""

    def add(self, diagnostics: Diagnostics) -> None:
        """Add a plan. Only its numbers are kept."""
        facts = (
            diagnostics.distinct_plans,
            diagnostics.component_distance,
            diagnostics.effective_components,
            diagnostics.effective_samples,
            diagnostics.num_rejected,
        )
        self.plans.append(torch.stack([fact.mean(dtype=torch.float32).cpu() for fact in facts]))

    def summary(self) -> dict[str, float]:
        """Return means over the plans, and the sum of rejected candidates."""
        distinct, distance, components, samples, rejected = torch.stack(self.plans, 1)
        return {
            "plan_distinct": float(distinct.mean()),
            "plan_distance": float(distance.mean()),
            "plan_components": float(components.mean()),
            "plan_samples": float(samples.mean()),
            "plan_rejected": float(rejected.sum()),
        }
