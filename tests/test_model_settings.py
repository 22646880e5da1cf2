"""Every setting of the model and of the objective changes something, and is checked."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from model_building import (
    ACTIONS,
    IMAGE,
    PLAIN,
    TINY,
    VECTOR,
    Modalities,
    build,
    gradients,
    make_batch,
    seeded,
)
from planet_bayes.errors import ConfigError
from planet_bayes.models import HEADS, POSTERIORS, LossConfig, ModelConfig, WorldModel
from planet_bayes.types import Moments
from plugins.head import ContinuationHead
from plugins.posterior import DropoutMasks

MODEL_SIZES: dict[str, Any] = {
    "num_members": 3,
    "deter": 7,
    "stoch": 4,
    "hidden": 6,
    "image_depth": 3,
    "decoder_depth": 3,
    "decoder_layers": 2,
    "dense_units": 8,
    "reward_units": 7,
    "reward_layers": 1,
    "heads": ("reward", "continuation"),
    "posterior": "dropout_masks",
}
MODEL_BEHAVIOUR: dict[str, Any] = {
    "image_bits": 4,
    "activation": "silu",
    "latent_noise": "shared",
    "belief": "mean",
    "normalise": True,
}
DROPOUT_ONLY: dict[str, Any] = {"dropout_rate": 0.4}
"""Settings of the posterior `dropout`."""


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "continuation", ContinuationHead)
    monkeypatch.setitem(POSTERIORS, "dropout_masks", DropoutMasks)


def outputs(changes: dict[str, Any], modalities: Modalities) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters of a model, and its losses and imagined rewards."""
    config = dataclasses.replace(TINY, **{"num_members": 2} | changes)
    model = WorldModel(modalities, ACTIONS, config, seeded(0))
    moments = {
        name: Moments(torch.ones(modality.shape), torch.full(modality.shape, 2.0))
        for name, modality in modalities.items()
    }
    model.rescale(moments | {"reward": Moments(torch.tensor(0.0), torch.tensor(3.0))})
    with torch.no_grad():
        batch = make_batch(model.num_fitted, 2, 3, modalities)
        terms = model.loss(batch, PLAIN, seeded(1))
        actions = torch.full((1, 3, 4, ACTIONS), 0.5)
        rewards = model.imagine(model.initial(1), actions, seeded(2))
        observation = make_batch(1, 2, 1, modalities).observation
        seen = {name: value[0, :, 0] for name, value in observation.items()}
        belief = model.filter(model.initial(2), torch.zeros(2, ACTIONS), seen, seeded(3))[0]
    return list(model.parameters()), [*terms.values(), rewards, belief.deter, belief.stoch]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(left, right, strict=True)
    )


def test_every_setting_is_listed() -> None:
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    assert names == MODEL_SIZES.keys() | MODEL_BEHAVIOUR.keys() | DROPOUT_ONLY.keys()
    assert {field.name for field in dataclasses.fields(LossConfig)} == LOSS_CHANGES.keys()


@pytest.mark.parametrize("name", MODEL_SIZES)
def test_every_size_changes_the_model(name: str) -> None:
    modalities = IMAGE if name.startswith(("image", "decoder")) else VECTOR
    before, after = outputs({}, modalities), outputs({name: MODEL_SIZES[name]}, modalities)
    assert [p.shape for p in before[0]] != [p.shape for p in after[0]]
    assert not same(before[1], after[1])


@pytest.mark.parametrize("name", MODEL_BEHAVIOUR)
def test_every_behaviour_changes_what_the_same_weights_do(name: str) -> None:
    modalities = IMAGE if name.startswith("image") else VECTOR
    before, after = outputs({}, modalities), outputs({name: MODEL_BEHAVIOUR[name]}, modalities)
    assert same(before[0], after[0])
    assert not same(before[1], after[1])


