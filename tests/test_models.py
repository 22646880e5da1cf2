"""The world model against its equations: members, objective, networks, imagination, agent."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

import reference_model as ref
from planet_bayes.agent import Agent, Carry
from planet_bayes.config import METHODS, Config, TrainConfig
from planet_bayes.errors import ConfigError
from planet_bayes.models import (
    LossConfig,
    ModelConfig,
    Normal,
    WorldModel,
    ensemble,
    losses,
    preprocess,
    to_image,
)
from planet_bayes.models.networks import glorot_, image_decoder, image_encoder
from planet_bayes.models.scaling import Scaling
from planet_bayes.planner import Bounds, PlannerConfig, plan
from planet_bayes.replay import Replay
from planet_bayes.training.learner import Learner
from planet_bayes.types import Belief, Episode, SequenceBatch
from tiny_run import filled_replay

TINY = ModelConfig(
    deter=6,
    stoch=3,
    hidden=5,
    activation="elu",
    image_depth=2,
    vector_units=7,
    vector_layers=1,
    reward_units=6,
    reward_layers=2,
)
PLAIN = LossConfig(free_nats=0.0)
VECTOR, IMAGE = (4,), (32, 32, 3)
ACTIONS = 2


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def build(members: int, shape: tuple[int, ...] = VECTOR, seed: int = 0, **changes: Any):
    """A tiny model whose every parameter, biases included, is away from zero."""
    model = WorldModel(shape, ACTIONS, members, dataclasses.replace(TINY, **changes), seeded(seed))
    generator = seeded(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def make_batch(
    groups: int, size: int, steps: int, shape: tuple[int, ...] = VECTOR, seed: int = 5
) -> SequenceBatch:
    rng = np.random.default_rng(seed)
    lead = (groups, size, steps)
    if len(shape) == 3:
        observation = rng.integers(0, 256, (*lead, *shape), dtype=np.uint8)
    else:
        observation = rng.normal(size=(*lead, *shape)).astype(np.float32)
    return SequenceBatch(
        observation=torch.from_numpy(observation),
        action=torch.from_numpy(rng.uniform(-1, 1, (*lead, ACTIONS)).astype(np.float32)),
        reward=torch.from_numpy(rng.normal(size=lead).astype(np.float32)),
        mask=torch.ones(lead),
    )


def doubled(batch: SequenceBatch) -> SequenceBatch:
    def double(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype == torch.uint8 else tensor.double()

    return SequenceBatch(
        double(batch.observation), double(batch.action), double(batch.reward), double(batch.mask)
    )


def gradients(
    model: WorldModel, batch: SequenceBatch, config: LossConfig, seed: int, term: str = "total"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The loss terms, and the gradient of the sum over members of ``term``."""
    model.zero_grad(set_to_none=True)
    terms = model.loss(batch, config, seeded(seed))
    terms[term].sum().backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }
    return {name: value.detach() for name, value in terms.items()}, found


def record(monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> list[tuple[Any, ...]]:
    """Let calls of ``target.name`` through and keep what they were given."""
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
    found = []
    for e in range(model.members):
        layers = {}
        for name in ref.LAYERS:
            layer = getattr(model.rssm, name)
            layers[name] = (to_numpy(layer.weight[e]), to_numpy(layer.bias[e, 0]))
        found.append(ref.Cell(layers, model.config.activation, model.config.min_std))
    return found


def dense_layers(module: nn.Module) -> list[ref.Dense]:
    return [
        (to_numpy(layer.weight).T, to_numpy(layer.bias))
        for layer in module.modules()
        if isinstance(layer, nn.Linear)
    ]


def random_belief(model: WorldModel, num: int, seed: int) -> Belief:
    generator, like = seeded(seed), model.rssm.input.weight
    sizes = (model.config.deter, model.config.stoch)
    deter, stoch = (
        torch.randn(model.members, num, size, generator=generator).to(like) for size in sizes
    )
    return Belief(deter.tanh(), stoch)


# --- Golden -------------------------------------------------------------------------------

golden = pytest.mark.parametrize(
    ("members", "activation"), [(e, a) for e in (1, 3) for a in ("relu", "elu", "silu")]
)
# Both sides in float64: what is left is the rounding of sums in another order.
EXACT = {"rtol": 1e-11, "atol": 1e-12}


@golden
def test_one_step_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    num, embed_size = 4, model.config.vector_units
    generator = seeded(2)
    belief = random_belief(model, num, 3)
    action = torch.randn(members, num, ACTIONS, generator=generator).double()
    embed = torch.randn(members, num, embed_size, generator=generator).double()
    noise = torch.randn(members, num, model.config.stoch, generator=generator).double()
    part = model.rssm.embed_part(embed)
    seen, posterior = model.rssm.observe_step(belief, action, part, noise)
    ahead = model.rssm.imagine_step(belief, action, noise)
    mean_ahead = model.rssm.imagine_step(belief, action, None)
    prior = model.rssm.prior(seen.deter)
    assert torch.equal(seen.deter, ahead.deter)
    for e, cell in enumerate(cells(model)):
        for n in range(num):
            h, s, a = (to_numpy(x[e, n]) for x in (belief.deter, belief.stoch, action))
            deter = ref.evolve(cell, h, s, a)
            before = ref.prior(cell, deter)
            after = ref.posterior(cell, deter, to_numpy(embed[e, n]))
            draw = to_numpy(noise[e, n])
            pairs = [
                (seen.deter, deter),
                (prior.mean, before.mean),
                (prior.std, before.std),
                (posterior.mean, after.mean),
                (posterior.std, after.std),
                (seen.stoch, after.mean + after.std * draw),
                (ahead.stoch, before.mean + before.std * draw),
                (mean_ahead.stoch, before.mean),
            ]
            for got, expected in pairs:
                np.testing.assert_allclose(to_numpy(got[e, n]), expected, **EXACT)


@golden
def test_filtering_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    batch, steps = 2, 5
    generator = seeded(2)
    embed = torch.randn(members, batch, steps, 7, generator=generator).double()
    action = torch.randn(members, batch, steps, ACTIONS, generator=generator).double()
    noise = torch.randn(steps, members, batch, 3, generator=generator).double()
    got = model.observe(embed, action, noise)
    expected = ref.filter_sequences(
        cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise)
    )
    for left, right in [
        (got.deter, expected.deter),
        (got.stoch, expected.stoch),
        (got.prior.mean, expected.prior.mean),
        (got.prior.std, expected.prior.std),
        (got.posterior.mean, expected.posterior.mean),
        (got.posterior.std, expected.posterior.std),
    ]:
        np.testing.assert_allclose(to_numpy(left), right, **EXACT)


