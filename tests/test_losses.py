"""The terms of the objective by hand, and the frames that are decoded."""

import dataclasses
import math

import pytest
import torch

from model_building import PLAIN, build, gradients, make_batch, seeded
from planet_bayes.models import Normal, losses


def normal(mean: list[float], std: list[float], grad: bool = False) -> Normal:
    tensors = [torch.tensor([[[x]]], dtype=torch.float64).squeeze(0) for x in (mean, std)]
    return Normal(*(t.requires_grad_(grad) for t in tensors))


def test_kl_by_hand() -> None:
    left, right = normal([0.5, 2.0], [0.6, 1.0]), normal([-0.1, 2.0], [0.8, 2.0])
    # log(.8/.6) + (.36 + .36) / 1.28 - ½ = .350182...;  log 2 + 1/8 - ½ = .318147...
    first = math.log(4 / 3) + 0.5625 - 0.5
    second = math.log(2) + 0.125 - 0.5
    assert first == pytest.approx(0.3501820725)
    assert losses.kl_divergence(left, right).item() == pytest.approx(first + second, rel=1e-12)
    assert losses.kl_divergence(left, left).item() == 0
    back = losses.kl_divergence(right, left).item()
    expected = math.log(0.75) + (0.64 + 0.36) / 0.72 - 0.5 + math.log(0.5) + 2 - 0.5
    assert back == pytest.approx(expected, rel=1e-12)


def test_squared_error_by_hand() -> None:
    target = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    mean = torch.tensor([[0.0, 4.0], [0.5, -1.0]])
    assert losses.squared_error(target, mean, 0).tolist() == [[0.5, 2.0], [0.125, 0.0]]
    assert losses.squared_error(target, mean, 1).tolist() == [2.5, 0.125]
    assert losses.squared_error(target, mean, 2).item() == 2.625
    # It is the unit Gaussian's negative log density, up to the constant.
    density = torch.distributions.Normal(mean, 1.0).log_prob(target)
    constant = 0.5 * math.log(2 * math.pi)
    assert torch.allclose(losses.squared_error(target, mean, 0), -density - constant)


