"""The model's computations made fast for a device. Each equals the plain form in a test.

`fast_path` is the one place that decides where they are used.
"""

import torch


def refuse_second_derivatives() -> None:
    """Raise in a backward pass that is recorded itself: the kernels would drop a part of it."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the fast kernels for CPUs have no second derivatives; do without create_graph=True, "
            "or compute what you differentiate twice with layers of your own."
        )


def fast_path(device: torch.device) -> bool:
    """Return whether the kernels for CPUs apply."""
    return device.type == "cpu"