def test_filtering_in_float32_is_as_near_as_float32_gets() -> None:
    model = build(3)
    generator = seeded(2)
    embed = torch.randn(3, 2, 8, 7, generator=generator)
    action = torch.randn(3, 2, 8, ACTIONS, generator=generator)
    noise = torch.randn(8, 3, 2, 3, generator=generator)
    got = model.observe(embed, action, noise)
    expected = ref.filter_sequences(
        cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise)
    )
    # Eight steps of a recurrence, each with a few roundings of 6e-8.
    np.testing.assert_allclose(to_numpy(got.deter), expected.deter, rtol=0, atol=3e-6)
    np.testing.assert_allclose(to_numpy(got.stoch), expected.stoch, rtol=0, atol=1e-5)


@golden
def test_rollout_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    num, horizon = 3, 4
    belief = random_belief(model, num, 3)
    generator = seeded(4)
    actions = torch.randn(horizon, num, ACTIONS, generator=generator).double()
    noise = torch.randn(horizon, members, num, 3, generator=generator).double()
    for given in (noise, None):
        got = to_numpy(model.rollout(belief, actions, given))
        assert got.shape == (horizon, members, num, 9)
        for e, cell in enumerate(cells(model)):
            for n in range(num):
                expected = ref.roll_out(
                    cell,
                    to_numpy(belief.deter[e, n]),
                    to_numpy(belief.stoch[e, n]),
                    to_numpy(actions[:, n]),
                    None if given is None else to_numpy(given[:, e, n]),
                )
                np.testing.assert_allclose(got[:, e, n], expected, **EXACT)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(
    ("latent_noise", "samples"),
    [("independent", 1), ("independent", 2), ("shared", 1), ("shared", 2), ("mean", 1)],
)
def test_imagining_is_the_equations(
    monkeypatch: pytest.MonkeyPatch, members: int, latent_noise: str, samples: int
) -> None:
    """Also pins the axes: B problems, N candidates, particles by member, then by sample."""
    model = build(members, latent_noise=latent_noise, latent_samples=samples).double()
    batch, num, horizon = 2, 3, 4
    belief = random_belief(model, batch, 3)
    actions = torch.randn(batch, num, horizon, ACTIONS, generator=seeded(4)).double()
    calls = record(monkeypatch, model, "rollout")
    got = to_numpy(model.imagine(belief, actions, seeded(9)))
    assert got.shape == (batch, num, members * samples, horizon)
    with torch.no_grad():  # the way of the planner
        np.testing.assert_allclose(model.imagine(belief, actions, seeded(9)), got, **EXACT)
    noise = calls[0][2]
    head = dense_layers(model.reward_head)
    for e, cell in enumerate(cells(model)):
        for b in range(batch):
            for s in range(samples):
                for n in range(num):
                    row = (b * samples + s) * num + n
                    features = ref.roll_out(
                        cell,
                        to_numpy(belief.deter[e, b]),
                        to_numpy(belief.stoch[e, b]),
                        to_numpy(actions[b, n]),
                        None if noise is None else to_numpy(noise[:, e, row]),
                    )
                    expected = [ref.multilayer(f, head, "elu")[0] for f in features]
                    np.testing.assert_allclose(got[b, n, e * samples + s], expected, **EXACT)


@golden
def test_the_objective_is_the_equations(
    monkeypatch: pytest.MonkeyPatch, members: int, activation: str
) -> None:
    """Encoder to loss, with sequences of unlike lengths, of which only the real part counts."""
    model = build(members, activation=activation).double()
    lengths = [5, 2, 4]
    batch = doubled(make_batch(members, 3, 5))
    for b, length in enumerate(lengths):
        batch.mask[:, b, length:] = 0
    middle = model.loss(batch, PLAIN, seeded(11))["kl_nats"].mean().item()
    config = LossConfig(free_nats=middle, kl_scale=0.7, reward_scale=3.0, observation_scale=1.5)
    calls = record(monkeypatch, model, "observe")
    got = model.loss(batch, config, seeded(11))
    embed, action, noise = calls[0]
    encoder = dense_layers(model.encoder)
    for index in np.ndindex(members, 3, 5):
        expected = ref.multilayer(to_numpy(batch.observation[index]), encoder, activation)
        expected = ref.nonlinear(activation, expected)
        np.testing.assert_allclose(to_numpy(embed[index]), expected, **EXACT)
    seen = ref.filter_sequences(cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise))
    for e in range(members):
        expected = ref.objective(
            seen,
            e,
            dense_layers(model.decoder),
            dense_layers(model.reward_head),
            activation,
            to_numpy(batch.observation[e]),
            to_numpy(batch.reward[e]),
            lengths,
            config.free_nats,
            config.kl_scale,
            config.reward_scale,
            config.observation_scale,
        )
        for name, value in dataclasses.asdict(expected).items():
            assert got[name][e].item() == pytest.approx(value, rel=1e-10), name
        total = expected.observation + expected.reward + expected.kl
        assert got["total"][e].item() == pytest.approx(total, rel=1e-10)
    # Free nats did clip some steps, but not all.
    assert got["kl"].mean() > config.kl_scale * middle * 1.01
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
    model = build(3).double()
    model.config = dataclasses.replace(model.config, belief=kind)
    belief = random_belief(model, 2, 3)
    action = torch.tensor([[0.3, -0.7], [1.0, 0.1]]).double()
    observation = torch.randn(2, 4, generator=seeded(1)).double()
    calls = record(monkeypatch, model.rssm, "observe_step")
    got = model.filter(belief, action, observation, seeded(4))
    noise, encoder = calls[0][3], dense_layers(model.encoder)
    assert noise.shape == (3, 2, 3)
    if kind == "sample":
        assert len(noise.unique()) == noise.numel()  # each member, each problem its own draw
    else:
        assert not noise.any()
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


# --- Terms of the objective, by hand ------------------------------------------------------


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


# --- The ensemble -------------------------------------------------------------------------


def repeat_first_member(model: WorldModel, members: int) -> WorldModel:
    """A model of ``members`` copies of ``model``'s first member."""
    copies = WorldModel(
        model.observation_shape, model.num_actions, members, model.config, seeded(99)
    )
    state = model.state_dict()
    for name, tensor in state.items():
        if name.startswith("rssm."):
            state[name] = tensor[:1].repeat(members, 1, 1)
    copies.load_state_dict(state)
    return copies