@pytest.mark.parametrize("name", DROPOUT_ONLY)
def test_settings_of_dropout_change_it_and_nothing_else(name: str) -> None:
    for posterior in ("dropout", "ensemble", "sgmcmc"):
        before = outputs({"posterior": posterior}, VECTOR)
        after = outputs({"posterior": posterior, name: DROPOUT_ONLY[name]}, VECTOR)
        assert same(before[0], after[0])
        assert same(before[1], after[1]) == (posterior != "dropout")


LOSS_CHANGES: dict[str, tuple[Any, set[str]]] = {
    # the new value, and the terms that it may change
    "free_nats": (2.0, {"total", "kl"}),
    "kl_balance": (0.8, set()),
    "reward_scale": (2.0, {"total", "reward"}),
    "observation_scale": (2.0, {"total", "observation"}),
    "decode_fraction": (0.5, {"total", "observation"}),
    "total_correlation": (1.0, {"total"}),
}


@pytest.mark.parametrize("name", LOSS_CHANGES)
def test_every_loss_setting_changes_its_term_and_the_gradient(name: str) -> None:
    model, batch = build(2), make_batch(2, 2, 4)
    value, concerned = LOSS_CHANGES[name]
    terms, gradient = gradients(model, batch, PLAIN, seed=3)
    changed, other = gradients(model, batch, dataclasses.replace(PLAIN, **{name: value}), seed=3)
    for term in terms:
        # Balancing adds two shares of the KL: equal to it up to rounding.
        assert torch.allclose(terms[term], changed[term], rtol=1e-6) != (term in concerned), term
    assert any(not torch.allclose(gradient[n], other[n], rtol=1e-3) for n in gradient)


def test_the_defaults_are_planets() -> None:
    model, loss = ModelConfig(), LossConfig()
    assert (model.deter, model.stoch, model.hidden) == (200, 30, 200)
    assert (model.activation, model.image_depth, model.decoder_layers) == ("relu", 32, 0)
    assert (model.decoder_depth, model.image_bits) == (0, 5)
    assert (model.reward_units, model.reward_layers) == (300, 3)
    assert (model.latent_noise, model.belief) == ("independent", "sample")
    assert not model.normalise
    assert (model.num_members, model.posterior, model.heads) == (5, "ensemble", ("reward",))
    assert (loss.free_nats, loss.kl_balance) == (3.0, None)
    assert (loss.reward_scale, loss.observation_scale, loss.decode_fraction) == (10.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((ModelConfig, name, 0) for name in ("deter", "stoch", "hidden", "image_depth")),
        *((ModelConfig, name, 0) for name in ("dense_units", "reward_units", "num_members")),
        *((ModelConfig, name, -1) for name in ("num_members", "reward_layers")),
        *((ModelConfig, name, -1) for name in ("decoder_layers", "decoder_depth")),
        *((ModelConfig, "image_bits", value) for value in (0, 9)),
        *((ModelConfig, "dropout_rate", value) for value in (-0.1, 1.0, float("nan"))),
        *((ModelConfig, name, "other") for name in ("activation", "latent_noise", "belief")),
        *((ModelConfig, "heads", value) for value in ((), ("continuation",))),
        *((ModelConfig, "heads", ("reward", term)) for term in ("total", "observation", "kl")),
        *((LossConfig, name, -0.1) for name in ("free_nats", "reward_scale")),
        *((LossConfig, name, float("nan")) for name in ("free_nats", "reward_scale")),
        *((LossConfig, "total_correlation", value) for value in (-0.1, float("nan"))),
        (LossConfig, "observation_scale", -0.1),
        *((LossConfig, "kl_balance", value) for value in (-0.1, 1.1)),
        *((LossConfig, "decode_fraction", value) for value in (0.0, 1.1)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind: Any, name: str, value: Any) -> None:
    group = "model" if kind is ModelConfig else "loss"
    with pytest.raises(ConfigError, match=f"{group}.{name}"):
        kind(**{name: value})
