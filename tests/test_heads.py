"""The reward head: its loss by hand, its scale, its range."""

import dataclasses
from typing import Any

import pytest
import torch

from model_building import PLAIN, TINY, make_batch, seeded
from planet_bayes.models import HEADS, LossConfig, RewardHead
from planet_bayes.types import Moments

FEATURES = TINY.deter + TINY.stoch


def make_head(**changes: Any) -> RewardHead:
    return RewardHead(FEATURES, dataclasses.replace(TINY, **changes), seeded(0))


def scaled(std: float) -> RewardHead:
    head = make_head(normalise=True)
    head.rescale({"reward": Moments(torch.tensor(4.0), torch.tensor(std))})
    return head


def test_the_reward_is_linear() -> None:
    """A ReLU at the end would cut half of the range off."""
    head = make_head(activation="relu")
    predicted = head.predict(torch.randn(64, FEATURES, generator=seeded(1)))
    assert predicted.shape == (64,)
    assert predicted.min() < 0 < predicted.max()


@pytest.mark.parametrize("std", [None, 0.2])
def test_the_loss_is_half_the_squared_error_in_units_of_the_std(std: float | None) -> None:
    """The mean is over real steps only; the reward is scaled, not centred."""
    head = make_head() if std is None else scaled(std)
    batch = make_batch(2, 3, 4)
    batch.mask[0, 1, 2:] = 0
    features = torch.randn(2, 3, 4, FEATURES, generator=seeded(1))
    got = head.loss(features, batch, LossConfig(reward_scale=3.0))
    error = (head.predict(features) - batch.reward) / (std or 1.0)
    mean = (0.5 * error.square() * batch.mask).sum((1, 2)) / batch.mask.sum((1, 2))
    torch.testing.assert_close(got, 3.0 * mean)


def test_a_shared_batch_is_the_target_of_every_particle() -> None:
    head, batch = make_head(), make_batch(1, 3, 4)
    features = torch.randn(2, 3, 4, FEATURES, generator=seeded(1))
    got = head.loss(features, batch, PLAIN)
    alone = [head.loss(features[e : e + 1], batch, PLAIN) for e in range(2)]
    torch.testing.assert_close(got, torch.cat(alone))


def test_predictions_are_in_the_environments_units() -> None:
    plain, large = make_head(), scaled(50.0)
    features = torch.randn(8, FEATURES, generator=seeded(1))
    torch.testing.assert_close(large.predict(features), 50 * plain.predict(features))


def test_a_reward_that_never_changed_is_not_scaled() -> None:
    assert scaled(0.0).std == 1
    assert scaled(0.5).std == 0.5


def test_a_head_that_does_not_normalise_has_no_scale() -> None:
    head = make_head()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head.rescale({"reward": Moments(torch.tensor(4.0), torch.tensor(9.0))})
    after = head.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in after)
    assert not list(head.buffers())


def test_heads_are_registered_by_name() -> None:
    assert HEADS["reward"] is RewardHead