class SameNoise:
    """Imagines with one draw of latent noise that all members share."""

    def __init__(self, model: WorldModel) -> None:
        self.model = model

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        batch, num, horizon, dims = actions.shape
        members, stoch = self.model.members, self.model.config.stoch
        noise = torch.randn(horizon, 1, batch * num, stoch, generator=generator)
        features = self.model.rollout(
            Belief(state.deter.repeat_interleave(num, 1), state.stoch.repeat_interleave(num, 1)),
            actions.reshape(batch * num, horizon, dims).transpose(0, 1),
            noise.expand(-1, members, -1, -1),
        )
        return self.model.reward(features).unflatten(2, (batch, num)).permute(2, 3, 1, 0)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("execute", ["sample", "mean"])
def test_five_identical_members_plan_as_one(sampled: bool, execute: str) -> None:
    """The mean of five equal returns is that return up to rounding (1e-7), and threshold
    weights depend on the order of returns only: the same candidates are elites, so the plans
    agree far below the tolerance unless two returns at the threshold tie within rounding."""
    one = build(1, latent_noise="mean")
    five = repeat_first_member(one, 5)
    belief = random_belief(one, 2, 3)
    config = PlannerConfig(
        horizon=4,
        num_candidates=60,
        num_iterations=4,
        num_components=2,
        elite_fraction=0.2,
        execute=execute,
    )
    results = []
    for model in (one, five):
        state = Belief(
            belief.deter.repeat(model.members, 1, 1), belief.stoch.repeat(model.members, 1, 1)
        )
        imaginer = SameNoise(model) if sampled else model
        with torch.no_grad():
            results.append(
                plan(
                    imaginer,
                    state,
                    Bounds.symmetric(ACTIONS),
                    config,
                    seeded(5),
                    batch_size=2,
                )
            )
    single, several = results
    assert several.diagnostics.returns.shape == (2, 60, 5)
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(several.action, single.action, **close)
    torch.testing.assert_close(several.plan.mean, single.plan.mean, **close)
    torch.testing.assert_close(several.plan.std, single.plan.std, **close)
    torch.testing.assert_close(several.plan.log_weights, single.plan.log_weights, **close)
    torch.testing.assert_close(
        several.diagnostics.returns,
        single.diagnostics.returns.expand(-1, -1, 5),
        rtol=0,
        atol=1e-5,
    )
    assert single.diagnostics.returns.std() > 1e-2  # the model does tell candidates apart


def test_different_members_plan_differently_than_the_first_alone() -> None:
    several = build(5, latent_noise="mean")
    one = repeat_first_member(several, 1)
    belief = random_belief(several, 1, 3)
    config = PlannerConfig(horizon=4, num_candidates=60, num_iterations=3, num_components=1)
    with torch.no_grad():
        means = [
            plan(model, state, Bounds.symmetric(ACTIONS), config, seeded(5)).plan.mean
            for model, state in (
                (several, belief),
                (one, Belief(belief.deter[:1], belief.stoch[:1])),
            )
        ]
    assert (means[0] - means[1]).abs().max() > 0.05


@pytest.mark.parametrize("shape", [VECTOR, IMAGE])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_a_members_gradient_depends_on_its_own_minibatch_only(
    shape: tuple[int, ...], fraction: float
) -> None:
    model = build(3, shape)
    config = LossConfig(free_nats=0.0, kl_balance=0.8, decode_fraction=fraction)
    batch, other = make_batch(3, 2, 4, shape, seed=5), make_batch(3, 2, 4, shape, seed=6)
    other.mask[1, 0, 2:] = 0
    changed = SequenceBatch(
        **{
            field.name: getattr(batch, field.name).clone()
            for field in dataclasses.fields(SequenceBatch)
        }
    )
    for field in dataclasses.fields(SequenceBatch):
        getattr(changed, field.name)[1] = getattr(other, field.name)[1]
    terms, before = gradients(model, batch, config, seed=7)
    new_terms, after = gradients(model, changed, config, seed=7)
    for name in terms:
        assert torch.equal(terms[name][[0, 2]], new_terms[name][[0, 2]])
        assert terms[name][1] != new_terms[name][1]
    own = [name for name in before if name.startswith("rssm.")]
    assert len(own) == 14
    for name in own:
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]]), name
        assert not torch.equal(before[name][1], after[name][1]), name
        assert before[name].abs().amax((1, 2)).min() > 0, name


