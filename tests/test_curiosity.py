"""Curiosity: its equations, where it is used, and what a plan does with it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import reference_model as ref
from assertions import assert_same_run
from model_building import (
    ACTIONS,
    BOTH,
    EXACT,
    IMAGE,
    VECTOR,
    Modalities,
    build,
    cells,
    dense_layers,
    kinds,
    make_observations,
    random_belief,
    record,
    repeat_first_member,
    seeded,
    signature,
    to_numpy,
)
from planet_bayes import runs
from planet_bayes.agent import Agent
from planet_bayes.config import CollectConfig, Config
from planet_bayes.errors import ConfigError
from planet_bayes.models import Vector, WorldModel, curiosity
from planet_bayes.models.curiosity import CuriousImagination, mean_variance
from planet_bayes.models.kernels import native
from planet_bayes.planner import PlannerConfig
from planet_bayes.training import Trainer, collect
from planet_bayes.training.events import Event, IterationDone, Updated
from planet_bayes.types import Belief, Moments
from tiny_run import TINY, replaced

BATCH, NUM, HORIZON = 2, 3, 4
REWARD_STD, SENSOR_STD = 0.25, 3.0


def actions(seed: int = 7, num: int = NUM) -> Tensor:
    return torch.rand(BATCH, num, HORIZON, ACTIONS, generator=seeded(seed)) * 2 - 1


def rescaled(model: WorldModel) -> WorldModel:
    """Return the model with stds of rewards and sensors other than 1, in float64."""
    std = torch.full((4,), SENSOR_STD)
    model.rescale(
        {
            "sensors": Moments(torch.zeros(4), std),
            "reward": Moments(torch.zeros(()), torch.tensor(REWARD_STD)),
        }
    )
    return model.double()


def features(model: WorldModel, state: Belief, sequences: Tensor) -> Tensor:
    """Return ``[H, P, B·N, F]`` of the priors' means."""
    rows = [part.repeat_interleave(sequences.shape[1], 1) for part in (state.deter, state.stoch)]
    return model.rollout(Belief(*rows), sequences.flatten(0, 1).transpose(0, 1), None)


# --- equations


