"""The portfolio: against a NumPy reference, and on problems with known plans."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.planner import (
    FAMILIES,
    Bounds,
    PlannerError,
    Portfolio,
    cem,
    member_portfolio,
    paets,
    plan,
    portfolio,
)
from planet_bayes.planner._portfolio import MIN_ELITES, PORTFOLIO, RENEWAL
from planning import DOUBLE, NAN, PointMass, draw_noises, seeded

Array = NDArray[np.float64]


def make(rng: np.random.Generator, count: int = 4, **changes: Any) -> Portfolio:
    """Return a portfolio of one problem with three steps and two actions."""
    shape = (1, count, 3, 2)
    values: dict[str, Any] = {
        "mean": torch.tensor(rng.normal(size=shape)),
        "std": torch.tensor(rng.uniform(0.2, 0.6, size=shape)),
        "alive": torch.ones(1, count, dtype=torch.bool),
        "value": torch.tensor(rng.normal(size=(1, count))),
        "rival": torch.arange(count).unsqueeze(0),
        "bounds": Bounds(torch.full((2,), -9.0, dtype=DOUBLE), torch.full((2,), 9.0, dtype=DOUBLE)),
        "floor": torch.full((2,), 0.05, dtype=DOUBLE),
        "elite_fraction": 0.2,
        "waiting": 0,
        "warm_std": 0.5,
        **changes,
    }
    return Portfolio(**values)


def log_density(action: Array, mean: Array, std: Array) -> float:
    return float((-0.5 * ((action - mean) / std) ** 2 - np.log(std)).sum())


def reference(begin: Portfolio, actions: Array, values: Array) -> dict[str, Any]:
    """Refit one problem, component by component and candidate by candidate."""
    mean, std = begin.mean[0].numpy(), begin.std[0].numpy()
    alive, rival = begin.alive[0].tolist(), begin.rival[0].tolist()
    count, num = len(alive), len(values)
    contested = [alive[m] and rival[m] != m and begin.waiting == 0 for m in range(count)]
    merged = [
        contested[m]
        and np.isfinite(values[count + m])
        and values[count + m] >= min(values[m], values[rival[m]])
        for m in range(count)
    ]
    owner: list[int | None] = []
    for k in range(num):
        living = [m for m in range(count) if alive[m]]
        found: int | None = max(living, key=lambda m: log_density(actions[k], mean[m], std[m]))
        if k < count and alive[k]:
            found = k
        if count <= k < 2 * count and contested[k - count]:
            found = None
        while found is not None and merged[found]:
            found = rival[found]
        owner.append(found)
    result: dict[str, Any] = {"mean": mean.copy(), "std": std.copy(), "value": [-np.inf] * count}
    result["alive"] = [alive[m] and not merged[m] for m in range(count)]
    for m in range(count):
        own = [k for k in range(num) if owner[k] == m and np.isfinite(values[k])]
        if not result["alive"][m] or not own:
            continue
        size = max(round(begin.elite_fraction * len(own)), min(len(own), MIN_ELITES))
        elites = sorted(own, key=lambda k: -values[k])[:size]
        result["mean"][m] = actions[elites].mean(0)
        result["std"][m] = np.maximum(actions[elites].std(0), 0.05)
        result["value"][m] = values[elites].mean()
    result["rival"] = []
    for m in range(count):
        better = [
            o
            for o in range(count)
            if result["alive"][o] and result["value"][o] > result["value"][m]
        ]
        distances = [np.square(result["mean"][m] - result["mean"][o]).sum() for o in better]
        result["rival"].append(better[int(np.argmin(distances))] if better else m)
    return result


@pytest.mark.parametrize("seed", range(30))
def test_a_refit_is_that_of_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    alive = rng.random((1, 4)) < 0.8
    alive[0, rng.integers(4)] = True
    begin = make(rng, alive=torch.tensor(alive), waiting=int(rng.integers(2)))
    # Rivals must be better components, so that no two are rivals of each other.
    order = rng.permutation(4)
    rival = list(range(4))
    for place, m in enumerate(order):
        better = [int(o) for o in order[:place] if alive[0, o]]
        if better and rng.random() < 0.8:
            rival[m] = int(rng.choice(better))
    begin = dataclasses.replace(begin, rival=torch.tensor([rival]))
    actions = begin.sample(draw_noises(1, 1, 40, 3, 2, seed)[0])
    values = torch.tensor(rng.normal(size=(1, 40)))
    values[0, rng.integers(40, size=3)] = -torch.inf
    found = begin.refit_values(actions, values)
    expected = reference(begin, actions[0].numpy(), values[0].numpy())
    for name in ("mean", "std", "value"):
        np.testing.assert_allclose(getattr(found, name)[0].numpy(), expected[name], rtol=1e-9)
    assert found.alive[0].tolist() == expected["alive"]
    assert found.rival[0].tolist() == expected["rival"]
    assert found.waiting == 0


def test_each_component_has_its_share_of_the_candidates_and_the_front_is_reserved() -> None:
    """Any run of places is shared alike: kept elites may take the last ones."""
    rng = np.random.default_rng(0)
    mean = torch.arange(4.0, dtype=DOUBLE).view(1, 4, 1, 1).expand(1, 4, 3, 2).contiguous()
    begin = make(
        rng,
        mean=mean,
        std=torch.full((1, 4, 3, 2), 0.01, dtype=DOUBLE),
        alive=torch.tensor([[True, True, False, True]]),
        value=torch.tensor([[1.0, 3.0, 9.0, 2.0]], dtype=DOUBLE),
        rival=torch.tensor([[1, 1, 2, 1]]),
    )
    expected = [1 / 3.25, 1.25 / 3.25, 0.0, 1 / 3.25]
    assert begin.weights()[0].tolist() == pytest.approx(expected)
    samples = begin.sample(draw_noises(1, 1, 108, 3, 2, 0)[0])[0]  # [N, H, A]
    for place, position in {0: 0.0, 1: 1.0, 3: 3.0, 4: 0.5, 7: 2.0}.items():
        assert samples[place].eq(position).all()  # the means, then the midpoints to the rivals
    for place in (2, 5, 6):  # the dead component and those without a rival leave a sample
        assert not samples[place].eq(samples[place].round(decimals=1)).all()
    nearest = samples[:, 0, 0].round()
    for part in (nearest[8:], nearest[8:58], nearest[58:]):
        shares = [float((part == m).double().mean()) for m in range(4)]
        assert shares == pytest.approx(expected, abs=0.03)
    waiting = dataclasses.replace(begin, waiting=1)
    assert not waiting.sample(draw_noises(1, 1, 108, 3, 2, 0)[0])[0, 4].eq(0.5).all()


def test_candidates_above_a_crowded_tie_are_the_elites() -> None:
    """As with `threshold`: a rare reward is not outnumbered by all candidates that find none."""
    begin = make(np.random.default_rng(0), 1)
    actions = begin.sample(draw_noises(1, 1, 40, 3, 2, 0)[0])
    values = torch.zeros(1, 40, dtype=DOUBLE)
    values[0, [7, 20]] = 1.0
    found = begin.refit_values(actions, values)
    torch.testing.assert_close(found.mean[0, 0], actions[0, [7, 20]].mean(0))
    assert found.value.item() == 1
    found = begin.refit_values(actions, torch.zeros_like(values))  # no reward in sight
    torch.testing.assert_close(found.mean[0, 0], actions[0].mean(0))


@dataclasses.dataclass(frozen=True)
class Sparse:
    """A point that is rewarded within this distance of a place, and nowhere else."""

    radius: float

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        point = 0.25 * actions.cumsum(2)
        distance = (point - torch.tensor([1.0, 0.8])).norm(dim=-1)
        return (distance < self.radius).to(actions).unsqueeze(2)


@pytest.mark.parametrize("components", [1, 4])
def test_a_sparse_reward_is_found_as_by_the_cross_entropy_method(components: int) -> None:
    settings: dict[str, Any] = {"horizon": 12, "num_trajectories": 200}
    ours = portfolio(num_components=components, **settings)
    found, best = (
        plan(Sparse(0.3), None, Bounds.symmetric(2), config, seeded(0), batch_size=20)
        .diagnostics.mode_values.amax(-1)
        .mean()
        for config in (ours, cem(initial_std=1.0, **settings))
    )
    assert best > 8
    assert found > 0.9 * best


def two_means(middle: float, best: float = 3.0) -> Portfolio:
    """Two components at ±1 that were refitted with these values of midpoint and first mean."""
    rng = np.random.default_rng(0)
    mean = torch.ones(1, 2, 3, 2, dtype=DOUBLE)
    mean[:, 1] = -1
    begin = make(rng, 2, mean=mean, rival=torch.tensor([[0, 0]]))
    actions = begin.sample(draw_noises(1, 1, 20, 3, 2, 0)[0])
    values = torch.zeros(1, 20, dtype=DOUBLE)
    values[0, :4] = torch.tensor([best, 2.0, 0.0, middle])  # two means, no midpoint, one midpoint
    return begin.refit_values(actions, values)


def test_components_merge_only_where_no_valley_parts_them() -> None:
    assert two_means(1.99).alive.tolist() == [[True, True]]
    assert two_means(2.0).alive.tolist() == [[True, False]]
    assert two_means(5.0).alive.tolist() == [[True, False]]
    assert two_means(NAN).alive.tolist() == [[True, True]]
    assert two_means(NAN, NAN).alive.tolist() == [[True, True]]
    assert two_means(1.0, NAN).alive.tolist() == [[True, False]]


@pytest.mark.parametrize("value", [0.1, -0.1, 3e38, -3e38])
def test_equal_values_have_an_exact_mean(value: float) -> None:
    """So rounding does not decide which component is better, and a large value stays finite."""
    config = portfolio(horizon=3, num_trajectories=101)
    begin: Any = PORTFOLIO.start(Bounds.symmetric(2), config, seeded(0), None, 2)
    actions = begin.sample(begin.draw_noise(101, seeded(1)))
    found = begin.refit_values(actions, torch.full((2, 101), value))
    assert found.value.eq(torch.tensor(value)).all()
    assert found.rival.tolist() == 2 * [[0, 1, 2, 3]]


def test_the_best_component_is_executed() -> None:
    rng = np.random.default_rng(0)
    value = torch.tensor([[1.0, 5.0, 9.0, 2.0]], dtype=DOUBLE)
    begin = make(rng, value=value, alive=torch.tensor([[True, True, False, True]]))
    assert torch.equal(begin.first_action("mean", seeded()), begin.mean[:, 1, 0])
    drawn = torch.cat([begin.first_action("sample", seeded(seed)) for seed in range(400)])
    error = begin.std[0, 1, 0] / 20
    assert ((drawn.mean(0) - begin.mean[0, 1, 0]).abs() < 4 * error).all()
    assert torch.allclose(drawn.std(0), begin.std[0, 1, 0], rtol=0.2)


def test_a_warm_start_shifts_the_living_and_renews_one_of_the_dead_now_and_then() -> None:
    rng = np.random.default_rng(0)
    bounds = Bounds.symmetric(2)
    config = portfolio(horizon=3, num_iterations=10)
    previous = make(rng, alive=torch.tensor([[False, True, False, True]]))
    previous = dataclasses.replace(previous, mean=previous.mean.float().clamp(-1, 1))
    fresh: Any = PORTFOLIO.start(bounds, config, seeded(3), None, 1)
    begin: Any = PORTFOLIO.start(bounds, config, seeded(3), previous, 1)
    assert begin.alive.tolist() == [[False, True, False, True]]
    assert begin.control_steps == 1
    later = dataclasses.replace(previous, control_steps=RENEWAL - 1)
    begin = PORTFOLIO.start(bounds, config, seeded(3), later, 1)
    assert begin.alive.tolist() == [[True, True, False, True]]
    assert torch.equal(begin.mean[0, 0], fresh.mean[0, 0])
    assert begin.std[0, :, 0, 0].tolist() == [1.0, 0.5, 1.0, 0.5]
    for m in (1, 3):
        assert torch.equal(begin.mean[0, m, :2], previous.mean[0, m, 1:])
        assert torch.equal(begin.mean[0, m, 2], fresh.mean[0, m, 2])
    assert (fresh.waiting, begin.waiting) == (3, 3)
    assert fresh.alive.all()


def test_another_family_can_continue_the_plans() -> None:
    bounds, settings = Bounds.symmetric(2), {"horizon": 3, "num_components": 4}
    previous = plan(PointMass(1), None, bounds, portfolio(**settings), seeded()).proposal
    begin: Any = FAMILIES["mixture"].start(bounds, paets(**settings), seeded(1), previous, 1)
    assert torch.equal(begin.mean[:, :, :2], previous.modes()[:, :, 1:])


@dataclasses.dataclass(frozen=True)
class Peaks:
    """A point that is rewarded near one of these places, ``[G, A]``."""

    places: Tensor

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        point = 0.25 * actions.cumsum(2)  # [B, N, H, A]
        distance = (point.unsqueeze(-2) - self.places).norm(dim=-1).amin(-1)
        return 1 - distance.unsqueeze(2) / 2


TWO = Peaks(torch.tensor([[1.4, 1.4], [-1.4, -1.4]]))


def sides(method: Any, seeds: int) -> int:
    """Return in how many of so many problems the distinct plans lead to both peaks."""
    config = method(horizon=12, num_trajectories=200, execute="mean")
    result = plan(TWO, None, Bounds.symmetric(2), config, seeded(5), batch_size=seeds)
    values, components = result.diagnostics.mode_values, result.proposal.components()
    good = (values >= 0.95 * values.amax(-1, keepdim=True)) & (components.weight > 0.05)
    ahead = result.proposal.modes().sum((-1, -2)) > 0
    return int(((good & ahead).any(-1) & (good & ~ahead).any(-1)).sum())


def test_two_equally_good_plans_stay_alive_where_paets_keeps_one() -> None:
    assert sides(portfolio, 30) >= 24
    assert sides(paets, 30) <= 3


def test_one_plan_is_left_where_there_is_one() -> None:
    """And it is as good as that of the cross-entropy method, up to the first iterations."""
    goal, bounds = Peaks(TWO.places[:1]), Bounds.symmetric(2)
    settings: dict[str, Any] = {"horizon": 12, "num_trajectories": 200, "execute": "mean"}
    ours = plan(goal, None, bounds, portfolio(**settings), seeded(0), batch_size=20)
    single = plan(goal, None, bounds, cem(**settings), seeded(0), batch_size=20)
    assert ours.diagnostics.distinct_plans.float().mean() < 1.1
    gained, best = (one.diagnostics.mode_values.amax(-1).mean() for one in (ours, single))
    assert gained > 0.97 * best


def test_problems_of_a_batch_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(1)
    parts = [make(rng), make(rng, alive=torch.tensor([[False, True, True, False]]))]
    tensors = [f.name for f in dataclasses.fields(Portfolio) if f.name not in SHARED]
    together: Any = {name: torch.cat([getattr(one, name) for one in parts]) for name in tensors}
    joined = dataclasses.replace(parts[0], **together)
    noise = draw_noises(1, 2, 30, 3, 2, 0)[0]
    actions, values = joined.sample(noise), torch.tensor(rng.normal(size=(2, 30)))
    refitted = joined.refit_values(actions, values)
    for b, one in enumerate(parts):
        own = dataclasses.replace(
            noise, normal=noise.normal[b : b + 1], uniform=noise.uniform[b : b + 1]
        )
        assert torch.equal(one.sample(own), actions[b : b + 1])
        alone = one.refit_values(actions[b : b + 1], values[b : b + 1])
        for name in tensors:
            torch.testing.assert_close(getattr(refitted, name)[b : b + 1], getattr(alone, name))


SHARED = ("bounds", "floor", "elite_fraction", "waiting", "warm_std", "control_steps")


def test_density_is_that_of_the_mixture_of_shares() -> None:
    rng = np.random.default_rng(2)
    begin = make(rng)
    actions = begin.sample(draw_noises(1, 1, 20, 3, 2, 0)[0])
    found = begin.log_prob(actions)[0].numpy()
    constant = -3 * np.log(2 * np.pi)  # six dimensions
    for k, action in enumerate(actions[0].numpy()):
        terms = [
            begin.weights()[0, m].item()
            * np.exp(log_density(action, begin.mean[0, m].numpy(), begin.std[0, m].numpy()))
            for m in range(4)
        ]
        assert found[k] == pytest.approx(np.log(sum(terms)) + constant)


def test_what_does_not_fit_is_refused() -> None:
    bounds = Bounds.symmetric(2)
    for changes in (
        {"optimality": "exponential"},
        {"expectation": "after"},
        {"entropy_weight": 0.1},
    ):
        with pytest.raises(PlannerError, match="portfolio: each component has its own elites"):
            plan(PointMass(1), None, bounds, portfolio(**changes), seeded())
    with pytest.raises(PlannerError, match="4 components need at least 16 candidates"):
        plan(PointMass(1), None, bounds, portfolio(num_trajectories=15), seeded())
    decaying = portfolio(num_components=8, num_trajectories=500, candidate_decay=0.5)
    with pytest.raises(PlannerError, match="raise num_trajectories or candidate_decay"):
        plan(PointMass(1), None, bounds, decaying, seeded())


@pytest.mark.parametrize("method", [portfolio, member_portfolio])
def test_a_living_mean_is_one_candidate_whatever_the_number_of_warm_candidates(method: Any) -> None:
    """Copies of a mean that are all elites would shrink its component to a point."""
    seen: list[Tensor] = []

    class Recorder(PointMass):
        def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
            seen.append(actions[0])
            return super().imagine(state, actions, generator)

    sizes = {"horizon": 3, "num_components": 2, "num_trajectories": 80, "num_iterations": 3}
    config, bounds = method(**sizes, warm_candidates=5), Bounds.symmetric(2)
    previous = plan(PointMass(2), None, bounds, config, seeded(0)).proposal
    plan(Recorder(2), None, bounds, config, seeded(1), previous=previous)
    begun: Any = FAMILIES[config.proposal].start(bounds, config, seeded(1), previous, 1)
    assert begun.alive.any()
    for mean, alive in zip(begun.modes()[0], begun.alive[0], strict=True):
        assert sum(torch.equal(one, mean) for one in seen[0]) == int(alive)


def test_it_runs_with_every_other_setting() -> None:
    config = portfolio(
        horizon=4,
        num_trajectories=60,
        num_iterations=4,
        candidate_decay=0.7,
        keep_elites=3,
        warm_candidates=5,
        temperature=2.0,
        execute="best",
    )
    previous = None
    for number in range(4):
        result = plan(
            PointMass(3), None, Bounds.symmetric(2), config, seeded(number), previous=previous
        )
        previous = result.proposal
        assert result.action.isfinite().all()
        assert result.action.abs().max() <= 1
        assert 1 <= result.diagnostics.distinct_plans.item() <= 4
