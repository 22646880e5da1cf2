"""The loop: bounds, batches, kept elites, executed actions, errors, closed loop."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from planet_bayes.planner import (
    METHODS,
    ActionNoise,
    Bounds,
    PlannerError,
    cem,
    paets,
    plan,
)
from planning import (
    DOUBLE,
    INF,
    NAN,
    PointMass,
    Quadratic,
    Recorder,
    Table,
    bandit_weights,
    built_in,
    draw_noises,
    optimise,
    outputs,
    seeded,
    start,
    unit_gaussian,
    wide_bounds,
)

BOUNDS = Bounds(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 10.0]))
GOAL = torch.tensor([0.4, 7.0])
seeds = st.integers(0, 2**20)
methods = st.sampled_from(sorted(METHODS))


@settings(max_examples=40, deadline=None)
@given(
    method=methods,
    box=st.lists(
        st.tuples(st.floats(-50, 50, width=32), st.floats(0.0625, 50, width=32)),
        min_size=1,
        max_size=3,
    ),
    execute=st.sampled_from(["sample", "mean"]),
    initial_std=st.floats(0.1, 5),
    seed=seeds,
)
def test_actions_stay_in_bounds(method, box, execute, initial_std, seed):
    low = torch.tensor([corner for corner, _ in box])
    bounds = Bounds(low, low + torch.tensor([width for _, width in box]))
    config = METHODS[method](
        horizon=2, num_trajectories=20, num_iterations=2, initial_std=initial_std, execute=execute
    )
    # The goal lies outside: candidates crowd at the border.
    result = plan(Quadratic(bounds.high + 100), None, bounds, config, seeded(seed), batch_size=2)
    for actions in (result.action, result.diagnostics.candidates):
        assert (actions >= bounds.low).all()
        assert (actions <= bounds.high).all()


@settings(max_examples=25, deadline=None)
@given(method=methods, kappa=st.sampled_from([0.0, 0.5]), batch=st.integers(2, 4), seed=seeds)
def test_a_batch_equals_its_problems_one_by_one(method, kappa, batch, seed):
    assume(kappa == 0 or "portfolio" not in method)  # which has no κ
    config = METHODS[method](horizon=3, entropy_weight=kappa, num_trajectories=30)
    bounds, generator = wide_bounds(2, 1.5), seeded(seed)
    begin = start(bounds, config, generator, None, batch)
    noises = draw_noises(4, batch, 30, 3, 2, seed)
    goal = torch.randn(batch, 1, 3, 2, generator=generator, dtype=DOUBLE)
    together, seen = optimise(Quadratic(goal), begin, noises, bounds, config)
    for b in range(batch):
        one = slice(b, b + 1)
        begin_one = dataclasses.replace(
            begin,
            **{
                name: value[one]
                for name, value in vars(begin).items()
                if isinstance(value, Tensor) and value.ndim > 1  # all but the floor
            },
        )
        noises_one = [ActionNoise(noise.normal[one], noise.uniform[one]) for noise in noises]
        alone, seen_alone = optimise(Quadratic(goal[one]), begin_one, noises_one, bounds, config)
        for left, right in (
            (together.mean[one], alone.mean),
            (together.std[one], alone.std),
            (together.log_weights[one].exp(), alone.log_weights.exp()),
            (seen.weights[one], seen_alone.weights),
            (seen.best_return[one], seen_alone.best_return),
            (seen.effective_samples[one], seen_alone.effective_samples),
            (seen.effective_components[one], seen_alone.effective_components),
        ):
            torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-9)


def test_kept_elites_lose_nothing():
    """With a model that draws no noise the best return never falls, from the start's means on."""
    config = paets(
        horizon=3,
        num_trajectories=12,
        num_iterations=8,
        warm_candidates=5,
        keep_elites=2,
        min_std=0.5,
    )
    first = plan(PointMass(1), None, Bounds.symmetric(2), config, seeded(0))
    best = first.diagnostics.best_return[0]
    assert (best.diff() >= 0).all()
    plain = replace(config, keep_elites=0)
    without = plan(PointMass(1), None, Bounds.symmetric(2), plain, seeded(0))
    assert (without.diagnostics.best_return[0].diff() < 0).any()
    again = plan(
        PointMass(1), None, Bounds.symmetric(2), config, seeded(1), previous=first.proposal
    )
    means = start(Bounds.symmetric(2), config, seeded(1), first.proposal, 1).mean
    value = PointMass(1).imagine(None, means, seeded(0)).sum(-1).mean(-1).amax()
    assert again.diagnostics.best_return[0, 0] >= value