def std_over_members(predictions: list[ref.Array]) -> float:
    """Root mean square over entries of the members' std, number by number."""
    squares = []
    for entry in range(len(predictions[0])):
        values = [float(prediction[entry]) for prediction in predictions]
        mean = sum(values) / len(values)
        squares.append(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return (sum(squares) / len(squares)) ** 0.5


@torch.no_grad()
@pytest.mark.parametrize("noise", ["mean", "shared", "independent"])
@pytest.mark.parametrize("normalise", [False, True])
def test_rewards_with_the_bonus_are_those_of_the_equations(noise: str, normalise: bool) -> None:
    weight, members = 1.7, 3
    model = build(members, latent_noise=noise, normalise=normalise)
    model = rescaled(model)
    scale = REWARD_STD if normalise else 1.0
    state, sequences = random_belief(model, BATCH, 3), actions().double()
    found = CuriousImagination(model, weight).imagine(state, sequences, seeded(11))
    assert found.shape == (BATCH, NUM, members, HORIZON)
    columns = 1 if noise == "shared" else NUM
    shape = (HORIZON, 1, BATCH, columns, model.config.stoch)
    drawn = to_numpy(torch.randn(shape, generator=seeded(11)))
    decoder = dense_layers(model.senses["sensors"].decoder)
    head = dense_layers(model.heads["reward"])
    for b in range(BATCH):
        for n in range(NUM):
            mine = None if noise == "mean" else drawn[:, 0, b, n % columns]
            futures = [
                ref.roll_out(
                    cell,
                    to_numpy(state.deter[e, b]),
                    to_numpy(state.stoch[e, b]),
                    to_numpy(sequences[b, n]),
                    mine,
                )
                for e, cell in enumerate(cells(model))
            ]
            for t in range(HORIZON):
                seen = [ref.multilayer(future[t], decoder, "elu") for future in futures]
                bonus = weight * scale * std_over_members(seen)
                for e, future in enumerate(futures):
                    reward = scale * ref.multilayer(future[t], head, "elu")[0]
                    np.testing.assert_allclose(found[b, n, e, t].item(), reward + bonus, **EXACT)


@torch.no_grad()
@kinds
@pytest.mark.parametrize("noise", ["mean", "shared", "independent"])
def test_kernels_give_the_same_bonus(
    monkeypatch: pytest.MonkeyPatch, modalities: Modalities, noise: str
) -> None:
    model = build(3, modalities, latent_noise=noise)
    state, sequences = random_belief(model, BATCH, 3), actions()
    found = {}
    for name in (*native.available(), "torch"):
        monkeypatch.setenv(native.VARIABLE, name)
        found[name] = CuriousImagination(model, 2.0).imagine(state, sequences, seeded(0))
    with torch.enable_grad():  # the plain form
        plain = CuriousImagination(model, 2.0).imagine(state, sequences, seeded(0)).detach()
    for rewards in found.values():
        torch.testing.assert_close(rewards, plain, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@kinds
def test_members_that_agree_exactly_give_no_bonus(modalities: Modalities) -> None:
    model = repeat_first_member(build(1, modalities), modalities, 3)
    state = random_belief(model, BATCH, 3)
    state = Belief(*(part[:1].expand(3, -1, -1) for part in (state.deter, state.stoch)))
    plain = model.imagine(state, actions(), seeded(0))
    model.config = dataclasses.replace(model.config, latent_noise="mean")
    curious = CuriousImagination(model, 1.0).imagine(state, actions(), seeded(0))
    model_mean = model.imagine(state, actions(), seeded(0))
    torch.testing.assert_close(curious, model_mean, rtol=0, atol=1e-5)
    assert not torch.allclose(plain, model_mean, atol=1e-5)


def test_equal_predictions_have_a_variance_of_exactly_zero() -> None:
    one = torch.rand(2, 1, 3, 4, generator=seeded(0)) * 1e6
    assert (mean_variance(one.expand(-1, 5, -1, -1)) == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("noise", ["shared", "independent"])
def test_sampled_states_alone_are_no_disagreement(noise: Any) -> None:
    model = repeat_first_member(build(1), VECTOR, 3)
    model.config = dataclasses.replace(model.config, latent_noise=noise)
    state = Belief(
        *(part[:1].expand(3, -1, -1) for part in vars(random_belief(model, 2, 3)).values())
    )
    found = [CuriousImagination(model, w).imagine(state, actions(), seeded(0)) for w in (0.0, 9.0)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-4)
    assert found[0].std(2).max() < 1e-5


@torch.no_grad()
def test_the_weight_is_linear_and_zero_gives_the_plain_rewards() -> None:
    model = rescaled(build(3, latent_noise="mean", normalise=True))
    state, sequences = random_belief(model, BATCH, 3), actions().double()
    none, one, two = (
        CuriousImagination(model, weight).imagine(state, sequences, seeded(0))
        for weight in (0.0, 1.0, 2.0)
    )
    torch.testing.assert_close(none, model.imagine(state, sequences, seeded(0)), **EXACT)
    torch.testing.assert_close(two - none, 2 * (one - none), **EXACT)
    bonus = one - none
    assert (bonus > 0).all()
    torch.testing.assert_close(bonus, bonus[:, :, :1].expand_as(bonus), **EXACT)  # all particles


# --- modalities


@torch.no_grad()
def test_modalities_count_as_in_the_objective() -> None:
    two: dict[str, Any] = {"few": Vector(2), "many": Vector(6)}
    model = build(3, two, latent_noise="mean").double()
    seen = features(model, random_belief(model, BATCH, 3), actions().double())
    senses: list[Any] = list(model.senses.values())
    senses[1].loss_weight = 0.5
    few, many = (mean_variance(sense.decode(seen)) for sense in senses)
    found = curiosity.disagreement(senses, seen)
    torch.testing.assert_close(found, ((2 * few + 3 * many) / 5).sqrt(), **EXACT)


@torch.no_grad()
def test_an_image_is_measured_by_its_code_in_units_of_its_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build(3, IMAGE, latent_noise="mean").double()
    sense: Any = model.senses["camera"]
    seen = features(model, random_belief(model, BATCH, 3), actions(num=5).double())
    decoded = mean_variance(sense.decode(seen)).sqrt()  # [H, B·N]
    code = mean_variance(sense.code(seen)).sqrt()[-1]
    calls = record(monkeypatch, sense, "decode")
    found = curiosity.disagreement([sense], seen)
    assert [call[0].shape[:3] for call in calls] == [(1, 3, curiosity.DECODED_CANDIDATES)]
    ratio = found / code
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), **EXACT)
    chosen = [0, 5]  # the last states of these are decoded
    torch.testing.assert_close(
        found[-1, chosen].square().sum(), decoded[-1, chosen].square().sum(), **EXACT
    )


@torch.no_grad()
def test_the_code_is_all_that_the_image_is_made_of() -> None:
    sense: Any = build(2, IMAGE, decoder_layers=2).senses["camera"]
    some = torch.rand(3, 2, 9, generator=seeded(0))
    layers = list(sense.decoder)
    cut = next(i for i, layer in enumerate(layers) if type(layer).__name__ == "Unflatten")
    image = sense.code(some).flatten(0, 1)
    assert image.ndim == 2
    for layer in layers[cut:]:
        image = layer(image)
    torch.testing.assert_close(image.unflatten(0, (3, 2)), sense.decode(some))


@torch.no_grad()
@kinds
def test_a_member_that_is_not_finite_does_not_take_the_others_along(
    modalities: Modalities,
) -> None:
    model = build(3, modalities, latent_noise="mean")
    state = random_belief(model, BATCH, 3)
    state.deter[1] = torch.nan
    found = CuriousImagination(model, 1.0).imagine(state, actions(), seeded(0))
    assert torch.isfinite(found[:, :, [0, 2]]).all()
    assert torch.isnan(found[:, :, 1]).all()


# --- plans


def directed(sign: float) -> WorldModel:
    """Return a model without rewards whose members disagree about what ``sign · a_0 > 0`` does."""
    model = repeat_first_member(
        build(1, activation="relu", latent_noise="mean", belief="mean"), VECTOR, 3
    )
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.zero_()
        weights = model.weights()
        weights.input.weight[:, :, 0] = 0  # one unit sees nothing but the first action
        weights.input.weight[:, model.config.stoch, 0] = sign
        weights.input.bias[:, :, 0] = 0
        weights.candidate.weight[:, 0] += torch.tensor([-2.0, 0.0, 2.0])[:, None]
    return model


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("optimality", ["threshold", "exponential"])
def test_a_plan_prefers_what_the_members_disagree_about(sign: float, optimality: str) -> None:
    config = PlannerConfig(
        horizon=3,
        num_trajectories=600,
        num_components=1,
        optimality=optimality,
        temperature=0.1,
        execute="mean",
    )
    agent = Agent(directed(sign), signature(VECTOR), config)
    view = make_observations(VECTOR, 1, 1)
    curious = CuriousImagination(agent.model, 10.0)
    plain, _, _ = agent.act_on_prepared(agent.initial(), view, seeded(0))
    found, _, _ = agent.act_on_prepared(agent.initial(), view, seeded(0), imagination=curious)
    assert sign * found[0, 0] > 0.6
    assert abs(plain[0, 0]) < 0.5


# --- settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"curiosity": -1.0}, r"collect\.curiosity must be at least 0, got -1"),
        ({"curiosity": float("nan")}, r"collect\.curiosity must be at least 0, got nan"),
        ({"curiosity": float("inf")}, r"collect\.curiosity must be finite"),
        ({"curiosity_decay": -0.1}, r"collect\.curiosity_decay must be from 0 to 1, got -0\.1"),
        ({"curiosity_decay": 1.1}, r"collect\.curiosity_decay must be from 0 to 1, got 1\.1"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CollectConfig(**changes)


def test_one_member_has_nobody_to_disagree_with() -> None:
    with pytest.raises(ConfigError, match="curiosity needs several members"):
        CuriousImagination(build(1), 1.0)
    curious = replaced(TINY, collect={"curiosity": 1.0})
    with pytest.raises(ConfigError, match=r"collect\.curiosity needs several members"):
        curious.with_method("planet")
    assert TINY.with_method("planet").collect.curiosity == Config().collect.curiosity == 0


def test_the_weight_decays_with_each_episode_of_the_agent() -> None:
    settings = CollectConfig(curiosity=2.0, curiosity_decay=0.5)
    assert [settings.curiosity_at(n) for n in range(3)] == [2.0, 1.0, 0.5]
    assert CollectConfig(curiosity=2.0).curiosity_at(50) == 2.0
    assert CollectConfig(curiosity=2.0, curiosity_decay=0.0).curiosity_at(0) == 2.0
    assert CollectConfig(curiosity=2.0, curiosity_decay=0.0).curiosity_at(1) == 0.0


# --- runs

CURIOUS = replaced(
    TINY,
    planner={"optimality": "exponential"},
    collect={"curiosity": 2.0, "curiosity_decay": 0.5},
    run={"evaluate_every": 1},
)


def test_episodes_are_collected_with_it_and_evaluations_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[float] = []
    where: list[bool] = []
    collecting = False

    class Recorded(CuriousImagination):
        def __init__(self, model: WorldModel, weight: float) -> None:
            super().__init__(model, weight)
            weights.append(weight)

        def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
            where.append(collecting)
            return super().imagine(state, actions, generator)

    original = collect.collect_with_agent

    def noted(*args: Any, **options: Any) -> Any:
        nonlocal collecting
        collecting = True
        try:
            return original(*args, **options)
        finally:
            collecting = False

    monkeypatch.setattr(collect, "CuriousImagination", Recorded)
    monkeypatch.setattr(collect, "collect_with_agent", noted)
    assert Trainer(CURIOUS, tmp_path / "run").train()
    assert weights == [2.0, 1.0, 0.5]
    assert where
    assert all(where)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_stopped_run_resumes_to_the_bit(tmp_path: Path, overlap: bool) -> None:
    """With overlap, the collecting process has the same settings and finds the same weights."""
    config = replaced(CURIOUS, collect={"overlap": overlap})
    assert Trainer(config, tmp_path / "whole").train()
    left = 6

    def report(event: Event) -> None:
        nonlocal left
        left -= isinstance(event, Updated | IterationDone)

    path = tmp_path / "run"
    assert not Trainer(config, path, report=report, should_stop=lambda: left <= 0).train()
    assert Trainer(runs.resume_config(path), path, resume=True).train()
    assert_same_run(tmp_path / "whole", path)
    plain = tmp_path / "plain"
    assert Trainer(replaced(config, collect={"curiosity": 0.0}), plain).train()
    name = "episodes/000003.npz"
    with np.load(plain / name) as one, np.load(path / name) as other:
        assert not np.array_equal(one["action"], other["action"])


def test_images_and_sensors_together_are_collected_with_it(tmp_path: Path) -> None:
    agent = Agent(build(2, BOTH), signature(BOTH), PlannerConfig(horizon=3, num_trajectories=24))
    view = make_observations(BOTH, 1, 1)
    curious = CuriousImagination(agent.model, 1.0)
    action, _, _ = agent.act_on_prepared(agent.initial(), view, seeded(0), imagination=curious)
    assert action.shape == (1, ACTIONS)
    assert np.isfinite(action).all()
