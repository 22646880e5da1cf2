"""The monitor: what it predicts, remembers and judges, and that it changes no action."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model_building import (
    ACTIONS,
    BOTH,
    VECTOR,
    build,
    make_observations,
    record,
    seeded,
    signature,
)
from planet_bayes.agent import Agent, planned_actions
from planet_bayes.confidence.calibration import Calibration, Surprise, load
from planet_bayes.confidence.conformal import GAIN, Bands
from planet_bayes.confidence.monitor import (
    SMOOTHING_STEPS,
    WARM_UP_STEPS,
    Memory,
    log_surprise,
    smooth,
    still_steps,
)
from planet_bayes.confidence.prediction import over_members, predict
from planet_bayes.errors import ConfigError, ObservationError, RunError
from planet_bayes.models import ImportanceFilter, LatentModel, Normal
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.kernels import native
from planet_bayes.models.kernels.mean_path import mean_path
from planet_bayes.types import Belief
from test_agent import TINY_PLANNER, make_agent

HORIZON = TINY_PLANNER.horizon


def calibration(agent: Agent, threshold: float = 1e9) -> Calibration:
    entries = {"reward": 1, "return": 1, **agent.signature.vector_sizes()}
    one = np.ones((HORIZON, sum(entries.values())))
    bands = Bands(0.5 * one, 1.0 * one, 0.1 * one, 1.0 * one, 2.0 * one)
    still = (100,) * (sum(entries.values()) - 2)
    surprise = Surprise(0.0, 1.0, threshold, 0.001)
    return Calibration(0.9, entries, bands, surprise, still, 3, 30, "x")


def test_the_fast_path_is_the_plain_one() -> None:
    model = build(3, VECTOR)
    generator = seeded(5)
    belief = Belief(
        torch.randn(3, 4, model.config.deter, generator=generator),
        torch.randn(3, 4, model.config.stoch, generator=generator),
    )
    actions = torch.randn(7, 4, ACTIONS, generator=generator)
    with torch.no_grad():
        plain = model.rollout(belief, actions, None)
        fast = mean_path(model.rssm, model.weights(), belief, actions)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("activation", ["relu", "elu", "silu"])
def test_predictions_are_those_of_each_member(packed: bool, activation: str) -> None:
    model = build(3, VECTOR, activation=activation)
    (name,) = VECTOR
    generator = seeded(1)
    belief = Belief(
        torch.randn(3, 2, model.config.deter, generator=generator),
        torch.randn(3, 2, model.config.stoch, generator=generator),
    )
    actions = torch.rand(2, 4, ACTIONS, generator=generator)
    found = predict(model, belief, actions, (name,), model.imagination() if packed else None)
    with torch.no_grad():
        features = model.rollout(belief, actions.transpose(0, 1), None)
        rewards = model.head("reward").predict(features).permute(1, 2, 0).double().numpy()
        decoded = model.reconstruct(features)[name].permute(1, 2, 0, 3).double().numpy()
    np.testing.assert_allclose(found.mean[..., 0], rewards.mean(0), atol=1e-5)
    np.testing.assert_allclose(found.mean[..., 1], rewards.cumsum(2).mean(0), atol=1e-5)
    np.testing.assert_allclose(found.std[..., 1], rewards.cumsum(2).std(0, ddof=1), atol=1e-5)
    np.testing.assert_allclose(found.std[..., 2:], decoded.std(0, ddof=1), atol=1e-5)


def test_kernels_predict_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(3, VECTOR)
    shapes = (3, 2, model.config.deter), (3, 2, model.config.stoch)
    belief = Belief(*(torch.randn(shape, generator=seeded(4)) for shape in shapes))
    actions, found = torch.rand(2, 6, ACTIONS, generator=seeded(5)), {}
    for name in (*native.available(), "torch"):
        monkeypatch.setenv(native.VARIABLE, name)
        imagination = model.imagination()
        assert imagination.native == (name != "torch")
        found[name] = predict(model, belief, actions, tuple(VECTOR), imagination)
    for prediction in found.values():
        np.testing.assert_allclose(prediction.mean, found["torch"].mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(prediction.std, found["torch"].std, rtol=1e-5, atol=1e-5)


def test_an_agent_packs_its_weights_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor imagines with the weights that the planner has used."""
    agent = make_agent(3)
    agent = agent.watched(calibration(agent))
    packed, rolled = record(monkeypatch, agent.model, "imagination"), []
    roll_out = Imagination.roll_out

    def noted(self: Imagination, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rolled.append(arguments)
        return roll_out(self, *arguments)

    monkeypatch.setattr(Imagination, "roll_out", noted)
    views = make_observations(VECTOR, 2, 1)
    agent.act(agent.initial(2), views, seeded(0))
    assert len(packed) == 1
    assert [one[1].shape for one in rolled] == [(2, 1, HORIZON, ACTIONS)] * bool(native.available())


def test_dead_members_do_not_count_and_one_member_has_no_spread() -> None:
    values = np.random.default_rng(0).normal(size=(3, 1, 2, 4))
    whole = over_members(values[1:])
    values[0, 0, 1, 2] = np.nan
    left = over_members(values)
    np.testing.assert_array_equal(left.mean, whole.mean)
    np.testing.assert_array_equal(left.std, whole.std)
    assert (over_members(values[1:2]).std == 0).all()


def test_a_member_may_be_dead_in_one_environment_only() -> None:
    values = np.random.default_rng(1).normal(size=(3, 2, 2, 4))
    values[0, 1] = np.inf
    found = over_members(values)
    np.testing.assert_array_equal(found.mean[0], values[:, 0].mean(0))
    np.testing.assert_array_equal(found.std[1], values[1:, 1].std(0, ddof=1))
    values[:, 0] = np.nan
    gone = over_members(values)
    assert np.isnan(gone.mean[0]).all()
    np.testing.assert_array_equal(gone.mean[1], found.mean[1])


def killed(agent: Agent, members: slice) -> Agent:
    with torch.no_grad():
        for part in agent.model.particle_parameters():
            part[members] = torch.nan
    return agent


def test_one_dead_member_leaves_bands_and_all_of_them_are_an_alarm() -> None:
    views = make_observations(VECTOR, 1, 1)
    agent = make_agent(3)
    agent = killed(agent.watched(calibration(agent)), slice(0, 1))
    carry = agent.initial()
    for step in range(WARM_UP_STEPS + 2):
        _, carry, _ = agent.act(carry, views, seeded(step), rewards=[0.0])
    assert carry.confidence is not None
    for band in carry.confidence.bands.values():
        assert np.isfinite(band.low).all()
        assert (band.low < band.high).all()
    assert np.isfinite(carry.confidence.surprise).all()
    assert not carry.confidence.alarm.any()
    assert np.isnan(smooth(np.zeros(1), np.array([np.nan]), 9)).all()
    assert smooth(np.array([np.nan]), np.array([5.0]), 9).item() == 5 / SMOOTHING_STEPS
    known = agent.monitor
    assert known is not None
    killed(agent, slice(None))
    shape = (3, 1, agent.model.config.stoch)
    dead = Belief(torch.full((3, 1, agent.model.config.deter), torch.nan), torch.zeros(shape))
    posterior = Normal(torch.zeros(shape), torch.ones(shape))
    prepared = {"sensors": torch.zeros(1, *views[0]["sensors"].shape)}
    actions = torch.zeros(1, HORIZON, ACTIONS)
    memory = known.update(Memory(), dead, posterior, actions, prepared, None)
    assert memory.confidence is not None
    assert memory.confidence.alarm.all()
    assert np.isnan(memory.confidence.bands["return"].mean).all()


def test_predictions_that_are_not_finite_are_an_alarm_too() -> None:
    """The surprise does not know the decoder."""
    views = make_observations(VECTOR, 1, 1)
    agent = make_agent(3)
    agent = agent.watched(calibration(agent))
    with torch.no_grad():
        for name, part in agent.model.named_parameters():
            if "decoder" in name:
                part.fill_(torch.nan)
    _, carry, _ = agent.act(agent.initial(), views, seeded(0))
    assert carry.confidence is not None
    assert np.isnan(carry.confidence.bands["sensors"].mean).all()
    assert np.isfinite(carry.confidence.surprise).all()
    assert carry.confidence.alarm.all()


def test_one_member_has_bands_from_its_errors_alone() -> None:
    agent = make_agent(1)
    agent = agent.watched(calibration(agent))
    _, carry, _ = agent.act(agent.initial(), make_observations(VECTOR, 1, 1), seeded(0))
    assert carry.confidence is not None
    assert (carry.confidence.disagreement == 0).all()
    band = carry.confidence.bands["reward"]
    # std 0 and floor 0.5: a center of 0.1 and edges of 1 and 2, in units of 0.5.
    np.testing.assert_allclose(band.high - band.mean, 0.5 * 2.1)
    np.testing.assert_allclose(band.mean - band.low, 0.5 * 0.9)


def test_a_calibration_of_another_horizon_or_other_sensors_is_refused() -> None:
    agent = make_agent(2)
    known = calibration(agent)
    longer = dataclasses.replace(TINY_PLANNER, horizon=HORIZON + 1)
    with pytest.raises(ConfigError, match=f"for {HORIZON} steps ahead"):
        Agent(agent.model, agent.signature, longer).watched(known)
    with pytest.raises(ConfigError, match="calibrate this agent"):
        agent.watched(dataclasses.replace(known, entries={**known.entries, "more": 1}))


def test_sensors_that_stand_still_are_an_alarm_by_hand() -> None:
    still: np.ndarray | None = None
    last: np.ndarray | None = None
    counts = []
    for values in ([1.0, 5.0], [1.0, 6.0], [1.0, 6.0], [2.0, 6.0]):
        seen = np.array([values])
        still = still_steps(still, last, seen)
        last = seen
        counts.append(still[0].tolist())
    assert counts == [[0, 0], [1, 0], [2, 1], [0, 2]]
    agent = make_agent(3)
    known = dataclasses.replace(calibration(agent), still=(100, WARM_UP_STEPS + 1, 100, 100))
    agent = agent.watched(known)
    views = [make_observations(VECTOR, 1, seed)[0] for seed in range(1, WARM_UP_STEPS + 5)]
    carry, alarms = agent.initial(2), []
    for step, view in enumerate(views):
        frozen = {"sensors": view["sensors"].copy()}
        frozen["sensors"][1] = 0.5
        _, carry, _ = agent.act(carry, [view, frozen], seeded(step))
        assert carry.confidence is not None
        alarms.append(carry.confidence.alarm.tolist())
    assert [one[0] for one in alarms] == [False] * len(views)
    assert [one[1] for one in alarms] == [False] * (WARM_UP_STEPS + 2) + [True, True]


def test_surprise_is_the_kl_by_hand() -> None:
    model = build(2, VECTOR)
    belief = Belief(torch.randn(2, 3, model.config.deter, generator=seeded(2)), torch.zeros(0))
    shape = (2, 3, model.config.stoch)
    posterior = Normal(torch.randn(shape, generator=seeded(3)), torch.full(shape, 0.3))
    with torch.no_grad():
        prior = model.rssm.prior(model.weights(), belief.deter)
    left = torch.distributions.Normal(posterior.mean, posterior.std)
    right = torch.distributions.Normal(prior.mean, prior.std)
    nats = torch.distributions.kl_divergence(left, right).sum(-1).mean(0)
    np.testing.assert_allclose(log_surprise(model, belief, posterior), nats.log(), rtol=1e-5)


def test_smoothing_begins_after_the_warm_up() -> None:
    value: np.ndarray | None = None
    for step in range(WARM_UP_STEPS):
        value = smooth(value, np.array([9.0]), step)
        assert value.item() == 0
    assert smooth(value, np.array([9.0]), WARM_UP_STEPS).item() == 9 / SMOOTHING_STEPS


def test_a_monitor_changes_no_action() -> None:
    plain = make_agent(3, BOTH)
    watched = plain.watched(calibration(plain))
    views = make_observations(BOTH, 6, 1)
    left, right = plain.initial(), watched.initial()
    for step, view in enumerate(views):
        one, left, _ = plain.act(left, [view], seeded(step))
        two, right, _ = watched.act(right, [view], seeded(step), rewards=[0.5])
        np.testing.assert_array_equal(one, two)
    assert left.confidence is None
    assert right.confidence is not None
    assert set(right.confidence.bands) == {"reward", "return", *plain.signature.vector_sizes()}


def test_bands_widen_with_misses_of_what_was_predicted() -> None:
    """Rewards of 100 are beyond any prediction, so upper edges rise and lower ones do not."""
    agent = make_agent(3)
    agent = agent.watched(calibration(agent))
    views = make_observations(VECTOR, 1, 1)
    carry, first = agent.initial(), None
    for step in range(8):
        _, carry, _ = agent.act(carry, views, seeded(0), rewards=[100.0] if step else None)
        first = first or carry.memory
    assert first is not None
    assert first.tracked is not None
    assert carry.memory is not None
    tracked = carry.memory.tracked
    assert tracked is not None
    assert (first.tracked.above == 0).all()
    assert (tracked.above[0, :, :2] > 0).all()
    assert (tracked.below[0, :, :2] < 0).all()
    # One step ahead seven truths were known, three steps ahead five.
    np.testing.assert_allclose(tracked.below[0, 0, 0], -7 * GAIN * 0.05)
    np.testing.assert_allclose(tracked.below[0, 2, 0], -5 * GAIN * 0.05)


def test_unknown_rewards_leave_their_bands_and_sensors_still_move() -> None:
    agent = make_agent(3)
    agent = agent.watched(calibration(agent))
    views = make_observations(VECTOR, 1, 1)
    carry = agent.initial()
    for step in range(4):
        _, carry, _ = agent.act(carry, views, seeded(step))
    assert carry.memory is not None
    tracked = carry.memory.tracked
    assert tracked is not None
    assert (tracked.below[..., :2] == 0).all()
    assert (tracked.below[0, 0, 2:] != 0).all()


def test_alarms_come_above_the_threshold_after_the_warm_up() -> None:
    views = make_observations(VECTOR, 1, 1)
    for threshold, expected in ((-1e9, True), (1e9, False)):
        agent = make_agent(3)
        agent = agent.watched(calibration(agent, threshold))
        carry, alarms = agent.initial(2), []
        for step in range(WARM_UP_STEPS + 2):
            _, carry, _ = agent.act(carry, views * 2, seeded(step))
            assert carry.confidence is not None
            alarms.append(carry.confidence.alarm)
        assert not np.any(alarms[:WARM_UP_STEPS])
        assert (np.array(alarms[WARM_UP_STEPS:]) == expected).all()


def test_the_expected_actions_begin_with_the_executed_one() -> None:
    agent = make_agent(2)
    action, carry, diagnostics = agent.act(
        agent.initial(2), make_observations(VECTOR, 2, 1), seeded(0), exploration=0.3
    )
    assert carry.proposal is not None
    expected = planned_actions(carry.proposal, carry.action)
    np.testing.assert_array_equal(expected[:, 0].numpy(), action)
    components = diagnostics.proposal.components()
    heaviest = components.weight.argmax(-1)
    modes = diagnostics.proposal.modes()
    for row in range(2):
        torch.testing.assert_close(expected[row, 1:], modes[row, heaviest[row], 1:])


def test_an_agent_that_weighs_latents_has_no_monitor() -> None:
    model = build(2, VECTOR)
    weighing = Agent(
        model, signature(VECTOR), TINY_PLANNER, ImportanceFilter(LatentModel(model, 1.0))
    )
    with pytest.raises(ConfigError, match=r"agent\.belief"):
        weighing.watched()


def test_a_calibration_is_the_same_after_a_file(tmp_path: Path) -> None:
    known = calibration(make_agent(2))
    path = tmp_path / "confidence.json"
    path.write_text(known.to_json())
    again = load(path)
    assert dataclasses.replace(again, bands=known.bands) == known
    np.testing.assert_array_equal(again.bands.above, known.bands.above)
    text = path.read_text()
    for damage in (
        *("{", "[]", text.replace('"format": 2', '"format": 9')),
        text.replace('"level": 0.9', '"level": 90'),
        re.sub(r'"threshold": [^,]*', '"threshold": NaN', text),
        re.sub(r'"std": [^,]*', '"std": 0.0', text),
    ):
        assert damage != text
        path.write_text(damage)
        with pytest.raises(RunError, match="calibrate"):
            load(path)


@pytest.mark.parametrize("rewards", [1.0, [1.0], [], [1.0, 2.0, 3.0], [[1.0], [2.0]]])
def test_rewards_are_one_number_for_each_environment(rewards: Any) -> None:
    agent = make_agent(2).watched()
    views = make_observations(VECTOR, 2, 1)
    with pytest.raises(ObservationError, match="one number for each of 2 environments"):
        agent.act(agent.initial(2), views, seeded(0), rewards=rewards)


def test_a_returned_action_can_be_changed_in_place() -> None:
    agent = make_agent(2)
    views = make_observations(VECTOR, 1, 1)
    action, carry, _ = agent.act(agent.initial(), views, seeded(0))
    before = carry.action.clone()
    action *= 3
    torch.testing.assert_close(carry.action, before, rtol=0, atol=0)
