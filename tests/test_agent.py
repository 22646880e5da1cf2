"""The agent: belief, plan, action; its memory, its randomness and its errors."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model_building import (
    ACTIONS,
    BOTH,
    TINY,
    VECTOR,
    Modalities,
    build,
    kinds,
    make_observations,
    seeded,
    signature,
)
from planet_bayes.agent import Agent, Carry
from planet_bayes.config import ABLATION, Config
from planet_bayes.errors import ObservationError
from planet_bayes.planner import PlannerConfig
from planning import built_in

TINY_PLANNER = PlannerConfig(
    horizon=3, num_trajectories=24, num_iterations=2, num_components=2, elite_fraction=0.3
)


def make_agent(members: int, modalities: Modalities = VECTOR, **changes: Any) -> Agent:
    planner = dataclasses.replace(TINY_PLANNER, **changes)
    return Agent(build(members, modalities), signature(modalities), planner)


def flat(carry: Carry) -> list[Tensor]:
    return [carry.belief.deter, carry.belief.stoch, carry.action]


@kinds
def test_a_new_carry_is_a_new_episode(modalities: Modalities) -> None:
    agent = make_agent(3, modalities)
    views = make_observations(modalities, 4, 1)
    start = agent.initial()
    kept = [tensor.clone() for tensor in flat(start)]
    first, carry, _ = agent.act(start, views[:1], seeded(0))
    for step in range(1, 4):
        _, carry, _ = agent.act(carry, views[step : step + 1], seeded(step))
    assert carry.proposal is not None
    again, after, _ = agent.act(agent.initial(), views[:1], seeded(0))
    assert np.array_equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(flat(start), kept, strict=True))
    assert start.proposal is None
    assert all((tensor == 0).all() for tensor in kept)
    # The old carry does matter: with it the same view and noise lead elsewhere.
    other, _, _ = agent.act(carry, views[:1], seeded(0))
    assert not np.array_equal(first, other)
    assert np.array_equal(after.action.numpy(), again)


@kinds
def test_actions_are_in_range_and_exploration_moves_them(modalities: Modalities) -> None:
    agent = make_agent(2, modalities)
    views = make_observations(modalities, 1, 1)
    still, _, _ = agent.act(agent.initial(), views, seeded(0))
    moved, carry, _ = agent.act(agent.initial(), views, seeded(0), exploration=0.3)
    assert not np.array_equal(still, moved)
    assert np.array_equal(carry.action.numpy(), moved)  # the carry holds the executed action
    wild = [agent.act(agent.initial(), views, seeded(s), exploration=9.0)[0] for s in range(40)]
    for action in (still, moved, *wild):
        assert action.shape == (1, ACTIONS)
        assert action.dtype == np.float32
        assert np.abs(action).max() <= 1
    assert (np.abs(np.stack(wild)) == 1).mean() > 0.8  # 0.91 of N(0, 9) is outside [-1, 1]


def test_exploration_noise_has_the_stated_std() -> None:
    agent = make_agent(1, execute="mean", num_trajectories=12)
    views = make_observations(VECTOR, 1, 1) * 500
    calm, _, _ = agent.act(agent.initial(500), views, seeded(0))
    noisy, _, _ = agent.act(agent.initial(500), views, seeded(0), exploration=0.05)
    inside = np.abs(calm) < 0.7
    assert inside.sum() > 200
    noise = (noisy - calm)[inside]
    assert abs(noise.std() - 0.05) < 5 * 0.05 / math.sqrt(2 * inside.sum())
    assert abs(noise.mean()) < 5 * 0.05 / math.sqrt(inside.sum())


@kinds
def test_many_environments_at_once(modalities: Modalities) -> None:
    agent = make_agent(2, modalities)
    views = make_observations(modalities, 3, 1)
    carry = agent.initial(3)
    for step in range(2):
        action, carry, diagnostics = agent.act(carry, views, seeded(step))
        assert action.shape == (3, ACTIONS)
        assert carry.belief.deter.shape == (2, 3, TINY.deter)
        assert carry.belief.stoch.shape == (2, 3, TINY.stoch)
        assert diagnostics.returns.shape == (3, 12, 2)
        assert np.abs(action).max() <= 1
        assert built_in(carry.proposal).mean.shape == (3, 2, 3, ACTIONS)


@kinds
def test_environments_do_not_see_each_other(modalities: Modalities) -> None:
    agent = make_agent(2, modalities)
    views, others = (make_observations(modalities, 3, seed) for seed in (1, 2))
    results = []
    for given in (views, [views[0], others[1], views[2]]):
        action, carry, _ = agent.act(agent.initial(3), given, seeded(0))
        results.append((torch.from_numpy(action), carry.belief))
    (left, before), (right, after) = results
    assert torch.equal(before.stoch[:, [0, 2]], after.stoch[:, [0, 2]])
    assert torch.equal(left[[0, 2]], right[[0, 2]])
    assert not torch.equal(before.stoch[:, 1], after.stoch[:, 1])


@pytest.mark.parametrize("name", BOTH)
def test_every_modality_reaches_the_belief(name: str) -> None:
    agent = make_agent(2, BOTH)
    (view,), (other,) = make_observations(BOTH, 1, 1), make_observations(BOTH, 1, 2)
    beliefs = [
        agent.act(agent.initial(), [given], seeded(0))[1].belief.stoch
        for given in (view, view | {name: other[name]})
    ]
    assert not torch.equal(*beliefs)


@kinds
def test_observations_of_a_wrong_shape_are_refused(modalities: Modalities) -> None:
    agent = make_agent(2, modalities)
    views = make_observations(modalities, 2, 1)
    for name, value in views[0].items():
        for wrong in (value[..., :-1], value[None], value[..., None], value.astype(np.complex64)):
            with pytest.raises(ObservationError, match=f"'{name}': expected .* got an array"):
                agent.act(agent.initial(), [views[0] | {name: wrong}], seeded(0))
        partial = {key: one for key, one in views[0].items() if key != name}
        with pytest.raises(ObservationError, match=f"{name!r} is missing"):
            agent.act(agent.initial(), [partial], seeded(0))
    with pytest.raises(ObservationError, match="expected a dict with the keys"):
        agent.act(agent.initial(), ["view"], seeded(0))  # type: ignore[list-item]
    for batch_size, given in ((1, views), (2, views[:1])):
        with pytest.raises(ValueError, match=f"expected {batch_size}, one for each environment"):
            agent.act(agent.initial(batch_size), given, seeded(0))
    agent.act(agent.initial(2), views, seeded(0))


def test_raw_frames_are_prepared_before_they_are_seen() -> None:
    """A large frame acts like the small one that the signature makes of it."""
    agent = make_agent(2, BOTH)
    rng = np.random.default_rng(0)
    raw = {
        "camera": rng.integers(0, 256, (48, 100, 3), dtype=np.uint8),
        "joints": rng.normal(size=5),
        "ignored": "anything",
    }
    left, _, _ = agent.act(agent.initial(), [raw], seeded(0))
    prepared = agent.signature.prepare(raw)
    right, _, _ = agent.act_on_prepared(agent.initial(), [prepared], seeded(0))
    assert prepared["camera"].shape == (32, 32, 3)
    assert np.array_equal(left, right)


def test_the_agents_action_goes_into_the_next_belief() -> None:
    agent = make_agent(2)
    views = make_observations(VECTOR, 2, 1)
    _, carry, _ = agent.act(agent.initial(), views[:1], seeded(0))
    beliefs = []
    for action in (carry.action, -carry.action):
        held = dataclasses.replace(carry, action=action)
        beliefs.append(agent.act(held, views[1:], seeded(1))[1].belief.deter)
    assert not torch.equal(beliefs[0], beliefs[1])


def test_the_four_methods_differ_in_members_and_components_only() -> None:
    configs = {name: Config().with_method(name) for name in ABLATION}
    found = {n: (c.model.num_members, c.planner.num_components) for n, c in configs.items()}
    assert found == {"planet": (1, 1), "e_only": (5, 1), "m_only": (1, 5), "planet_bayes": (5, 5)}
    assert {name: config.method for name, config in configs.items()} == {n: n for n in ABLATION}
    rest = {
        (
            dataclasses.replace(c.planner, num_components=1),
            dataclasses.replace(c.model, num_members=1),
            dataclasses.replace(c, planner=Config().planner, model=Config().model),
        )
        for c in configs.values()
    }
    assert len(rest) == 1
    assert Config().planner.num_trajectories == 1000


@pytest.mark.parametrize("name", ABLATION)
def test_all_methods_imagine_as_many_trajectories(name: str) -> None:
    config = Config().with_method(name)
    members, components = config.model.num_members, config.planner.num_components
    agent = make_agent(members, num_trajectories=60, num_components=components)
    views = make_observations(VECTOR, 1, 1)
    _, _, diagnostics = agent.act(agent.initial(), views, seeded(0))
    assert diagnostics.returns.shape == (1, 60 // members, members)


def test_one_observation_without_its_list_is_refused() -> None:
    agent = make_agent(2)
    (view,) = make_observations(VECTOR, 1, 0)
    with pytest.raises(ObservationError, match=r"write \[observation\]"):
        agent.act(agent.initial(), view, seeded(0))  # type: ignore[arg-type]
