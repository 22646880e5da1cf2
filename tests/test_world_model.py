"""The world model against its equations: filter, learn, imagine, with one or several modalities."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import reference_model as ref
from model_building import (
    ACTIONS,
    BOTH,
    EXACT,
    IMAGE,
    PLAIN,
    TINY,
    VECTOR,
    Modalities,
    build,
    cells,
    dense_layers,
    doubled,
    fresh,
    golden,
    gradients,
    kinds,
    make_batch,
    map_batch,
    random_belief,
    record,
    repeat_first_member,
    seeded,
    size_of,
    to_numpy,
)
from planet_bayes.errors import ConfigError
from planet_bayes.models import RSSM, Image, LossConfig, ModelConfig, RewardHead, WorldModel
from planet_bayes.models.modalities import image
from planet_bayes.types import Moments

# Golden: the same equations in NumPy.


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("latent_noise", ["independent", "shared", "mean"])
def test_imagining_is_the_equations(
    monkeypatch: pytest.MonkeyPatch, members: int, latent_noise: str
) -> None:
    """Also checks the axes: B problems, N candidates, P particles, H steps."""
    model = build(members, latent_noise=latent_noise).double()
    batch, num, horizon = 2, 3, 4
    belief = random_belief(model, batch, 3)
    actions = torch.randn(batch, num, horizon, ACTIONS, generator=seeded(4)).double()
    calls = record(monkeypatch, RSSM, "imagine_steps")
    got = to_numpy(model.imagine(belief, actions, seeded(9)))
    assert got.shape == (batch, num, members, horizon)
    with torch.no_grad():  # the planner's path
        np.testing.assert_allclose(model.imagine(belief, actions, seeded(9)), got, **EXACT)
    noise = calls[0][-1]
    head = dense_layers(model.heads["reward"])
    for e, cell in enumerate(cells(model)):
        for b in range(batch):
            for n in range(num):
                features = ref.roll_out(
                    cell,
                    to_numpy(belief.deter[e, b]),
                    to_numpy(belief.stoch[e, b]),
                    to_numpy(actions[b, n]),
                    None if noise is None else to_numpy(noise[:, e, b * num + n]),
                )
                expected = [ref.multilayer(f, head, "elu")[0] for f in features]
                np.testing.assert_allclose(got[b, n, e], expected, **EXACT)


@golden
def test_the_objective_is_the_equations(
    monkeypatch: pytest.MonkeyPatch, members: int, activation: str
) -> None:
    """Encoder to loss, with sequences of unlike lengths, of which only the real part counts."""
    model = build(members, activation=activation).double()
    sense: Any = model.senses["sensors"]
    lengths = [5, 2, 4]
    batch = doubled(make_batch(members, 3, 5))
    observation = batch.observation["sensors"]
    for b, length in enumerate(lengths):
        batch.mask[:, b, length:] = 0
    middle = model.loss(batch, PLAIN, seeded(11))["kl_nats"].mean().item()
    config = LossConfig(free_nats=middle, reward_scale=3.0, observation_scale=1.5)
    calls = record(monkeypatch, model, "filter_sequences")
    got = model.loss(batch, config, seeded(11))
    embed, action, noise, _ = calls[0]
    encoder = dense_layers(sense.encoder)
    for index in np.ndindex(members, 3, 5):
        expected = ref.multilayer(to_numpy(observation[index]), encoder, activation)
        expected = ref.nonlinear(activation, expected)
        np.testing.assert_allclose(to_numpy(embed[index]), expected, **EXACT)
    seen = ref.filter_sequences(cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise))
    for e in range(members):
        terms = ref.objective(
            seen,
            e,
            dense_layers(sense.decoder),
            dense_layers(model.heads["reward"]),
            activation,
            to_numpy(observation[e]),
            to_numpy(batch.reward[e]),
            lengths,
            config.free_nats,
            config.reward_scale,
            config.observation_scale,
        )
        for name, value in dataclasses.asdict(terms).items():
            assert got[name][e].item() == pytest.approx(value, rel=1e-10), name
        total = terms.observation + terms.reward + terms.kl
        assert got["total"][e].item() == pytest.approx(total, rel=1e-10)
    # Free nats did clip some steps, but not all.
    assert got["kl"].mean() > middle * 1.01
    assert noise.shape == (5, members, 3, 3)


def test_the_gradient_is_the_objectives_slope() -> None:
    """A central difference along random directions, every weight moving."""
    model = build(3, activation="silu").double()
    batch = doubled(make_batch(3, 2, 4))
    terms, gradient = gradients(model, batch, PLAIN, seed=3)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    generator = seeded(8)
    for _ in range(3):
        way = {n: torch.randn(p.shape, generator=generator).double() for n, p in start.items()}
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(start[name] + step * way[name])
                values.append(model.loss(batch, PLAIN, seeded(3))["total"].sum().item())
        slope = (values[0] - values[1]) / 2e-5
        expected = sum((gradient[n] * way[n]).sum().item() for n in start)
        assert slope == pytest.approx(expected, rel=1e-6)
    assert terms["total"].shape == (3,)


@pytest.mark.parametrize("kind", ["sample", "mean"])
def test_filter_is_one_step_from_the_belief_for_every_member(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["sample", "mean"]
) -> None:
    model = build(3, belief=kind).double()
    belief = random_belief(model, 2, 3)
    action = torch.tensor([[0.3, -0.7], [1.0, 0.1]]).double()
    observation = torch.randn(2, 4, generator=seeded(1)).double()
    calls = record(monkeypatch, model, "belief_noise")
    got = model.filter(belief, action, {"sensors": observation}, seeded(4))[0]
    assert calls[0][0] == (3, 2, 3)
    noise = torch.randn(3, 2, 3, generator=seeded(4)).double()
    if kind == "sample":
        assert len(noise.unique()) == noise.numel()  # one draw for each member and problem
    else:
        noise.zero_()
    sense: Any = model.senses["sensors"]
    encoder = dense_layers(sense.encoder)
    for e, cell in enumerate(cells(model)):
        for b in range(2):
            embed = ref.multilayer(to_numpy(observation[b]), encoder, "elu")
            embed = ref.nonlinear("elu", embed)
            h, s = to_numpy(belief.deter[e, b]), to_numpy(belief.stoch[e, b])
            deter = ref.evolve(cell, h, s, to_numpy(action[b]))
            after = ref.posterior(cell, deter, embed)
            np.testing.assert_allclose(to_numpy(got.deter[e, b]), deter, **EXACT)
            stoch = after.mean + after.std * to_numpy(noise[e, b])
            np.testing.assert_allclose(to_numpy(got.stoch[e, b]), stoch, **EXACT)


# Several modalities.


def test_the_embedding_of_two_modalities_is_the_concatenation() -> None:
    model = build(2, BOTH)
    camera, joints = (model._senses()[name] for name in BOTH)
    assert model.rssm.embed == camera.embed_size + joints.embed_size
    inputs = model.inputs(make_batch(2, 3, 4, BOTH).observation, seeded(0))
    assert list(inputs) == ["camera", "joints"]
    embed = model.encode(inputs)
    assert embed.shape == (2, 3, 4, model.rssm.embed)
    parts = [camera.encode(inputs["camera"]), joints.encode(inputs["joints"])]
    assert torch.equal(embed, torch.cat(parts, -1))
    turned = model.encode({"joints": inputs["joints"], "camera": inputs["camera"]})
    assert torch.equal(embed, turned)  # the order is the model's, not the observation's


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_the_loss_of_two_modalities_is_the_sum_of_both(
    monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    """Each term is the masked mean of the squared error of its modality."""
    model = build(2, BOTH)
    batch = make_batch(2, 3, 4, BOTH)
    batch.mask[0, 1, 2:] = 0
    config = LossConfig(free_nats=0.0, observation_scale=1.5, decode_fraction=fraction)
    inputs = record(monkeypatch, model, "_observation_losses")
    terms = model.loss(batch, config, seeded(3))
    assert list(terms) == [
        *("total", "observation", "observation_camera", "observation_joints"),
        *("reward", "kl", "kl_nats"),
    ]
    assert all(term.shape == (2,) for term in terms.values())
    both = terms["observation_camera"] + terms["observation_joints"]
    assert torch.equal(terms["observation"], both)
    assert torch.equal(terms["total"], both + terms["reward"] + terms["kl"])
    features, seen = inputs[0][:2]
    if fraction == 1:
        for name, axes in (("camera", (3, 4, 5)), ("joints", (3,))):
            error = 0.5 * (model._senses()[name].decode(features) - seen[name]).square().sum(axes)
            mean = 1.5 * (error * batch.mask).sum((1, 2)) / batch.mask.sum((1, 2))
            torch.testing.assert_close(terms[f"observation_{name}"], mean)
    for name in BOTH:  # each term trains its own networks and the dynamics
        _, gradient = gradients(model, batch, config, 3, f"observation_{name}")
        felt = {key.split(".")[1] for key, g in gradient.items() if "decoder" in key and g.any()}
        assert felt == {name}
        assert gradient["posterior.gates.weight"].any()


def test_one_modality_has_one_term() -> None:
    terms = build(2).loss(make_batch(2, 2, 3), PLAIN, seeded(0))
    assert list(terms) == ["total", "observation", "reward", "kl", "kl_nats"]


@kinds
def test_reconstructions_have_the_shapes_of_observations(modalities: Modalities) -> None:
    model = build(2, modalities)
    observation = {n: v[0, :, 0] for n, v in make_batch(1, 3, 1, modalities).observation.items()}
    with torch.no_grad():
        belief = model.filter(model.initial(3), torch.zeros(3, ACTIONS), observation, seeded(0))[0]
        decoded = model.reconstruct(belief.features)
        rewards = model.imagine(belief, torch.zeros(3, 5, 4, ACTIONS), seeded(1))
    assert {n: v.shape for n, v in decoded.items()} == {
        name: (2, 3, *modality.shape) for name, modality in modalities.items()
    }
    assert rewards.shape == (3, 5, 2, 4)
    assert rewards.isfinite().all()


# Batches.


@kinds
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_a_shared_batch_is_the_same_batch_for_every_member(
    monkeypatch: pytest.MonkeyPatch, modalities: Modalities, fraction: float
) -> None:
    """Images have no dither here: a shared batch has one dither, repeated ones differ."""

    def undithered(observation: Tensor, bits: int, generator: Generator) -> Tensor:
        return observation.movedim(-1, -3).double() / 256 - 0.5

    monkeypatch.setattr(image, "quantised", undithered)
    model = build(3, modalities).double()
    shared = doubled(make_batch(1, 2, 4, modalities))
    shared.mask[0, 1, 3:] = 0
    repeated = map_batch(lambda tensor: torch.cat([tensor] * 3), shared)
    config = LossConfig(free_nats=0.1, kl_balance=0.8, decode_fraction=fraction)
    terms, left = gradients(model, shared, config, seed=7)
    again, right = gradients(model, repeated, config, seed=7)
    for name in terms:
        assert terms[name].shape == (3,)
        torch.testing.assert_close(terms[name], again[name], rtol=1e-12, atol=0)
        assert len(terms[name].unique()) == 3  # members differ all the same
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-9, atol=1e-12)


@kinds
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_is_neither_seen_nor_learned_from(
    modalities: Modalities, fraction: float, groups: int
) -> None:
    model = build(2, modalities)
    config = LossConfig(free_nats=0.5, kl_balance=0.8, decode_fraction=fraction)
    clean, rubbish = (make_batch(groups, 3, 5, modalities, seed) for seed in (5, 6))
    padded = torch.zeros(groups, 3, 5, dtype=torch.bool)
    padded[:, 0, 2:] = True
    padded[-1, 2, 4:] = True
    clean.mask[padded] = 0
    dirty = dataclasses.replace(map_batch(torch.clone, clean), mask=clean.mask)
    for name, modality in modalities.items():
        scale = 1 if modality.dtype == np.uint8 else 50
        dirty.observation[name][padded] = rubbish.observation[name][padded] * scale
    dirty.action[padded] = rubbish.action[padded] * 50
    dirty.reward[padded] = rubbish.reward[padded] * 50
    terms, gradient = gradients(model, clean, config, seed=7)
    again, dirtied = gradients(model, dirty, config, seed=7)
    for name in terms:
        assert torch.equal(terms[name], again[name]), name
    for name in gradient:
        assert torch.equal(gradient[name], dirtied[name]), name
    # The same rubbish in a step that counts does make a difference.
    for name in modalities:
        dirty.observation[name][:, 0, 1] = rubbish.observation[name][:, 0, 1]
    assert not torch.equal(
        model.loss(dirty, config, seeded(7))["kl_nats"].detach(), terms["kl_nats"]
    )


# Latent noise in imagination.


def imagined(model: WorldModel, num: int, seed: int = 9) -> Tensor:
    """Return rewards of ``num`` candidates that are all the same, for two problems."""
    belief = random_belief(model, 2, 3)
    actions = torch.randn(2, 1, 4, ACTIONS, generator=seeded(4)).expand(-1, num, -1, -1)
    with torch.no_grad():
        return model.imagine(belief, actions, seeded(seed))


def test_equal_candidates_get_equal_rewards_if_noise_is_shared() -> None:
    spread = {}
    for kind in ("shared", "independent", "mean"):
        model = repeat_first_member(build(1, latent_noise=kind), VECTOR, 2)
        rewards = imagined(model, 6)
        assert rewards.shape == (2, 6, 2, 4)
        spread[kind] = rewards.std(1)  # [B, P, H]
        if kind == "mean":
            assert torch.equal(rewards, imagined(model, 6, seed=10))
        else:
            assert not torch.allclose(rewards, imagined(model, 6, seed=10))
        if kind == "shared":
            # Members are equal, so particles differ by their noise alone: each has its own.
            assert (rewards[:, 0].std(1) > 1e-3).all()
    assert spread.pop("independent").min() > 1e-3
    for values in spread.values():
        assert values.max() < 1e-6  # float rounding


@pytest.mark.parametrize("kind", ["shared", "independent"])
def test_latent_noise_is_standard_normal_and_never_drawn_twice(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    model = build(3, latent_noise=kind)
    calls = record(monkeypatch, RSSM, "imagine_steps")
    model.imagine(random_belief(model, 2, 3), torch.zeros(2, 40, 4, ACTIONS), seeded(9))
    noise = calls[0][-1]
    assert noise.shape == (4, 3, 2 * 40, 3)
    noise = noise.unflatten(2, (2, 40))
    if kind == "shared":
        assert torch.equal(noise, noise[:, :, :, :1].expand_as(noise))
        noise = noise[:, :, :, 0]
    count = noise.numel()
    # A few equal float32 draws happen by chance; a copied axis would leave half or fewer.
    assert len(noise.unique()) > 0.99 * count
    assert abs(noise.mean().item()) < 5 / math.sqrt(count)
    assert abs(noise.var().item() - 1) < 5 * math.sqrt(2 / count)


# Scaling, sizes, initial weights.


def test_a_scaled_model_is_the_plain_one_on_scaled_data() -> None:
    """Losses, beliefs and rewards are those of the same weights on data scaled by hand."""
    plain, scaled = fresh(2), fresh(2, normalise=True)
    mean, std = torch.linspace(-1, 1, 4), torch.linspace(0.5, 4, 4)
    reward = Moments(torch.tensor(0.7), torch.tensor(0.2))
    for model in (plain, scaled):  # one that does not normalise ignores them
        model.rescale({"sensors": Moments(mean, std), "reward": reward})
    batch = make_batch(2, 2, 3)
    by_hand = dataclasses.replace(
        batch,
        observation={"sensors": (batch.observation["sensors"] - mean) / std},
        reward=batch.reward / 0.2,
    )
    assert by_hand.observation["sensors"].abs().max() < 10
    with torch.no_grad():
        left = scaled.loss(batch, PLAIN, seeded(1))
        right = plain.loss(by_hand, PLAIN, seeded(1))
        for name in left:
            assert torch.allclose(left[name], right[name], rtol=1e-5), name
        start, action = plain.initial(2), torch.zeros(2, ACTIONS)
        seen = batch.observation["sensors"][0, :, 0]
        one = scaled.filter(start, action, {"sensors": seen}, seeded(2))[0]
        two = plain.filter(start, action, {"sensors": (seen - mean) / std}, seeded(2))[0]
        assert torch.allclose(one.stoch, two.stoch, atol=1e-5)
        actions = torch.full((2, 3, 4, ACTIONS), 0.5)
        rewards = scaled.imagine(two, actions, seeded(3))
        assert torch.allclose(rewards, 0.2 * plain.imagine(two, actions, seeded(3)), rtol=1e-5)
        shown, decoded = (model.reconstruct(two.features)["sensors"] for model in (scaled, plain))
        assert torch.allclose(shown, decoded * std + mean)
        assert torch.equal(decoded, plain._senses()["sensors"].decode(two.features))


def test_planets_sizes() -> None:
    config = ModelConfig(num_members=1)
    model = WorldModel({"camera": Image(64)}, 6, config, seeded(0))
    sense: Any = model.senses["camera"]
    conv = (
        (3 * 32 * 4 * 4 + 32)
        + (32 * 64 * 4 * 4 + 64)
        + (64 * 128 * 4 * 4 + 128)
        + (128 * 256 * 4 * 4 + 256)
    )
    assert conv == 690_144
    assert size_of(sense.encoder) == conv
    deconv = (
        (230 * 1024 + 1024)
        + (1024 * 128 * 5 * 5 + 128)
        + (128 * 64 * 5 * 5 + 64)
        + (64 * 32 * 6 * 6 + 32)
        + (32 * 3 * 6 * 6 + 3)
    )
    assert deconv == 3_795_555
    assert size_of(sense.decoder) == deconv
    reward = (230 * 300 + 300) + 2 * (300 * 300 + 300) + (300 + 1)
    assert size_of(model.heads["reward"]) == reward
    cell = (
        ((30 + 6) * 200 + 200)
        + ((200 + 200) * 400 + 400)  # both gates
        + ((200 + 200) * 200 + 200)
        + (200 * 200 + 200)
        + (200 * 60 + 60)
        + ((200 + 1024) * 200 + 200)
        + (200 * 60 + 60)
    )
    assert size_of(model.posterior) == cell
    assert size_of(model) == conv + deconv + reward + cell
    features = torch.zeros(1, 2, 230)
    assert model.encode({"camera": torch.zeros(1, 2, 3, 64, 64)}).shape == (1, 2, 1024)
    assert sense.decode(features).shape == (1, 2, 3, 64, 64)
    assert model.head("reward").predict(features).shape == (1, 2)


@pytest.mark.parametrize("modalities", [IMAGE, BOTH], ids=["image", "image and vector"])
def test_the_same_seed_gives_the_same_weights(modalities: Modalities) -> None:
    one, same, other = (fresh(2, modalities, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[n], other[n]) for n in one if n.endswith("weight"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": ("reward", "rewad")}, "no head 'rewad'; did you mean 'reward'"),
        ({"posterior": "assemble"}, "no posterior 'assemble'; did you mean 'ensemble'"),
    ],
)
def test_unknown_parts_are_refused_with_advice(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        WorldModel(VECTOR, ACTIONS, dataclasses.replace(TINY, **changes), seeded(0))
    assert "Import the module that registers it" in str(caught.value)


def test_parts_are_found_by_name() -> None:
    model = build(2, BOTH)
    assert isinstance(model.head("reward"), RewardHead)
    assert list(model.senses) == ["camera", "joints"]
    assert model.num_particles == 2
    assert model.device == torch.device("cpu")