@pytest.mark.parametrize("components", [1, 2, 5])
@pytest.mark.parametrize("warm", [0, 1, 3, 6, 50])
def test_as_many_warm_candidates_as_set_whatever_the_number_of_components(components, warm):
    """They are the means in turn, the heaviest of the previous plan first, once in a plan."""
    seen: list[Tensor] = []
    config = paets(
        horizon=3, num_trajectories=20, num_iterations=2, num_components=components, spread=0.4
    )
    bounds = Bounds.symmetric(2)
    weight = torch.tensor([[0.1, 0.5, 0.05, 0.3, 0.05]])[:, :components]
    first = start(bounds, config, seeded(3), None, 1)
    previous = replace(first, log_weights=(weight / weight.sum()).log())
    config = replace(config, warm_candidates=warm)
    plan(Recorder(seen), None, bounds, config, seeded(1), previous=previous)
    means = start(bounds, config, seeded(1), previous, 1).modes()[0]
    order = weight[0].argsort(dim=0, descending=True, stable=True).tolist()
    count = min(warm, 10)
    for index in range(20):
        turn = index - (20 - count)
        same = [torch.equal(seen[0][0, index], mean) for mean in means]
        assert same == [turn >= 0 and order[turn % components] == m for m in range(components)]
    assert not any(torch.equal(one, mean) for one in seen[1][0] for mean in means)


def test_the_value_of_a_sequence_is_the_risk_of_its_returns():
    config = paets(horizon=3, num_trajectories=12, num_iterations=2)
    seen = plan(PointMass(4), None, Bounds.symmetric(2), config, seeded(0)).diagnostics
    torch.testing.assert_close(seen.value(seen.candidates), seen.returns.mean(-1))
    worst = plan(
        PointMass(4), None, Bounds.symmetric(2), config, seeded(0), risk=lambda r: r.amin(-1)
    ).diagnostics
    torch.testing.assert_close(worst.value(worst.candidates), worst.returns.amin(-1))
    assert torch.equal(seen.mode_values, seen.value(seen.proposal.modes()))


def test_the_best_candidate_can_be_executed():
    config = paets(horizon=3, num_trajectories=12, num_iterations=2, execute="best")
    result = plan(PointMass(1), None, Bounds.symmetric(2), config, seeded(0))
    seen = result.diagnostics
    index = seen.returns.mean(-1)[0].argmax()
    assert torch.equal(result.action[0], seen.candidates[0, index, 0])


def test_the_seed_changes_the_plan():
    first, other = (
        outputs(
            plan(
                PointMass(5),
                None,
                Bounds.symmetric(2),
                paets(horizon=3, num_trajectories=200),
                seeded(s),
            )
        )
        for s in (0, 1)
    )
    assert not torch.equal(first, other)


def test_planning_leaves_the_previous_plan_alone():
    config = paets(horizon=3, num_trajectories=20, num_iterations=2)
    bounds = Bounds.symmetric(2)
    previous = built_in(plan(PointMass(2), None, bounds, config, seeded()).proposal)
    before = previous.mean.clone(), previous.std.clone(), previous.log_weights.clone()
    plan(PointMass(2), None, bounds, config, seeded(1), previous=previous)
    after = previous.mean, previous.std, previous.log_weights
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))