def test_a_member_learns_in_the_ensemble_what_it_would_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the shared networks get the sum of what the members would give them."""
    model = build(3).double()
    batch = doubled(make_batch(3, 2, 4))
    calls = record(monkeypatch, model, "observe")
    terms, together = gradients(model, batch, PLAIN, seed=7)
    noise = calls[0][2]
    total = {name: torch.zeros_like(g) for name, g in together.items()}
    for e in range(3):
        alone = WorldModel(VECTOR, ACTIONS, 1, TINY, seeded(0)).double()
        state = model.state_dict()
        alone.load_state_dict(
            {n: t[e : e + 1] if n.startswith("rssm.") else t for n, t in state.items()}
        )
        observe = alone.observe
        monkeypatch.setattr(
            alone,
            "observe",
            lambda embed, action, _, e=e, f=observe: f(embed, action, noise[:, e : e + 1]),
        )
        single = SequenceBatch(
            batch.observation[e : e + 1],
            batch.action[e : e + 1],
            batch.reward[e : e + 1],
            batch.mask[e : e + 1],
        )
        own_terms, own = gradients(alone, single, PLAIN, seed=7)
        torch.testing.assert_close(own_terms["total"][0], terms["total"][e], rtol=1e-12, atol=0)
        for name, gradient in own.items():
            if name.startswith("rssm."):
                torch.testing.assert_close(gradient[0], together[name][e], rtol=1e-9, atol=1e-12)
            else:
                total[name] += gradient
    for name, gradient in total.items():
        if not name.startswith("rssm."):
            torch.testing.assert_close(gradient, together[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [VECTOR, IMAGE])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_a_shared_batch_is_the_same_batch_for_every_member(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], fraction: float
) -> None:
    """Images go in without dither here: a shared batch has one dither, repeated ones differ."""

    def undithered(observation: Tensor, generator: Generator, bits: int) -> Tensor:
        if observation.dtype != torch.uint8:
            return observation
        return observation.movedim(-1, -3).double() / 256 - 0.5

    monkeypatch.setattr(ensemble, "preprocess", undithered)
    model = build(3, shape).double()
    shared = doubled(make_batch(1, 2, 4, shape))
    shared.mask[0, 1, 3:] = 0
    repeated = SequenceBatch(
        **{
            field.name: torch.cat([getattr(shared, field.name)] * 3)
            for field in dataclasses.fields(SequenceBatch)
        }
    )
    config = LossConfig(free_nats=0.1, kl_balance=0.8, decode_fraction=fraction)
    terms, left = gradients(model, shared, config, seed=7)
    again, right = gradients(model, repeated, config, seed=7)
    for name in terms:
        assert terms[name].shape == (3,)
        torch.testing.assert_close(terms[name], again[name], rtol=1e-12, atol=0)
        assert len(terms[name].unique()) == 3  # members differ all the same
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("sharing", "lead"), [("own", (3, 7)), ("shared", (1, 7)), ("split", (3, 2))]
)
def test_learner_samples_batches_as_they_are_shared(
    tmp_path: Path, sharing: str, lead: tuple[int, int]
) -> None:
    replay = filled_replay(tmp_path / "episodes", ACTIONS)
    config = Config(
        num_members=3,
        train=TrainConfig(batch_size=7, sequence_length=5, batch_sharing=sharing),
    )
    learner = Learner(build(3), config)
    batch = learner.sample(replay, 0)
    assert batch.observation.shape == (*lead, 5, 4)
    assert batch.action.shape == (*lead, 5, ACTIONS)
    assert batch.reward.shape == batch.mask.shape == (*lead, 5)
    for e in range(1, lead[0]):
        assert not torch.equal(batch.observation[0], batch.observation[e])
    assert torch.equal(batch.observation, learner.sample(replay, 0).observation)
    assert not torch.equal(batch.observation, learner.sample(replay, 1).observation)
    assert all(
        torch.isfinite(v).all() for v in learner.model.loss(batch, PLAIN, seeded(0)).values()
    )


def test_learner_draws_the_coming_of_rewards_as_often_as_it_is_told(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    for number in range(40):
        reward = np.zeros(60, np.float32)
        reward[30:] = number == 0  # one episode has any
        replay.add(
            Episode(np.ones((60, 4), np.float32), np.ones((60, ACTIONS), np.float32), reward)
        )

    def share(onset_share: float) -> float:
        train = TrainConfig(batch_size=400, sequence_length=5, onset_share=onset_share)
        learner = Learner(build(1), Config(method="planet", train=train))
        return float((learner.sample(replay, 0).reward.diff(dim=-1) != 0).any(-1).float().mean())

    assert share(0.0) < 0.01 < 0.015 < share(0.03)


def test_the_four_methods_differ_in_members_and_components_only() -> None:
    configs = {name: Config(method=name) for name in METHODS}
    found = {
        name: (config.members, config.resolved_planner.num_components)
        for name, config in configs.items()
    }
    assert found == {
        "planet": (1, 1),
        "e_only": (5, 1),
        "m_only": (1, 5),
        "planet_bayes": (5, 5),
    }
    candidates = {name: c.resolved_planner.num_candidates for name, c in configs.items()}
    assert candidates == {"planet": 1000, "e_only": 200, "m_only": 1000, "planet_bayes": 200}
    assert {candidates[name] * found[name][0] for name in METHODS} == {1000}
    rest = {
        dataclasses.replace(c.resolved_planner, num_components=1, num_candidates=1)
        for c in configs.values()
    }
    assert len(rest) == 1


# --- Decoding a part of the frames --------------------------------------------------------


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
    partial, full = [], []
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


# --- Networks -----------------------------------------------------------------------------


def size_of(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_planets_sizes() -> None:
    model = WorldModel((64, 64, 3), 6, 1, ModelConfig(), seeded(0))
    conv = (
        (3 * 32 * 4 * 4 + 32)
        + (32 * 64 * 4 * 4 + 64)
        + (64 * 128 * 4 * 4 + 128)
        + (128 * 256 * 4 * 4 + 256)
    )
    assert conv == 690_144
    assert size_of(model.encoder) == conv
    deconv = (
        (230 * 1024 + 1024)
        + (1024 * 128 * 5 * 5 + 128)
        + (128 * 64 * 5 * 5 + 64)
        + (64 * 32 * 6 * 6 + 32)
        + (32 * 3 * 6 * 6 + 3)
    )
    assert deconv == 3_795_555
    assert size_of(model.decoder) == deconv
    reward = (230 * 300 + 300) + 2 * (300 * 300 + 300) + (300 + 1)
    assert size_of(model.reward_head) == reward
    cell = (
        ((30 + 6) * 200 + 200)
        + ((200 + 200) * 400 + 400)  # both gates
        + ((200 + 200) * 200 + 200)
        + (200 * 200 + 200)
        + (200 * 60 + 60)
        + ((200 + 1024) * 200 + 200)
        + (200 * 60 + 60)
    )
    assert size_of(model.rssm) == cell
    assert size_of(model) == conv + deconv + reward + cell
    features = torch.zeros(1, 2, 230)
    assert model.encode(torch.zeros(1, 2, 3, 64, 64)).shape == (1, 2, 1024)
    assert model.decode(features).shape == (1, 2, 3, 64, 64)
    assert model.reward(features).shape == (1, 2)


def test_only_the_dynamics_are_an_ensemble() -> None:
    one, five = build(1, IMAGE), build(5, IMAGE)
    assert size_of(five.rssm) == 5 * size_of(one.rssm)
    for name in ("encoder", "decoder", "reward_head"):
        assert size_of(getattr(five, name)) == size_of(getattr(one, name))


def test_smaller_images() -> None:
    encoder, embed = image_encoder((32, 32, 3), 32, "relu")
    assert embed == 4 * 32 * 2 * 2
    assert encoder(torch.zeros(2, 3, 32, 32)).shape == (2, embed)
    decoder = image_decoder((32, 32, 3), 10, 8, "relu")
    assert decoder(torch.zeros(2, 10)).shape == (2, 3, 32, 32)
    assert image_encoder((64, 64, 3), 5, "relu")[1] == 8 * 5 * 2 * 2


def test_the_encoder_of_small_images_sees_all_of_them() -> None:
    """At 64×64 PlaNet's does not see the last two rows and columns, and that is left as it is."""
    for size, blind in ((32, []), (64, [62, 63])):
        encoder, _ = image_encoder((size, size, 3), 4, "elu")
        glorot_(encoder, seeded(0))
        image = torch.randn(1, 3, size, size, generator=seeded(1), requires_grad=True)
        encoder(image).square().sum().backward()
        assert image.grad is not None
        felt = image.grad.abs().sum((0, 1))
        for axis in (0, 1):
            assert (felt.sum(axis) == 0).nonzero().flatten().tolist() == blind


@pytest.mark.parametrize("shape", [(48, 48, 3), (64, 64, 1), (3, 64, 64), (64, 32, 3), (16, 16, 3)])
def test_other_image_sizes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="64×64×3"):
        WorldModel(shape, ACTIONS, 1, TINY, seeded(0))


