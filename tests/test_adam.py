"""Adam against its definition in NumPy, and without PyTorch's compiler."""

import subprocess
import sys

import numpy as np
import torch
from torch import nn

from planet_bayes.training.adam import BETAS, EPSILON, Adam


def test_the_steps_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    start, rate = rng.standard_normal((3, 4)), 0.01
    moved = nn.Parameter(torch.tensor(start, dtype=torch.float32))
    without_gradient = nn.Parameter(torch.ones(2))
    optimiser = Adam([moved, without_gradient], rate)
    value, first, second = start, np.zeros_like(start), np.zeros_like(start)
    for number in range(1, 6):
        gradient = rng.standard_normal(start.shape)
        moved.grad = torch.tensor(gradient, dtype=torch.float32)
        optimiser.step()
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        mean, square = first / (1 - BETAS[0] ** number), second / (1 - BETAS[1] ** number)
        value = value - rate * mean / (np.sqrt(square) + EPSILON)
        np.testing.assert_allclose(moved.detach().numpy(), value, rtol=1e-5)
    state = optimiser.state[moved]
    np.testing.assert_allclose(state["exp_avg"].numpy(), first, rtol=1e-5)
    np.testing.assert_allclose(state["exp_avg_sq"].numpy(), second, rtol=1e-5)
    assert state["step"] == 5
    assert without_gradient not in optimiser.state
    assert torch.equal(without_gradient, torch.ones(2))


def test_a_step_does_not_load_the_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from planet_bayes.training.adam import Adam\n"
        "weight = torch.nn.Parameter(torch.ones(3))\n"
        "optimiser = Adam([weight], 0.1)\n"
        "weight.square().sum().backward()\n"
        "optimiser.step()\n"
        "assert weight[0] < 1\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
