"""Agents whose particles have weights: they act alone and in batches, and plan by their weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model_building import (
    ACTIONS,
    BOTH,
    VECTOR,
    Modalities,
    build,
    kinds,
    make_observations,
    seeded,
)
from model_building import signature as make_signature
from planet_bayes import runs
from planet_bayes.agent import Agent
from planet_bayes.config import PRESETS, AgentConfig, Config
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModelConfig
from planet_bayes.planner import PlannerConfig
from planet_bayes.training.build import build_agent
from planet_bayes.training.collect import collect_episode
from planet_bayes.training.evaluation import evaluate_agent
from tiny_run import TINY, replaced

WEIGHTED = ("importance", "particle_filter")
weighted = pytest.mark.parametrize("belief", WEIGHTED)
PLANNER = PlannerConfig(
    horizon=3, num_trajectories=24, num_iterations=2, num_components=2, elite_fraction=0.3
)


def make_agent(belief: Any, modalities: Modalities = VECTOR, latents: int = 6) -> Agent:
    config = Config(planner=PLANNER, agent=AgentConfig(belief, latents))
    return build_agent(config, build(3, modalities), make_signature(modalities))


@kinds
@weighted
def test_it_acts_alone_and_in_batches(belief: str, modalities: Modalities) -> None:
    agent, latents = make_agent(belief, modalities), 1 if belief == "importance" else 6
    for size in (1, 3):
        views, actions = make_observations(modalities, size, 1), []
        for _ in range(2):
            carry = agent.initial(size)
            for step in range(3):
                action, carry, seen = agent.act(carry, views, seeded(step))
            actions.append(action)
        assert np.array_equal(actions[0], actions[1])  # the same generator, the same actions
        assert action.shape == (size, ACTIONS)
        assert seen.returns.shape == (size, 8, 3)  # one latent of each member is planned from
        assert carry.particles is not None
        assert carry.particles.log_weights.shape == (size, 3, latents)
        torch.testing.assert_close(carry.particles.member_weights.sum(-1), torch.ones(size))
        assert (carry.particles.member_weights.std(-1) > 0).all()


@weighted
def test_plans_are_valued_by_the_weights(belief: str) -> None:
    agent = make_agent(belief)
    carry, views = agent.initial(2), make_observations(VECTOR, 2, 1)
    for step in range(4):
        _, carry, seen = agent.act(carry, views, seeded(step))
    assert carry.particles is not None
    weights = carry.particles.member_weights.numpy()
    values = np.stack([np.average(seen.returns[b].numpy(), -1, weights[b]) for b in range(2)])
    np.testing.assert_allclose(seen.best_return[:, -1].numpy(), values.max(-1), rtol=1e-5)


@weighted
def test_environments_do_not_see_each_other(belief: str) -> None:
    agent = make_agent(belief, BOTH)
    views, others = (make_observations(BOTH, 3, seed) for seed in (1, 2))
    results = []
    for given in (views, [views[0], others[1], views[2]]):
        carry = agent.initial(3)
        for step in range(3):
            action, carry, _ = agent.act(carry, given, seeded(step))
        assert carry.particles is not None
        results.append((action, carry.particles.log_weights))
    assert np.array_equal(results[0][0][[0, 2]], results[1][0][[0, 2]])
    assert torch.equal(results[0][1][[0, 2]], results[1][1][[0, 2]])
    assert not torch.equal(results[0][1][1], results[1][1][1])


def test_without_weights_it_is_the_agent_as_before() -> None:
    agent, plain = make_agent("inference"), Agent(build(3), make_signature(VECTOR), PLANNER)
    assert agent.belief_filter is None
    views = make_observations(VECTOR, 1, 1)
    carries = [one.initial() for one in (agent, plain)]
    for step in range(3):
        results = [
            one.act(carry, views, seeded(step))
            for one, carry in zip((agent, plain), carries, strict=True)
        ]
        carries = [carry for _, carry, _ in results]
        assert np.array_equal(results[0][0], results[1][0])
    assert carries[0].particles is None


@pytest.mark.parametrize("overlap", [False, True])
@weighted
def test_it_learns_collects_evaluates_and_loads(belief: str, overlap: bool, tmp_path: Path) -> None:
    agent: dict[str, Any] = {"belief": belief, "latent_particles": 5}
    config = replaced(TINY, agent=agent, collect={"episodes": 1, "overlap": overlap})
    folder, _ = runs.train(config, tmp_path / "run")
    run = runs.load_run(folder)
    assert run.config.agent == AgentConfig(**agent)
    assert run.agent.belief_filter is not None
    with run.make_env() as env:
        first, again = (collect_episode(run.config, env, run.agent, 9) for _ in range(2))
    assert np.array_equal(first.episode.action, again.episode.action)
    returns = [evaluate_agent(run.config, run.agent, 2, 0) for _ in range(2)]
    assert returns[0] == returns[1]
    assert np.isfinite(returns[0]).all()


@weighted
def test_the_mean_of_the_posterior_has_no_weights(belief: Any) -> None:
    with pytest.raises(ConfigError, match=rf"agent\.belief {belief} .* set --model\.belief sample"):
        Config(model=ModelConfig(belief="mean"), agent=AgentConfig(belief))
    Config(model=ModelConfig(belief="sample"), agent=AgentConfig(belief))


def test_every_preset_has_equal_weights() -> None:
    assert {config.agent.belief for config in PRESETS.values()} == {"inference"}