def test_the_decoders_last_layer_and_the_reward_are_linear() -> None:
    """A ReLU at the end would cut half of the range off."""
    model = build(1, IMAGE, activation="relu")
    features = torch.randn(64, 9, generator=seeded(1))
    assert model.decode(features).min() < 0 < model.decode(features).max()
    assert model.reward(features).min() < 0
    assert model.encode(torch.randn(4, 3, 32, 32, generator=seeded(2))).min() == 0


PLANET_FANS = {
    # input and output units of PlaNet's layers; mean and std are two layers side by side
    "input": (20 + 6, 40, 40),
    "gates": (40 + 50, 2 * 50, 2 * 50),
    "candidate": (40 + 50, 50, 50),
    "prior_hidden": (50, 40, 40),
    "prior_out": (40, 20, 2 * 20),
    "posterior_hidden": (50 + 60, 40, 40),
    "posterior_out": (40, 20, 2 * 20),
}


@pytest.mark.parametrize("name", PLANET_FANS)
def test_layers_start_as_planets_do(name: str) -> None:
    """Glorot uniform: ± √(6 / (in + out)). Of over 1,000 draws from U(-1, 1) the largest is
    below 0.99 once in 20,000 times or less."""
    config = ModelConfig(deter=50, stoch=20, hidden=40, vector_units=60)
    model = WorldModel(VECTOR, 6, 4, config, seeded(0))
    inputs, outputs, width = PLANET_FANS[name]
    layer = getattr(model.rssm, name)
    assert layer.weight.shape == (4, inputs, width)
    limit = math.sqrt(6 / (inputs + outputs))
    assert layer.weight.numel() > 1000
    assert layer.weight.abs().max().item() <= limit
    assert layer.weight.abs().max().item() >= 0.99 * limit
    assert abs(layer.weight.mean().item()) < 5 * limit / math.sqrt(3 * layer.weight.numel())
    assert torch.all(layer.bias == (1.0 if name == "gates" else 0.0))
    assert not torch.equal(layer.weight[0], layer.weight[1])  # members start apart


def test_convolutions_start_as_planets_do() -> None:
    model = WorldModel(IMAGE, ACTIONS, 1, dataclasses.replace(TINY, image_depth=16), seeded(0))
    checked = 0
    for module in (*model.encoder.modules(), *model.decoder.modules()):
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            area = math.prod(module.kernel_size)
            limit = math.sqrt(6 / (area * (module.in_channels + module.out_channels)))
            assert 0.98 * limit <= module.weight.abs().max().item() <= limit
            assert torch.all(module.bias == 0)
            checked += 1
    assert checked == 6


def test_the_same_seed_gives_the_same_weights() -> None:
    one, same, other = (
        WorldModel(IMAGE, ACTIONS, 2, TINY, seeded(seed)).state_dict() for seed in (3, 3, 4)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[n], other[n]) for n in one if n.endswith("weight"))


