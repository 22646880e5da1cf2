"""Clipping: against NumPy, and that a member takes the steps that it would take alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model_building import PLAIN, build, fresh, make_batch, map_batch, seeded
from planet_bayes.config import Config, LearnConfig
from planet_bayes.data.replay import Replay
from planet_bayes.models import WorldModel
from planet_bayes.training import learner as learning
from planet_bayes.training.clipping import clip_by_particle
from planet_bayes.training.learner import Learner
from planet_bayes.types import SequenceBatch


def parameters(*gradients: np.ndarray) -> list[nn.Parameter]:
    found = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(gradient.shape, dtype=torch.float64))
        parameter.grad = torch.tensor(gradient)
        found.append(parameter)
    return found


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("particles", [1, 3])
def test_each_particle_and_the_shared_networks_have_their_own_norm(
    particles: int, limit: float
) -> None:
    rng = np.random.default_rng(0)
    own = [rng.normal(size=(particles, *shape)) for shape in ((4, 5), (1, 5), (2,))]
    own[0][-1] *= 10  # a spike of the last particle
    shared = [rng.normal(size=(6, 2)), rng.normal(size=3)]
    own_parameters, shared_parameters = parameters(*own), parameters(*shared)
    norms = clip_by_particle(own_parameters, shared_parameters, particles, limit)
    for p in range(particles):
        norm = np.sqrt(sum(np.square(part[p]).sum() for part in own))
        assert norms["gradient_norm"][p].item() == pytest.approx(norm)
        for part, parameter in zip(own, own_parameters, strict=True):
            assert parameter.grad is not None
            np.testing.assert_allclose(parameter.grad[p], part[p] * min(1, limit / norm))
    norm = np.sqrt(sum(np.square(part).sum() for part in shared)) / particles
    assert norms["shared_gradient_norm"].item() == pytest.approx(norm)
    for part, parameter in zip(shared, shared_parameters, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad, part * min(1, limit / norm))


def test_gradients_within_the_limit_keep_every_bit() -> None:
    gradient = np.random.default_rng(0).normal(size=(3, 7))
    for own, shared in ((parameters(gradient), []), ([], parameters(gradient))):
        clip_by_particle(own, shared, 3, 1000.0)
        (parameter,) = own or shared
        assert parameter.grad is not None
        assert np.array_equal(parameter.grad.numpy(), gradient)


def test_zero_missing_and_infinite_gradients() -> None:
    missing = nn.Parameter(torch.zeros(2, 3))
    assert clip_by_particle([missing], [missing], 2, 1.0) == {}
    (zero,) = parameters(np.zeros((2, 3)))
    norms = clip_by_particle([zero, missing], [], 2, 1.0)
    assert norms["gradient_norm"].tolist() == [0, 0]
    assert zero.grad is not None
    assert zero.grad.eq(0).all()
    (broken,) = parameters(np.array([[1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]]))
    norms = clip_by_particle([broken], [], 3, 1.0)
    assert norms["gradient_norm"].isfinite().tolist() == [True, False, False]
    assert broken.grad is not None
    assert broken.grad[0].norm().item() == pytest.approx(1)


class Fed(Learner):
    """A learner that gets its batches from the test."""

    batches: list[SequenceBatch]

    def sample(self, replay: Replay, number: int) -> SequenceBatch:
        return self.batches[number]


def alone(model: WorldModel, member: int, single: WorldModel) -> WorldModel:
    """Return ``single``, a model of one member, with the weights of this one."""
    own = set(model.particle_parameters())
    with torch.no_grad():
        for to, parameter in zip(single.parameters(), model.parameters(), strict=True):
            to.copy_(parameter[member : member + 1] if parameter in own else parameter)
    return single


UPDATES, LIMIT = 5, 480.0
SIZES: dict[str, Any] = {
    **{name: 32 for name in ("deter", "hidden", "dense_units", "reward_units")},
    "stoch": 16,
}
"""Small multiples of the vector width. At most other sizes the last bits of a member depend on the
number of members; see the last test."""


def learn(
    model: WorldModel, batches: list[SequenceBatch], noises: list[Tensor], patch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[dict[str, float]]]:
    """Return the members' parameters after some updates, and the rows of the updates."""
    for part in (model.senses, model.heads):
        part.requires_grad_(False)
    config = Config(model=model.config, learn=LearnConfig(ema_decay=0.9), loss=PLAIN)
    learner = Fed(model, config)
    learner.batches = batches
    given = iter(noises)
    with patch.context() as inner:
        inner.setattr(learning, "MAX_GRADIENT_NORM", LIMIT)
        inner.setattr(torch, "randn", lambda *_, **__: next(given))
        rows = [learner.update(Replay(Path("unused")), number) for number in range(UPDATES)]
    acting = learner.acting_model.particle_parameters()
    return [*model.particle_parameters(), *acting], rows


def test_a_member_takes_the_steps_that_it_would_take_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with clipping active; the shared networks are frozen."""
    members = 3
    model = build(members, **SIZES)
    batches = [make_batch(members, 8, 8, seed=number) for number in range(UPDATES)]
    # Rewards of different sizes, so that some members are clipped and others are not.
    scale = torch.tensor([0.1, 1.0, 30.0]).view(-1, 1, 1)
    batches = [dataclasses.replace(batch, reward=batch.reward * scale) for batch in batches]
    noises = [torch.randn(8, members, 8, 16) for _ in range(UPDATES)]
    singles = [alone(model, member, build(1, **SIZES)) for member in range(members)]
    together, _ = learn(model, batches, noises, monkeypatch)
    clipped = []
    for member, single in enumerate(singles):
        part = slice(member, member + 1)
        own_batches = [map_batch(lambda x, part=part: x[part], batch) for batch in batches]
        own_noises = [noise[:, part] for noise in noises]
        found, rows = learn(single, own_batches, own_noises, monkeypatch)
        clipped.append([row["gradient_norm"] > LIMIT for row in rows])
        for ours, theirs in zip(together, found, strict=True):
            assert torch.equal(ours[part], theirs)
    assert any(map(any, clipped))
    assert not all(map(all, clipped))


def gradients(model: WorldModel, batch: SequenceBatch, noise: Tensor, patch: Any) -> list[Tensor]:
    """Return the gradients of the members' parameters in float64."""
    batch = map_batch(lambda x: x.double() if x.is_floating_point() else x, batch)
    with patch.context() as inner:
        inner.setattr(torch, "randn", lambda *_, **__: noise)
        model.double().loss(batch, PLAIN, seeded(0))["total"].sum().backward()
    return [parameter.grad for parameter in model.particle_parameters()]  # type: ignore[misc]


def test_at_the_size_of_the_paper_only_rounding_couples_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members, batch = 3, make_batch(3, 4, 6)
    sizes: dict[str, Any] = {**dict.fromkeys(SIZES, 200), "stoch": 30}
    noise = torch.randn(6, members, 4, 30, generator=seeded(1), dtype=torch.float64)
    model = fresh(members, **sizes)
    singles = [alone(model, member, fresh(1, **sizes)) for member in range(members)]
    together = gradients(model, batch, noise, monkeypatch)
    for member, single in enumerate(singles):
        part = slice(member, member + 1)
        own = map_batch(lambda x, part=part: x[part], batch)
        for ours, theirs in zip(
            together, gradients(single, own, noise[:, part], monkeypatch), strict=True
        ):
            torch.testing.assert_close(ours[part], theirs, rtol=1e-9, atol=1e-11)
