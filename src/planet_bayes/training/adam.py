"""Adam, through PyTorch's function instead of its class.

`torch.optim.Adam` imports PyTorch's compiler when it is created, which takes seconds at the start
of every run. Its function does not.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

EPSILON = 1e-4
"""PlaNet's."""
BETAS = (0.9, 0.999)


class Adam:
    """The moments of parameters, and the step that they give.

    ``state`` holds ``step``, ``exp_avg`` and ``exp_avg_sq`` of every parameter that has had a
    gradient.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [parameter for parameter in self.parameters if parameter.grad is not None]
        for parameter in moved:
            if parameter not in self.state:
                self.state[parameter] = zero_moments(parameter)
        states = [self.state[parameter] for parameter in moved]
        adam(
            list(moved),
            [parameter.grad for parameter in moved if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )


def zero_moments(parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return the moments of a parameter that has had no gradient."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }
