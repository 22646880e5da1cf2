"""Configuration: presets, methods, and refusal of what is not there."""

import dataclasses
import json
from pathlib import Path

import pytest

from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config, TrainConfig, from_dict
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig


def test_the_paper_preset_has_the_papers_numbers() -> None:
    paper = PRESETS["paper"]
    assert configuration.differences(paper, Config()) == {"planner.min_std"}
    assert not paper.model.normalise
    assert (paper.train.seed_episodes, paper.train.first_updates) == (5, 0)
    assert (paper.train.agent_weight, paper.train.onset_share) == (1, 0)
    assert paper.train.evaluate_last == 0
    planner = paper.planner
    assert (planner.candidate_decay, planner.noise_colour, planner.keep_elites) == (1, 0, 0)
    planner = paper.resolved_planner
    assert (paper.members, planner.num_components, planner.num_candidates) == (5, 5, 200)
    assert (planner.horizon, planner.num_iterations, planner.elite_fraction) == (12, 10, 0.1)
    assert (planner.temperature, planner.entropy_weight, planner.initial_std) == (1.0, 0.0, 0.5)
    assert (planner.execute, planner.expectation) == ("sample", "before")
    assert (paper.model.deter, paper.model.stoch, paper.model.hidden) == (200, 30, 200)
    assert (paper.train.batch_size, paper.train.sequence_length) == (50, 50)
    assert paper.train.batch_sharing == "own"
    assert (paper.loss.free_nats, paper.loss.reward_scale, paper.loss.kl_balance) == (3, 10, None)
    assert paper.env.observation == "pixels"


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_methods_differ_in_e_and_m_only_at_equal_trajectories(preset: str) -> None:
    sizes = {}
    for method in configuration.METHODS:
        config = dataclasses.replace(PRESETS[preset], method=method)
        planner = config.resolved_planner
        sizes[method] = (config.members, planner.num_components)
        assert planner.num_candidates * config.members == PRESETS[preset].num_trajectories
        same = dataclasses.replace(
            planner,
            num_components=PRESETS[preset].planner.num_components,
            num_candidates=PRESETS[preset].planner.num_candidates,
        )
        assert same == PRESETS[preset].planner
    assert sizes == {"planet": (1, 1), "e_only": (5, 1), "m_only": (1, 5), "planet_bayes": (5, 5)}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_configuration_survives_its_file(preset: str, tmp_path: Path) -> None:
    config = dataclasses.replace(
        PRESETS[preset], env=configuration.EnvConfig("sensors", sensors=(1, 2))
    )
    configuration.save(config, tmp_path / "config.json")
    assert configuration.load(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"tsk": "x"}, "unknown key 'tsk'; did you mean 'task'"),
        ({"train": {"episdes": 3}}, r"'train\.episdes'; did you mean 'episodes'"),
        ({"train": {"episodes": "3"}}, r"train\.episodes: expected int"),
        ({"train": {"episodes": True}}, r"train\.episodes: expected int"),
        ({"method": "planet_bays"}, "did you mean 'planet_bayes'"),
        ({"env": []}, "expected a table"),
        ({"env": {"sensors": 3}}, "expected a list"),
        ({"loss": {"kl_balance": "a"}}, "expected float"),
    ],
)
def test_loading_is_strict(data: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Config, data)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"config\.json"):
        configuration.load(tmp_path / "config.json")
    saved = json.loads(configuration.to_json(Config()))
    assert saved["loss"]["kl_balance"] is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Config(num_members=0),
        lambda: Config(seed=-1),
        lambda: Config(num_trajectories=3),
        lambda: Config(num_trajectories=100, planner=PlannerConfig(num_candidates=7)),
        lambda: Config(planner=PlannerConfig(proposal="mixtur")),
        lambda: Config(planner=PlannerConfig(optimality="treshold")),
        lambda: Config(train=TrainConfig(batch_size=3, batch_sharing="split")),
        lambda: TrainConfig(batch_size=0),
        lambda: TrainConfig(batch_sharing="shard"),
        lambda: TrainConfig(replay_ram=float("inf")),
        lambda: Config(threads=99999999999),
        lambda: TrainConfig(learning_rate=0.0),
        lambda: TrainConfig(averaging=1.0),
        lambda: TrainConfig(averaging=-0.1),
        lambda: TrainConfig(learning_rate=float("nan")),
        lambda: ModelConfig(deter=0),
        lambda: ModelConfig(min_std=0.0),
        lambda: ModelConfig(activation="gelu"),
        lambda: LossConfig(decode_fraction=0.0),
        lambda: LossConfig(free_nats=float("nan")),
        lambda: LossConfig(kl_balance=1.5),
    ],
)
def test_values_out_of_range_are_refused(make) -> None:
    with pytest.raises(ConfigError):
        make()


def test_candidates_can_be_set_directly() -> None:
    config = Config(num_trajectories=0, planner=PlannerConfig(num_candidates=7))
    assert config.resolved_planner.num_candidates == 7
