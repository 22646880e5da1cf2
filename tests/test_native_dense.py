"""Dense layers in native code: outputs and gradients are those of a NumPy reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model_building import seeded
from planet_bayes.models.kernels import dense as kernel
from planet_bayes.models.kernels import native
from planet_bayes.models.kernels.dense import MIN_ROWS, dense
from planet_bayes.models.layers import MLP, mlp
from test_native import library as library  # the fixture

pytestmark = pytest.mark.skipif(not native.available(), reason="built without a compiler")

Case = tuple[Tensor, Tensor, Tensor]


def case(groups: int = 2, rows: int = 70, inputs: int = 7, outputs: int = 9) -> Case:
    """Return inputs, weight and bias."""
    return (
        torch.randn(groups, rows, inputs, generator=seeded(1)).requires_grad_(),
        torch.randn(groups, inputs, outputs, generator=seeded(2)).requires_grad_(),
        torch.randn(groups, 1, outputs, generator=seeded(3)).requires_grad_(),
    )


def gradient_of(outputs: Tensor) -> Tensor:
    return torch.randn(outputs.shape, generator=seeded(4))


def results(parts: Case, activation: str | None) -> list[Tensor]:
    outputs = dense(*parts, activation)
    assert type(outputs.grad_fn).__name__ == "_DenseBackward"
    return [outputs.detach(), *torch.autograd.grad(outputs, parts, gradient_of(outputs))]


def reference(parts: Case, activation: str | None) -> list[np.ndarray]:
    x, w, b = (part.detach().double().numpy() for part in parts)
    z = np.einsum("gni,gio->gno", x, w) + b
    y, slope = z, np.ones_like(z)
    if activation == "relu":
        y, slope = np.maximum(z, 0), (z > 0).astype(float)
    elif activation == "elu":
        y, slope = np.where(z > 0, z, np.expm1(z)), np.where(z > 0, 1, np.exp(z))
    at = gradient_of(torch.from_numpy(y).float()).double().numpy() * slope
    return [
        y,
        np.einsum("gno,gio->gni", at, w),
        np.einsum("gni,gno->gio", x, at),
        at.sum(1, keepdims=True),
    ]


def check(parts: Case, activation: str | None) -> None:
    for found, expected in zip(
        results(parts, activation), reference(parts, activation), strict=True
    ):
        tolerance = 2e-6 * max(1.0, float(np.abs(expected).max())) * np.sqrt(parts[0].shape[1])
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("activation", [None, "relu", "elu"])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(64, 1, 1), (70, 7, 9), (131, 16, 32), (300, 40, 100)]
)
def test_it_is_the_reference(activation: str | None, rows: int, inputs: int, outputs: int) -> None:
    for groups in (1, 3):
        check(case(groups, rows, inputs, outputs), activation)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_size_is_the_reference(data: st.DataObject) -> None:
    sizes = [st.integers(1, 3), st.integers(MIN_ROWS, 300), st.integers(1, 50), st.integers(1, 50)]
    activation = data.draw(st.sampled_from([None, "relu", "elu"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(native.VARIABLE, data.draw(st.sampled_from(native.available())))
        check(case(*(data.draw(size) for size in sizes)), activation)


def test_views_are_read_where_they_are() -> None:
    """One input for all groups, a weight of a linear layer, a slice of a wider array."""
    _, _, bias = case(3, outputs=8)
    shared = torch.randn(1, 70, 6, generator=seeded(5)).requires_grad_()
    weight = torch.randn(3, 8, 6, generator=seeded(6)).requires_grad_()
    check((shared.expand(3, -1, -1), weight.mT, bias), "elu")
    wide = torch.randn(3, 70, 20, generator=seeded(7)).requires_grad_()
    check((wide[..., 5:11], weight.mT, bias), "relu")
    turned = torch.randn(3, 6, 70, generator=seeded(8)).requires_grad_()
    check((turned.mT, weight.mT, bias), None)


def test_threads_change_no_bit() -> None:
    kept, parts = torch.get_num_threads(), case(2, 500, 33, 29)
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(parts, "elu"))
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    finally:
        torch.set_num_threads(kept)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    inputs, weight, bias = case()
    with torch.no_grad():
        inputs[1, 3, 2] = bad
    outputs, _, at_weight, _ = results((inputs, weight, bias), None)
    assert not outputs[1, 3].isfinite().any()
    assert outputs[0].isfinite().all()
    assert not at_weight[1, 2].isfinite().any()


def test_gradients_that_nobody_needs_are_not_computed() -> None:
    inputs, weight, bias = case()
    outputs = dense(inputs.detach(), weight, bias, "elu")
    outputs.sum().backward()
    assert weight.grad is not None
    frozen = dense(inputs, weight.detach(), bias.detach(), "elu")
    (found,) = torch.autograd.grad(frozen.sum(), [inputs])
    assert found.shape == inputs.shape


def test_what_it_cannot_do_goes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def native_is_used(parts: Case, activation: str | None = None) -> bool:
        return kernel._supports(*parts, activation)

    inputs, weight, bias = case()
    assert native_is_used((inputs, weight, bias))
    assert not native_is_used((inputs, weight, bias), "silu")
    assert not native_is_used(case(rows=MIN_ROWS - 1))
    assert not native_is_used((inputs.double(), weight.double(), bias.double()))
    assert not native_is_used((inputs, weight, bias[:1]))
    with torch.no_grad():
        assert not native_is_used((inputs, weight, bias))
    expected = dense(inputs, weight, bias, "elu")
    monkeypatch.setenv(native.VARIABLE, "torch")
    assert not native_is_used((inputs, weight, bias))
    torch.testing.assert_close(dense(inputs, weight, bias, "elu"), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError):  # PyTorch's own message
        dense(inputs, weight[:, :3], bias)


@pytest.mark.parametrize("activation", ["relu", "elu", "silu"])
def test_a_network_is_its_layers_one_after_the_other(activation: str) -> None:
    network = mlp(5, 8, 2, 3, activation)
    for shape in ((5,), (4, 5), (2, 40, 5)):
        inputs = torch.randn(shape, generator=seeded(9))
        expected = inputs
        for layer in network:
            expected = layer(expected)
        torch.testing.assert_close(network(inputs), expected, rtol=1e-5, atol=1e-6)


def test_other_layers_and_hooks_are_not_lost() -> None:
    inputs = torch.randn(70, 5, generator=seeded(9))

    def plain(network: torch.nn.Module) -> Tensor:
        expected = inputs
        for layer in network.children():
            expected = layer(expected)
        return expected

    changed = [mlp(5, 8, 2, 3, "elu") for _ in range(4)]
    changed[0].append(torch.nn.Softplus())
    changed[1].insert(1, torch.nn.LayerNorm(8))
    changed[2] = MLP(torch.nn.Linear(5, 8, bias=False), *list(changed[2])[1:])
    calls: list[object] = []
    changed[3][0].register_forward_hook(lambda *given: calls.append(given))
    for network in changed:
        torch.testing.assert_close(network(inputs), plain(network), rtol=1e-5, atol=1e-6)
    assert len(calls) == 2


@pytest.mark.parametrize("rows", [10, 70])
def test_second_derivatives_are_right_or_refused(rows: int) -> None:
    network = mlp(5, 8, 1, 1, "elu")
    inputs = torch.randn(rows, 5, generator=seeded(9)).requires_grad_()

    def penalty() -> Tensor:
        (slope,) = torch.autograd.grad(network(inputs).sum(), [inputs], create_graph=True)
        return slope.square().sum()

    if rows < MIN_ROWS:
        penalty().backward()
        (first, *_) = network.parameters()
        assert first.grad is not None
        assert first.grad.abs().sum() > 0
    else:
        with pytest.raises(RuntimeError, match="no second derivatives"):
            penalty()


def test_a_linear_output_may_be_changed_in_place() -> None:
    inputs, weight, bias = case()
    outputs = dense(inputs, weight, bias)
    outputs += 1
    outputs.sum().backward()
    assert inputs.grad is not None