def test_executed_action_is_a_sample_or_the_heaviest_mean():
    config = paets(horizon=2, num_trajectories=30, num_iterations=3, execute="mean")
    result = plan(PointMass(2), None, Bounds.symmetric(2), config, seeded())
    fitted = built_in(result.proposal)
    heaviest = int(fitted.log_weights[0].argmax())
    assert torch.equal(result.action[0], fitted.mean[0, heaviest, 0])
    actions = torch.stack(
        [
            plan(
                Recorder([]),
                None,
                Bounds.symmetric(1),
                cem(horizon=1, num_trajectories=200),
                seeded(s),
            ).action[0, 0]
            for s in range(40)
        ]
    )
    # Nothing to choose between: the Gaussian stays near its first std of 0.5, and is sampled.
    assert 0.3 < actions.std().item() < 0.7


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_finite_is_an_error(method, bad):
    config = METHODS[method](num_trajectories=20, horizon=2)
    model = Table(torch.full((20, 2), bad))
    with pytest.raises(PlannerError, match="finite"):
        plan(model, None, Bounds.symmetric(1), config, seeded())


def test_every_candidate_rejected_by_some_particle_is_an_error():
    with pytest.raises(PlannerError, match="finite"):
        bandit_weights([[NAN, 1.0], [2.0, NAN]], cem())


def test_one_hopeless_problem_of_a_batch_is_an_error():
    table = torch.zeros(2, 4, 1)
    table[1] = NAN
    config = cem(num_trajectories=4)
    with pytest.raises(PlannerError, match="finite"):
        plan(Table(table), None, Bounds.symmetric(1), config, seeded(), batch_size=2)


def test_dead_particles_are_counted_apart_from_rejected_candidates():
    table = torch.tensor([[[1.0, NAN], [NAN, NAN], [2, NAN]], [[1.0, 1], [2, 2], [3, NAN]]])
    noises = draw_noises(2, 2, 3, 1, 1, seed=0)
    seen = optimise(Table(table), unit_gaussian(batch=2), noises, wide_bounds(), cem())[1]
    assert seen.num_dead_particles.tolist() == [1, 0]
    assert seen.num_rejected.tolist() == [2, 2]
    assert seen.weights.tolist() == [[0, 0, 1], [0, 1, 0]]


@dataclass(frozen=True)
class Shaped:
    """Returns rewards of a fixed shape."""

    shape: tuple[int, ...]

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        return torch.zeros(self.shape)


@pytest.mark.parametrize(
    "shape", [(1, 8, 3), (1, 8, 3, 2), (1, 8, 0, 3), (8, 1, 1, 3), (1, 7, 1, 3), (1, 8, 1, 3, 1)]
)
def test_rewards_of_the_wrong_shape(shape):
    config = cem(num_trajectories=8, horizon=3)
    with pytest.raises(PlannerError, match=r"\[B, N, P, H\]"):
        plan(Shaped(shape), None, Bounds.symmetric(2), config, seeded())


def test_rewards_of_the_right_shape_pass():
    config = cem(num_trajectories=8, horizon=3)
    result = plan(Shaped((1, 8, 4, 3)), None, Bounds.symmetric(2), config, seeded())
    assert result.action.shape == (1, 2)
    assert result.diagnostics.returns.shape == (1, 8, 4)


@dataclass(frozen=True)
class DoubleIntegrator:
    """Position and velocity ``[B, 2]``, pushed by a bounded force; rest at 0 is the goal."""

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        velocity = state[..., 1] + 0.2 * action[..., 0]
        return torch.stack([state[..., 0] + 0.2 * velocity, velocity], -1)

    def imagine(self, state: Tensor, actions: Tensor, generator: Generator) -> Tensor:
        state = state.unsqueeze(1).expand(-1, actions.shape[1], -1)
        rewards = []
        for action in actions.unbind(2):
            state = self.step(state, action)
            rewards.append(-state[..., 0].square() - 0.2 * state[..., 1].square())
        return torch.stack(rewards, -1).unsqueeze(2)


@pytest.mark.parametrize("method", ["cem", "paets"])
def test_closed_loop_reaches_the_goal(method):
    system, bounds, generator = DoubleIntegrator(), Bounds.symmetric(1), seeded()
    config = METHODS[method](horizon=15, num_trajectories=100, num_iterations=4, execute="mean")
    state = torch.tensor([[2.0, 0.0], [-1.5, 1.0]])
    previous = None
    for _ in range(40):
        result = plan(system, state, bounds, config, generator, previous=previous, batch_size=2)
        state, previous = system.step(state, result.action), result.proposal
    assert state.abs().max().item() < 0.1
