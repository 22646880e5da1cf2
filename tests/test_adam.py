"""Adam equals `torch.optim.Adam`, and does not load PyTorch's compiler."""

import subprocess
import sys

import torch
from torch import nn

from planet_bayes.training.adam import EPSILON, Adam


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,), (2,))]


def test_the_steps_are_those_of_torch() -> None:
    ours, theirs = parameters(), parameters()
    optimiser = Adam(ours, 0.01)
    reference = torch.optim.Adam(theirs, 0.01, eps=EPSILON, fused=True)
    for number in range(5):
        generator = torch.Generator().manual_seed(number)
        for left, right in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
            left.grad = torch.randn(left.shape, generator=generator)
            right.grad = left.grad.clone()
        optimiser.step()
        reference.step()
    for left, right in zip(ours, theirs, strict=True):
        assert torch.equal(left, right)
    assert list(optimiser.state) == ours[:2]
    for left, right in zip(ours[:2], theirs[:2], strict=True):
        assert set(optimiser.state[left]) == set(reference.state[right])
        for name, value in optimiser.state[left].items():
            assert torch.equal(value, reference.state[right][name])


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