def test_masked_mean_by_hand() -> None:
    values = torch.tensor([[[1.0, 2.0, 100.0], [3.0, 100.0, 100.0]]])
    mask = torch.tensor([[[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])
    assert losses.masked_mean(values, mask).tolist() == [2.0]  # by step, not by sequence
    two = torch.cat([values, 10 * values])
    assert losses.masked_mean(two, mask).tolist() == [2.0, 20.0]  # a mask that is shared
    other = torch.cat([mask, 1 - mask])
    assert losses.masked_mean(two, other).tolist() == [2.0, 1000.0]
    assert losses.masked_mean(values, torch.zeros_like(mask)).tolist() == [0.0]


def test_free_nats_clip_each_step_and_stop_its_gradient() -> None:
    mean = torch.tensor([[[[0.2], [3.0]]]], dtype=torch.float64, requires_grad=True)
    one = torch.ones_like(mean)
    trained, plain = losses.complexity(
        Normal(mean, one), Normal(torch.zeros_like(mean), one), 1.0, None
    )
    assert trained.tolist() == [[[1.0, 4.5]]]
    assert plain.flatten().tolist() == pytest.approx([0.02, 4.5], rel=1e-12)
    assert not plain.requires_grad
    trained.sum().backward()
    assert mean.grad is not None
    assert mean.grad.flatten().tolist() == [0.0, 3.0]


@pytest.mark.parametrize("balance", [0.0, 0.25, 0.8, 1.0])
def test_kl_balance_shares_the_gradient_and_keeps_the_value(balance: float) -> None:
    mq, sq, mp, sp = 0.5, 0.6, -0.1, 0.8
    posterior, prior = normal([mq], [sq], grad=True), normal([mp], [sp], grad=True)
    trained, plain = losses.complexity(posterior, prior, 0.0, balance)
    value = math.log(sp / sq) + (sq**2 + (mq - mp) ** 2) / (2 * sp**2) - 0.5
    assert trained.item() == pytest.approx(value, rel=1e-12)
    assert plain.item() == pytest.approx(value, rel=1e-12)
    trained.sum().backward()
    by_hand = [
        (posterior.mean, (1 - balance) * (mq - mp) / sp**2),
        (posterior.std, (1 - balance) * (sq / sp**2 - 1 / sq)),
        (prior.mean, -balance * (mq - mp) / sp**2),
        (prior.std, balance * (1 / sp - (sq**2 + (mq - mp) ** 2) / sp**3)),
    ]
    for tensor, expected in by_hand:
        assert tensor.grad is not None
        assert tensor.grad.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_without_balance_both_sides_get_all_of_the_gradient() -> None:
    posterior, prior = normal([0.5], [0.6], grad=True), normal([-0.1], [0.8], grad=True)
    losses.complexity(posterior, prior, 0.0, None)[0].sum().backward()
    assert posterior.mean.grad is not None
    assert prior.mean.grad is not None
    assert posterior.mean.grad.item() == pytest.approx(0.9375, rel=1e-12)
    assert prior.mean.grad.item() == pytest.approx(-0.9375, rel=1e-12)


@pytest.mark.parametrize(
    ("fraction", "count"), [(0.01, 1), (0.25, 4), (0.35, 5), (0.97, 15), (0.98, 15), (1.0, 15)]
)
def test_decoded_frames_weigh_so_that_nothing_changes_on_average(
    fraction: float, count: int
) -> None:
    """A frame is picked with probability F / BT; its weight times that must be its share of
    the masked mean, for every frame, not only on average over frames."""
    mask = torch.ones(2, 3, 5, dtype=torch.float64)
    mask[0, 1, 2:] = 0
    mask[1, 0, 4:] = 0
    share = mask.flatten(1) / mask.sum((1, 2)).unsqueeze(-1)
    draws = 400
    picked = torch.zeros(2, 15)
    generator = seeded(1)
    for _ in range(draws):
        index, weight = losses.decoded_frames(mask, 2, fraction, generator)
        assert index.shape == weight.shape == (2, count)
        for e in range(2):
            assert len(index[e].unique()) == count
            torch.testing.assert_close(
                weight[e] * count / 15, share[e, index[e]], rtol=1e-12, atol=0
            )
            picked[e, index[e]] += 1
    chance = count / 15
    error = math.sqrt(chance * (1 - chance) / draws)
    # 30 frequencies; 4.5 standard errors are exceeded by chance once in 5,000 such tests.
    assert (picked / draws - chance).abs().max() <= 4.5 * error
    if count < 15:
        assert not torch.equal(picked[0], picked[1])  # members pick apart


def test_decoding_a_part_of_the_frames_keeps_the_mean_gradient() -> None:
    """Differences between partial and full gradients under the same latent noise, 300 draws.

    Each parameter's mean difference is held against its own standard error. With under 1,000
    parameters, 6 errors of a t-distributed mean are exceeded by chance less than once in
    100,000 runs; forgetting to rescale is off by many times that.
    """
    model = build(2)
    batch = make_batch(2, 2, 5)
    batch.mask[0, 1, 3:] = 0
    part = dataclasses.replace(PLAIN, decode_fraction=0.3)
    partial: list[torch.Tensor] = []
    full: list[torch.Tensor] = []
    for seed in range(300):
        for config, into in ((part, partial), (PLAIN, full)):
            _, found = gradients(model, batch, config, seed, "observation")
            into.append(torch.cat([g.flatten() for g in found.values()]).double())
    difference = torch.stack(partial) - torch.stack(full)
    error = difference.std(0) / math.sqrt(len(partial))
    mean = difference.mean(0)
    trained = torch.stack(full).abs().amax(0) > 0
    assert trained.sum() > 300
    assert error[trained].min() > 0
    assert torch.equal(mean[~trained], torch.zeros_like(mean[~trained]))
    assert (mean[trained].abs() / error[trained]).max() < 6
    unscaled = 0.3 * torch.stack(partial) - torch.stack(full)
    biased = unscaled.mean(0).abs() / (unscaled.std(0) / math.sqrt(len(partial)))
    assert biased[trained].max() > 20