def test_images_are_cut_to_five_bits_and_dithered() -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(192).reshape(2, 128, 64, 3)
    kept = image.clone()
    seen = preprocess(image, seeded(0))
    assert torch.equal(image, kept)
    assert seen.shape == (2, 3, 128, 64)
    assert seen.dtype == torch.float32
    assert seen.min() >= -0.5
    assert seen.max() <= 0.5
    scaled = (seen.movedim(-3, -1).double() + 0.5) * 32
    level = scaled.floor()
    assert torch.equal(level, (image // 8).double())
    assert len(level.unique()) == 32
    dither = scaled - level
    # Uniform on [0, 1): mean ½, variance 1/12, within 5 standard errors; not the same twice.
    count = dither.numel()
    assert abs(dither.mean().item() - 0.5) < 5 * math.sqrt(1 / 12 / count)
    assert abs(dither.var().item() - 1 / 12) < 5 * math.sqrt(1 / 180 / count)
    assert not torch.equal(seen, preprocess(image, seeded(1)))
    assert torch.equal(seen, preprocess(image, seeded(0)))


def test_images_decoded_in_parts_give_the_same_loss_and_gradient() -> None:
    model, batch = build(2, IMAGE), make_batch(2, 2, 4, IMAGE)
    found = []
    for size in (16, 15, 3):  # 2 members of 2 × 4 frames: at once, or in parts
        model._decoder_chunk = size
        found.append(gradients(model, batch, PLAIN, seed=3))
    terms, whole = found[0]
    for again, parts in found[1:]:
        for name in terms:
            torch.testing.assert_close(terms[name], again[name])
        for name in whole:
            torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("bits", [1, 7])
def test_bits_that_are_not_seen_are_noise(bits: int) -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(48).reshape(1, 64, 64, 3)
    scaled = (preprocess(image, seeded(0), bits).movedim(-3, -1).double() + 0.5) * 2**bits
    assert torch.equal(scaled.floor(), (image // 2 ** (8 - bits)).double())
    assert (scaled % 1).std() > 0.25


def test_with_all_eight_bits_there_is_no_noise() -> None:
    image = torch.arange(256, dtype=torch.uint8).repeat(48).reshape(1, 64, 64, 3)
    generator = seeded(0)
    seen = preprocess(image, generator, 8)
    np.testing.assert_array_equal(
        seen.movedim(-3, -1).numpy(), (image.numpy().astype(np.float32) + 0.5) / 256 - 0.5
    )
    assert torch.equal(generator.get_state(), seeded(0).get_state())
    assert (to_image(seen).int() - image.int()).abs().max() <= 1


def test_images_come_back_within_a_quantisation_step() -> None:
    rng = np.random.default_rng(0)
    image = torch.from_numpy(rng.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8))
    back = to_image(preprocess(image, seeded(0)))
    assert back.dtype == torch.uint8
    assert back.shape == image.shape
    assert (back.int() - image.int()).abs().max() <= 8
    extreme = torch.tensor([-9.0, -0.5, 0.5, 9.0]).reshape(4, 1, 1, 1).expand(4, 3, 1, 1)
    assert to_image(extreme)[:, 0, 0, 0].tolist() == [0, 0, 255, 255]


def test_vectors_are_left_as_they_are() -> None:
    vector = torch.randn(2, 3, 4, generator=seeded(0))
    generator = seeded(1)
    assert torch.equal(preprocess(vector, generator), vector)
    assert torch.equal(generator.get_state(), seeded(1).get_state())


# --- Padding ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [VECTOR, IMAGE])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_is_neither_seen_nor_learned_from(
    shape: tuple[int, ...], fraction: float, groups: int
) -> None:
    model = build(2, shape)
    config = LossConfig(free_nats=0.5, kl_balance=0.8, decode_fraction=fraction)
    clean, rubbish = make_batch(groups, 3, 5, shape, 5), make_batch(groups, 3, 5, shape, 6)
    padded = torch.zeros(groups, 3, 5, dtype=torch.bool)
    padded[:, 0, 2:] = True
    padded[-1, 2, 4:] = True
    clean.mask[padded] = 0
    dirty = SequenceBatch(
        clean.observation.clone(), clean.action.clone(), clean.reward.clone(), clean.mask
    )
    scale = 1 if len(shape) == 3 else 50
    dirty.observation[padded] = rubbish.observation[padded] * scale
    dirty.action[padded] = rubbish.action[padded] * 50
    dirty.reward[padded] = rubbish.reward[padded] * 50
    terms, gradient = gradients(model, clean, config, seed=7)
    again, dirtied = gradients(model, dirty, config, seed=7)
    for name in terms:
        assert torch.equal(terms[name], again[name]), name
    for name in gradient:
        assert torch.equal(gradient[name], dirtied[name]), name
    # The same rubbish in a step that counts does make a difference.
    dirty.observation[:, 0, 1] = rubbish.observation[:, 0, 1]
    assert not torch.equal(
        model.loss(dirty, config, seeded(7))["kl_nats"].detach(), terms["kl_nats"]
    )


# --- The agent ----------------------------------------------------------------------------

TINY_PLANNER = PlannerConfig(
    horizon=3, num_candidates=12, num_iterations=2, num_components=2, elite_fraction=0.3
)
kinds = pytest.mark.parametrize("shape", [VECTOR, IMAGE])


def observations(shape: tuple[int, ...], num: int, seed: int) -> np.ndarray:
    return make_batch(1, 1, num, shape, seed).observation[0, 0].numpy()


def flat(carry: Carry) -> list[Tensor]:
    return [carry.belief.deter, carry.belief.stoch, carry.action]


@kinds
def test_a_new_carry_is_a_new_episode(shape: tuple[int, ...]) -> None:
    agent = Agent(build(3, shape), TINY_PLANNER)
    views = observations(shape, 4, 1)
    start = agent.initial()
    kept = [tensor.clone() for tensor in flat(start)]
    first, carry, _ = agent.act(start, views[:1], seeded(0))
    for step in range(1, 4):
        _, carry, _ = agent.act(carry, views[step : step + 1], seeded(step))
    assert carry.plan is not None
    again, after, _ = agent.act(agent.initial(), views[:1], seeded(0))
    assert np.array_equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(flat(start), kept, strict=True))
    assert start.plan is None
    assert all((tensor == 0).all() for tensor in kept)
    # The old carry does matter: with it the same view and noise lead elsewhere.
    other, _, _ = agent.act(carry, views[:1], seeded(0))
    assert not np.array_equal(first, other)
    assert np.array_equal(after.action.numpy(), again)


@kinds
def test_actions_are_in_range_and_exploration_moves_them(shape: tuple[int, ...]) -> None:
    agent = Agent(build(2, shape), TINY_PLANNER)
    views = observations(shape, 1, 1)
    still, _, _ = agent.act(agent.initial(), views, seeded(0))
    moved, carry, _ = agent.act(agent.initial(), views, seeded(0), exploration=0.3)
    assert not np.array_equal(still, moved)
    assert np.array_equal(carry.action.numpy(), moved)  # what is remembered is what was done
    wild = [agent.act(agent.initial(), views, seeded(s), exploration=9.0)[0] for s in range(40)]
    for action in (still, moved, *wild):
        assert action.shape == (1, ACTIONS)
        assert action.dtype == np.float32
        assert np.abs(action).max() <= 1
    assert (np.abs(np.stack(wild)) == 1).mean() > 0.8  # 0.91 of N(0, 9) is outside [-1, 1]


def test_exploration_noise_has_the_stated_std() -> None:
    agent = Agent(build(1), dataclasses.replace(TINY_PLANNER, execute="mean"))
    views = observations(VECTOR, 1, 1).repeat(500, 0)
    calm, _, _ = agent.act(agent.initial(500), views, seeded(0))
    noisy, _, _ = agent.act(agent.initial(500), views, seeded(0), exploration=0.05)
    inside = np.abs(calm) < 0.7
    assert inside.sum() > 200
    noise = (noisy - calm)[inside]
    assert abs(noise.std() - 0.05) < 5 * 0.05 / math.sqrt(2 * inside.sum())
    assert abs(noise.mean()) < 5 * 0.05 / math.sqrt(inside.sum())


@kinds
def test_many_environments_at_once(shape: tuple[int, ...]) -> None:
    agent = Agent(build(2, shape), TINY_PLANNER)
    views = observations(shape, 3, 1)
    carry = agent.initial(3)
    for step in range(2):
        action, carry, diagnostics = agent.act(carry, views, seeded(step))
        assert action.shape == (3, ACTIONS)
        assert carry.belief.deter.shape == (2, 3, TINY.deter)
        assert carry.belief.stoch.shape == (2, 3, TINY.stoch)
        assert diagnostics.returns.shape == (3, 12, 2)
        assert np.abs(action).max() <= 1
        assert carry.plan is not None
        assert carry.plan.mean.shape == (3, 2, 3, ACTIONS)


@kinds
def test_environments_do_not_see_each_other(shape: tuple[int, ...]) -> None:
    agent = Agent(build(2, shape), TINY_PLANNER)
    views, others = observations(shape, 3, 1), observations(shape, 3, 2)
    changed = views.copy()
    changed[1] = others[1]
    results = []
    for given in (views, changed):
        action, carry, _ = agent.act(agent.initial(3), given, seeded(0))
        results.append((torch.from_numpy(action), carry.belief))
    (left, before), (right, after) = results
    assert torch.equal(before.stoch[:, [0, 2]], after.stoch[:, [0, 2]])
    assert torch.equal(left[[0, 2]], right[[0, 2]])
    assert not torch.equal(before.stoch[:, 1], after.stoch[:, 1])


@kinds
def test_observations_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    agent = Agent(build(2, shape), TINY_PLANNER)
    views = observations(shape, 2, 1)
    for wrong in (views, views[0], views[:1, :-1], views[:1, ..., None]):
        with pytest.raises(ValueError, match="expected shape"):
            agent.act(agent.initial(), wrong, seeded(0))
    agent.act(agent.initial(2), views, seeded(0))
    with pytest.raises(ValueError, match="expected shape"):
        agent.act(agent.initial(2), views[:1], seeded(0))


def test_the_agents_action_goes_into_the_next_belief() -> None:
    agent = Agent(build(2), TINY_PLANNER)
    views = observations(VECTOR, 2, 1)
    _, carry, _ = agent.act(agent.initial(), views[:1], seeded(0))
    beliefs = []
    for action in (carry.action, -carry.action):
        held = dataclasses.replace(carry, action=action)
        beliefs.append(agent.act(held, views[1:], seeded(1))[1].belief.deter)
    assert not torch.equal(beliefs[0], beliefs[1])


# --- Latent noise in imagination ----------------------------------------------------------


def imagined(model: WorldModel, num: int, seed: int = 9) -> Tensor:
    """Rewards of ``num`` candidates that are all the same, for two problems."""
    belief = random_belief(model, 2, 3)
    actions = torch.randn(2, 1, 4, ACTIONS, generator=seeded(4)).expand(-1, num, -1, -1)
    with torch.no_grad():
        return model.imagine(belief, actions, seeded(seed))


@pytest.mark.parametrize("samples", [1, 3])
def test_equal_candidates_get_equal_rewards_if_noise_is_shared(samples: int) -> None:
    spread = {}
    kinds = ["shared", "independent", *(["mean"] if samples == 1 else [])]
    for kind in kinds:
        model = repeat_first_member(build(1, latent_noise=kind, latent_samples=samples), 2)
        rewards = imagined(model, 6)
        assert rewards.shape == (2, 6, 2 * samples, 4)
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
    model = build(3, latent_noise=kind, latent_samples=2)
    calls = record(monkeypatch, model, "rollout")
    model.imagine(random_belief(model, 2, 3), torch.zeros(2, 40, 4, ACTIONS), seeded(9))
    noise = calls[0][2]
    assert noise.shape == (4, 3, 2 * 2 * 40, 3)
    noise = noise.unflatten(2, (2, 2, 40))
    if kind == "shared":
        assert torch.equal(noise, noise[:, :, :, :, :1].expand_as(noise))
        noise = noise[:, :, :, :, 0]
    count = noise.numel()
    # A few equal float32 draws happen by chance; a copied axis would leave half or fewer.
    assert len(noise.unique()) > 0.99 * count
    assert abs(noise.mean().item()) < 5 / math.sqrt(count)
    assert abs(noise.var().item() - 1) < 5 * math.sqrt(2 / count)


# --- Settings -----------------------------------------------------------------------------

MODEL_SIZES: dict[str, Any] = {
    "deter": 7,
    "stoch": 4,
    "hidden": 6,
    "image_depth": 3,
    "decoder_depth": 3,
    "image_layers": 2,
    "vector_units": 8,
    "vector_layers": 2,
    "reward_units": 7,
    "reward_layers": 1,
}
MODEL_BEHAVIOUR: dict[str, Any] = {
    "min_std": 0.5,
    "image_bits": 4,
    "activation": "silu",
    "latent_noise": "shared",
    "belief": "mean",
    "latent_samples": 2,
    "normalise": True,
}


def outputs(changes: dict[str, Any], shape: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters of a model, and its losses and imagined rewards."""
    model = WorldModel(shape, ACTIONS, 2, dataclasses.replace(TINY, **changes), seeded(0))
    if model.scaling is not None:
        model.scaling.set(torch.ones(shape), torch.full(shape, 2.0), 3.0)
    with torch.no_grad():
        terms = model.loss(make_batch(2, 2, 3, shape), PLAIN, seeded(1))
        rewards = model.imagine(
            model.rssm.initial(1), torch.full((1, 3, 4, ACTIONS), 0.5), seeded(2)
        )
        seen = make_batch(1, 2, 1, shape).observation[0, :, 0]
        belief = model.filter(model.rssm.initial(2), torch.zeros(2, ACTIONS), seen, seeded(3))
    return list(model.parameters()), [*terms.values(), rewards, belief.deter, belief.stoch]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_every_model_setting_is_listed() -> None:
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    assert names == MODEL_SIZES.keys() | MODEL_BEHAVIOUR.keys()
    assert {field.name for field in dataclasses.fields(LossConfig)} == LOSS_CHANGES.keys()


@pytest.mark.parametrize("name", MODEL_SIZES)
def test_every_size_changes_the_model(name: str) -> None:
    shape = IMAGE if name.startswith(("image", "decoder")) else VECTOR
    before, after = outputs({}, shape), outputs({name: MODEL_SIZES[name]}, shape)
    assert [p.shape for p in before[0]] != [p.shape for p in after[0]]
    assert not same(before[1], after[1])


@pytest.mark.parametrize("name", MODEL_BEHAVIOUR)
def test_every_behaviour_changes_what_the_same_weights_do(name: str) -> None:
    shape = IMAGE if name.startswith("image") else VECTOR
    before, after = outputs({}, shape), outputs({name: MODEL_BEHAVIOUR[name]}, shape)
    assert same(before[0], after[0])
    assert not same(before[1], after[1])


LOSS_CHANGES: dict[str, tuple[Any, set[str]]] = {
    # the new value, and the terms that it may change
    "free_nats": (2.0, {"total", "kl"}),
    "kl_balance": (0.8, set()),
    "kl_scale": (0.5, {"total", "kl"}),
    "reward_scale": (2.0, {"total", "reward"}),
    "observation_scale": (2.0, {"total", "observation"}),
    "decode_fraction": (0.5, {"total", "observation"}),
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


def test_a_scaled_model_is_the_plain_one_on_scaled_data() -> None:
    """Losses, beliefs and rewards are those of the same weights on data scaled by hand."""
    plain = WorldModel(VECTOR, ACTIONS, 2, TINY, seeded(0))
    scaled = WorldModel(VECTOR, ACTIONS, 2, dataclasses.replace(TINY, normalise=True), seeded(0))
    assert scaled.scaling is not None
    mean, std = torch.linspace(-1, 1, *VECTOR), torch.linspace(0.5, 4, *VECTOR)
    scaled.scaling.set(mean, std, 0.2)
    batch = make_batch(2, 2, 3)
    by_hand = dataclasses.replace(
        batch, observation=(batch.observation - mean) / std, reward=batch.reward / 0.2
    )
    assert by_hand.observation.abs().max() < 10
    with torch.no_grad():
        left = scaled.loss(batch, PLAIN, seeded(1))
        right = plain.loss(by_hand, PLAIN, seeded(1))
        for name in left:
            assert torch.allclose(left[name], right[name], rtol=1e-5), name
        start, action = plain.rssm.initial(2), torch.zeros(2, ACTIONS)
        seen = batch.observation[0, :, 0]
        one = scaled.filter(start, action, seen, seeded(2))
        two = plain.filter(start, action, (seen - mean) / std, seeded(2))
        assert torch.allclose(one.stoch, two.stoch, atol=1e-5)
        actions = torch.full((2, 3, 4, ACTIONS), 0.5)
        rewards = scaled.imagine(two, actions, seeded(3))
        assert torch.allclose(rewards, 0.2 * plain.imagine(two, actions, seeded(3)), rtol=1e-5)
        features = torch.cat([two.deter, two.stoch], -1)
        assert torch.allclose(scaled.reconstruct(features), plain.decode(features) * std + mean)
        assert torch.equal(plain.reconstruct(features), plain.decode(features))


def test_scaled_images_have_mean_zero_and_unit_variance() -> None:
    """A pole before a sky: what the networks see is the pole, and reconstruction undoes it."""
    rng = np.random.default_rng(0)
    images = np.broadcast_to(rng.integers(0, 256, (32, 32, 3), np.uint8), (200, 32, 32, 3)).copy()
    for image in images:
        image[:, rng.integers(10, 20)] = rng.integers(0, 256)
    config = dataclasses.replace(TINY, normalise=True)
    model = WorldModel((32, 32, 3), ACTIONS, 2, config, seeded(0))
    assert model.scaling is not None
    mean, variance = images.mean(0), images.var(0)
    model.scaling.set(torch.from_numpy(mean), torch.from_numpy(images.std(0)), 1.0)
    divisor = variance + 0.25 * variance.mean()
    std = np.sqrt(divisor * (variance / divisor).mean())
    inputs = model.prepare(torch.from_numpy(images), seeded(1))
    assert inputs.shape == (200, 3, 32, 32)
    moving, still = inputs[..., 10:20], inputs[..., 20:]
    # Of 32 levels: the rest of rounding is at most half a level, and the dither's is random.
    steps = 256 / 32 / std
    step = steps.max()
    assert moving.mean(0).abs().max() < step
    assert still.mean(0).abs().max() < step
    assert still.std(0).max() < step / 3
    # Rounding to a level and dithering each add about the variance of a uniform step.
    assert float(inputs.square().mean()) == pytest.approx(
        1 + 2 * np.square(steps).mean() / 12, rel=0.01
    )
    features = torch.randn(2, 5, TINY.deter + TINY.stoch, generator=seeded(2))
    with torch.no_grad():
        decoded = model.decode(features).movedim(-3, -1).numpy()
        shown = model.reconstruct(features).movedim(-3, -1).numpy()
    np.testing.assert_allclose((shown + 0.5) * 256 - 0.5, decoded * std + mean, atol=1e-3)


@pytest.mark.parametrize("size", [32, 64])
def test_a_scaled_image_counts_as_thirty_sensors(size: int) -> None:
    """Whatever its size: decoded as its mean, it costs half of each one's variance."""
    shape = (size, size, 3)
    config = dataclasses.replace(TINY, normalise=True)
    model, batch = WorldModel(shape, ACTIONS, 2, config, seeded(0)), make_batch(1, 2, 3, shape)
    assert model.scaling is not None
    images = batch.observation.double().flatten(0, 2)
    images[:, :3] /= 100  # a part that hardly moves does not change what the whole counts
    batch = dataclasses.replace(
        batch, observation=images.to(torch.uint8).reshape(batch.observation.shape)
    )
    images = batch.observation.double().flatten(0, 2)
    model.scaling.set(images.mean(0), images.std(0, correction=0), 1.0)
    with torch.no_grad():
        for weight in model.decoder.parameters():
            weight.zero_()
        terms = model.loss(batch, PLAIN, seeded(1))
    expected = PLAIN.observation_scale * 0.5 * 30
    assert terms["observation"].tolist() == pytest.approx([expected, expected], rel=0.01)


def test_dim_pixels_come_nearer_to_bright_ones_and_still_ones_stay_still() -> None:
    """The cart does not drown the pole, nor does a wall's flicker become a wall that moves."""
    scaling, std = Scaling((32, 32, 3)), torch.full((32, 32, 3), 0.01)
    std[:2], std[2:10] = 60.0, 20.0
    scaling.set(torch.zeros(32, 32, 3), std, 1.0)
    seen = (std.movedim(-1, 0) / 256) / scaling.observation_std
    assert seen.square().mean() == pytest.approx(1)
    bright, dim, still = (float(seen[:, row].mean()) for row in (0, 5, 20))
    assert 1 < bright / dim < 1.5
    assert dim / still > 500


def test_images_that_never_changed_are_left_at_their_size() -> None:
    scaling = Scaling((32, 32, 3))
    scaling.set(torch.full((32, 32, 3), 7.0), torch.zeros(32, 32, 3), 1.0)
    assert (scaling.observation_std == 1).all()


def test_scales_of_what_never_moved_and_of_what_is_far_away() -> None:
    scaling = Scaling((2,))
    scaling.set(torch.tensor([5.0, 1.0]), torch.tensor([0.0, 2.0]), 0.0)
    assert scaling.reward_std == 1
    assert scaling.scaled(torch.tensor([[5.5, 1e9], [5.0, -3.0]])).tolist() == [[0.5, 10], [0, -2]]


def test_the_defaults_are_planets() -> None:
    model, loss = ModelConfig(), LossConfig()
    assert (model.deter, model.stoch, model.hidden, model.min_std) == (200, 30, 200, 0.1)
    assert (model.activation, model.image_depth, model.image_layers) == ("relu", 32, 0)
    assert (model.decoder_depth, model.image_bits) == (0, 5)
    assert (model.reward_units, model.reward_layers) == (300, 3)
    assert (model.latent_noise, model.latent_samples) == ("independent", 1)
    assert model.belief == "sample"
    assert not model.normalise
    assert (loss.free_nats, loss.kl_balance, loss.kl_scale) == (3.0, None, 1.0)
    assert (loss.reward_scale, loss.observation_scale, loss.decode_fraction) == (10.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((ModelConfig, name, 0) for name in ("deter", "stoch", "hidden", "image_depth")),
        *((ModelConfig, name, 0) for name in ("vector_units", "reward_units", "latent_samples")),
        *((ModelConfig, name, -1) for name in ("vector_layers", "reward_layers")),
        (ModelConfig, "min_std", 0.0),
        *((ModelConfig, name, -1) for name in ("image_layers", "decoder_depth")),
        *((ModelConfig, "image_bits", value) for value in (0, 9)),
        *((LossConfig, name, -0.1) for name in ("free_nats", "kl_scale", "reward_scale")),
        (LossConfig, "observation_scale", -0.1),
        *((LossConfig, "kl_balance", value) for value in (-0.1, 1.1)),
        *((LossConfig, "decode_fraction", value) for value in (0.0, 1.1)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        kind(**{name: value})


def test_samples_that_would_all_be_the_same_are_refused() -> None:
    with pytest.raises(ConfigError, match="latent_samples is 2"):
        ModelConfig(latent_noise="mean", latent_samples=2)
