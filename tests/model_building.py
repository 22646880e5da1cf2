"""Tiny world models, batches and observations, and their weights as NumPy arrays."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

import reference_model as ref
from planet_bayes.models import Image, LossConfig, Modality, ModelConfig, Vector, WorldModel
from planet_bayes.spaces import Box, Signature
from planet_bayes.types import Belief, SequenceBatch

TINY = ModelConfig(
    deter=6,
    stoch=3,
    hidden=5,
    activation="elu",
    image_depth=2,
    dense_units=7,
    reward_units=6,
    reward_layers=2,
)
PLAIN = LossConfig(free_nats=0.0)
ACTIONS = 2
Modalities = Mapping[str, Modality]
VECTOR: dict[str, Modality] = {"sensors": Vector(4)}
IMAGE: dict[str, Modality] = {"camera": Image(32)}
BOTH: dict[str, Modality] = {"camera": Image(32), "joints": Vector(5)}

kinds = pytest.mark.parametrize(
    "modalities", [VECTOR, IMAGE, BOTH], ids=["vector", "image", "image and vector"]
)
golden = pytest.mark.parametrize(
    ("members", "activation"), [(e, a) for e in (1, 3) for a in ("relu", "elu", "silu")]
)
EXACT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
"""Tolerance where both sides are in float64 and only the order of sums differs."""


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def fresh(
    members: int, modalities: Modalities = VECTOR, seed: int = 0, **changes: Any
) -> WorldModel:
    """Return a tiny model with its initial weights."""
    config = dataclasses.replace(TINY, num_members=members, **changes)
    return WorldModel(modalities, ACTIONS, config, seeded(seed))


def build(
    members: int, modalities: Modalities = VECTOR, seed: int = 0, **changes: Any
) -> WorldModel:
    """Return a tiny model whose every parameter, biases included, is away from zero."""
    model = fresh(members, modalities, seed, **changes)
    generator = seeded(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def signature(modalities: Modalities) -> Signature:
    return Signature(dict(modalities), Box((-1.0,) * ACTIONS, (1.0,) * ACTIONS))


def random_values(modality: Modality, lead: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Return prepared observations of one modality."""
    shape = (*lead, *modality.shape)
    if modality.dtype == np.uint8:
        return torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


def make_batch(
    groups: int, size: int, steps: int, modalities: Modalities = VECTOR, seed: int = 5
) -> SequenceBatch:
    rng = np.random.default_rng(seed)
    lead = (groups, size, steps)
    return SequenceBatch(
        observation={name: random_values(part, lead, rng) for name, part in modalities.items()},
        action=torch.from_numpy(rng.uniform(-1, 1, (*lead, ACTIONS)).astype(np.float32)),
        reward=torch.from_numpy(rng.normal(size=lead).astype(np.float32)),
        terminal=torch.zeros(lead),
        mask=torch.ones(lead),
    )


def make_observations(modalities: Modalities, num: int, seed: int) -> list[dict[str, Any]]:
    """Return raw observations, one for each of ``num`` environments."""
    batch = make_batch(1, 1, num, modalities, seed).observation
    return [{name: value[0, 0, b].numpy() for name, value in batch.items()} for b in range(num)]


def map_batch(function: Callable[..., Tensor], *batches: SequenceBatch) -> SequenceBatch:
    """Apply ``function`` to each tensor of the batches, observations included."""
    names = [field.name for field in dataclasses.fields(SequenceBatch)]
    found = {n: function(*(getattr(b, n) for b in batches)) for n in names if n != "observation"}
    observation = {
        name: function(*(batch.observation[name] for batch in batches))
        for name in batches[0].observation
    }
    return SequenceBatch(observation=observation, **found)


def doubled(batch: SequenceBatch) -> SequenceBatch:
    return map_batch(lambda x: x if x.dtype == torch.uint8 else x.double(), batch)


def gradients(
    model: WorldModel, batch: SequenceBatch, config: LossConfig, seed: int, term: str = "total"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the loss terms, and the gradient of the sum over members of ``term``."""
    model.zero_grad(set_to_none=True)
    terms = model.loss(batch, config, seeded(seed))
    terms[term].sum().backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }
    return {name: value.detach() for name, value in terms.items()}, found


def record(monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> list[tuple[Any, ...]]:
    """Let calls of ``target.name`` through and keep their arguments."""
    calls: list[tuple[Any, ...]] = []
    original: Callable[..., Any] = getattr(target, name)

    def recorded(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(target, name, recorded)
    return calls


def to_numpy(tensor: Tensor) -> ref.Array:
    return tensor.detach().numpy().astype(np.float64)


def cells(model: WorldModel) -> list[ref.Cell]:
    """Return the weights of each member. PlaNet's smallest std is 0.1."""
    weights, found = model.weights(), []
    for e in range(model.num_particles):
        layers = {}
        for name in ref.LAYERS:
            layer = getattr(weights, name)
            layers[name] = (to_numpy(layer.weight[e]), to_numpy(layer.bias[e, 0]))
        found.append(ref.Cell(layers, model.config.activation, 0.1))
    return found


def dense_layers(module: Any) -> list[ref.Dense]:
    return [
        (to_numpy(layer.weight).T, to_numpy(layer.bias))
        for layer in module.modules()
        if isinstance(layer, nn.Linear)
    ]


def random_belief(model: WorldModel, num: int, seed: int) -> Belief:
    generator, like = seeded(seed), model.weights().input.weight
    sizes = (model.config.deter, model.config.stoch)
    deter, stoch = (
        torch.randn(model.num_particles, num, size, generator=generator).to(like) for size in sizes
    )
    return Belief(deter.tanh(), stoch)


def repeat_first_member(model: WorldModel, modalities: Modalities, members: int) -> WorldModel:
    """Return a model of ``members`` copies of the first member of ``model``."""
    config = dataclasses.replace(model.config, num_members=members)
    copies = WorldModel(modalities, model.num_actions, config, seeded(99))
    state = model.state_dict()
    for name, tensor in state.items():
        if name.startswith("posterior."):
            state[name] = tensor[:1].repeat(members, 1, 1)
    copies.load_state_dict(state)
    return copies


def size_of(module: Any) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in module.parameters())
