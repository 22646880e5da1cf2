"""The planner alone, in a model of your own: a cart that must pass a post to reach a goal.

Both ways around the post are equally good. CEM's single Gaussian has to choose one; PaETS'
mixture can keep both. Run:  python examples/plan_in_your_own_model.py
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import torch

from planet_bayes.planner import Bounds, cem, paets, plan


class Cart:
    """A point on a plane that moves by its action, with a post at (1, 0) and a goal at (2, 0)."""

    def imagine(self, state, actions, generator):  # [B, N, H, A] -> rewards [B, N, P, H]
        position = state[:, None, None] + 0.5 * actions.cumsum(2)
        to_goal = (position - torch.tensor([2.0, 0.0])).norm(dim=-1)
        to_post = (position - torch.tensor([1.0, 0.0])).norm(dim=-1)
        return (-to_goal - 10 * (to_post < 0.5)).unsqueeze(2)


shared = {"horizon": 6, "num_trajectories": 1000, "elite_fraction": 0.2}
generator = torch.Generator().manual_seed(0)
for name, config in {
    "cem": cem(**shared),
    "paets": paets(**shared, spread=0.5, entropy_weight=0.3),
}.items():
    result = plan(Cart(), torch.zeros(1, 2), Bounds.symmetric(2), config, generator)
    print(f"{name}: first action {[round(x, 2) for x in result.action[0].tolist()]}")
    components = result.proposal.components()
    for weight, mean in zip(components.weight[0], components.mean[0], strict=True):
        if weight > 0.05:
            side = "left" if mean.cumsum(0)[:, 1].sum() > 0 else "right"
            print(f"  a plan of weight {weight:.2f} passes the post on the {side}")
