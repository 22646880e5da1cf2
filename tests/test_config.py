"""Configuration: presets, methods, files, and refusal of what is not there."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from planet_bayes import config as configuration
from planet_bayes.config import (
    ABLATION,
    PRESETS,
    AgentConfig,
    CollectConfig,
    Config,
    LearnConfig,
    RunConfig,
    from_dict,
    preset_config,
)
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, PlanetBayesError, RunError
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig, check_config
from tiny_run import replaced


def test_the_paper_preset_has_the_papers_numbers() -> None:
    paper = PRESETS["paper"]
    assert configuration.differences(paper, Config()) == {"planner.min_std"}
    assert not paper.model.normalise
    assert (paper.collect.seed_episodes, paper.learn.first_updates) == (5, 0)
    assert (paper.learn.agent_weight, paper.learn.onset_share) == (1, 0)
    assert paper.run.evaluate_last == 0
    planner = paper.planner
    assert (planner.candidate_decay, planner.keep_elites) == (1, 0)
    candidates = planner.num_trajectories // paper.model.num_members
    assert (paper.model.num_members, planner.num_components, candidates) == (5, 5, 200)
    assert (planner.horizon, planner.num_iterations, planner.elite_fraction) == (12, 10, 0.1)
    assert (planner.temperature, planner.entropy_weight, planner.initial_std) == (1.0, 0.0, 0.5)
    assert (planner.execute, planner.expectation) == ("sample", "before")
    assert (paper.model.deter, paper.model.stoch, paper.model.hidden) == (200, 30, 200)
    assert (paper.learn.batch_size, paper.learn.sequence_length) == (50, 50)
    assert paper.learn.batch_sharing == "own"
    assert (paper.loss.free_nats, paper.loss.reward_scale, paper.loss.kl_balance) == (3, 10, None)
    assert paper.env.observation == ("pixels",)


# --- methods


PLANETS_OWN_PLANNER = {
    *("planner.proposal", "planner.warm_start", "planner.initial_std", "planner.execute"),
}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_methods_differ_in_e_and_m_at_equal_trajectories(preset: str) -> None:
    sizes, original = {}, PRESETS[preset]
    for method in ABLATION:
        config = preset_config(preset, method)
        assert config.method == method
        sizes[method] = (config.model.num_members, config.planner.num_components)
        assert config.planner.num_trajectories == original.planner.num_trajectories
        changed = {"model.num_members", "planner.num_components"}
        if preset in ("small", "paper") and method == "planet":
            changed |= PLANETS_OWN_PLANNER
            assert configuration.differences(config, original) == changed
        assert configuration.differences(config, original) <= changed
    assert sizes == {"planet": (1, 1), "e_only": (5, 1), "m_only": (1, 5), "planet_bayes": (5, 5)}


def test_planet_in_paper_plans_as_its_authors_code_does() -> None:
    """Cold start at mean 0 and std 1, one Gaussian, the mean is executed."""
    planner = preset_config("paper", "planet").planner
    assert (planner.proposal, planner.num_components) == ("gaussian", 1)
    assert (planner.warm_start, planner.initial_std, planner.execute) == (False, 1.0, "mean")
    assert (planner.num_trajectories, planner.num_iterations, planner.horizon) == (1000, 10, 12)
    assert (planner.elite_fraction, planner.warm_candidates, planner.keep_elites) == (0.1, 0, 0)
    with pytest.raises(ConfigError, match="unknown preset 'papr'; did you mean 'paper'"):
        preset_config("papr")


def test_methods_that_settings_cannot_have() -> None:
    with pytest.raises(ConfigError, match="unknown method 'planet_bays'; did you mean 'planet_b"):
        Config().with_method("planet_bays")
    planet = Config().with_method("planet")
    assert planet.with_method("planet") == planet
    for name in ("e_only", "m_only", "planet_bayes"):
        with pytest.raises(ConfigError, match=rf"method {name} needs more .*num_members is 1"):
            planet.with_method(name)
    with pytest.raises(ConfigError, match="method planet_bayes needs more"):
        Config().with_method("e_only").with_method("planet_bayes")


@pytest.mark.parametrize(
    ("members", "components", "method"),
    [(1, 1, "planet"), (2, 1, "e_only"), (1, 3, "m_only"), (7, 2, "planet_bayes")],
)
def test_the_method_follows_from_members_and_components(
    members: int, components: int, method: str
) -> None:
    config = replaced(
        Config(), model={"num_members": members}, planner={"num_components": components}
    )
    assert config.method == method


# --- files


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_configuration_survives_its_file(preset: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for env in (
        EnvConfig(("sensors",), sensors=(1, 2)),
        EnvConfig(("camera=pixels", "joints=sensors", "wrist=wrist_rgb"), image_size=32, blur=3),
    ):
        config = dataclasses.replace(PRESETS[preset], env=env)
        configuration.save(config, path)
        assert configuration.load(path) == config
        assert json.loads(path.read_text())["format"] == configuration.migrations.FORMAT


def test_every_value_survives_its_file(tmp_path: Path) -> None:
    """Change each setting in turn to another value of its type."""
    path = tmp_path / "config.json"
    groups = [field.name for field in dataclasses.fields(Config)]
    count = 0
    for group in groups:
        values = getattr(Config(), group)
        if not dataclasses.is_dataclass(values):
            continue
        for field in dataclasses.fields(values):
            value = getattr(values, field.name)
            if isinstance(value, bool):
                other: Any = not value
            elif isinstance(value, int | float):
                other = value + 2 if value >= 1 else value / 2 + 0.2
                other = int(other) + (value == 0) if isinstance(value, int) else other
            else:
                continue
            try:
                config = replaced(Config(), **{group: {field.name: other}})
            except PlanetBayesError:
                continue
            configuration.save(config, path)
            assert configuration.load(path) == config != Config(), field.name
            count += 1
    assert count > 45


PLAIN: dict[str, Any] = json.loads(configuration.to_json(Config()))
LEAVES = [
    (group, key) if isinstance(values, dict) else (group,)
    for group, values in PLAIN.items()
    if group != "format"
    for key in (values if isinstance(values, dict) else [""])
]


def read(data: Any, folder: Path) -> Config:
    path = folder / "config.json"
    path.write_text(json.dumps(data))
    return configuration.load(path)


@pytest.mark.parametrize("leaf", LEAVES, ids=".".join)
def test_a_file_of_this_format_has_every_key(leaf: tuple[str, ...], tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    if len(leaf) == 2:
        del data[leaf[0]][leaf[1]]
    else:
        del data[leaf[0]]
    with pytest.raises(ConfigError, match=rf"config\.json: missing key '{'.'.join(leaf)}'"):
        read(data, tmp_path)


def test_a_file_of_this_format_has_every_group(tmp_path: Path) -> None:
    assert read(PLAIN, tmp_path) == Config()
    for group in ("env", "model", "loss", "planner", "agent", "collect", "learn", "run"):
        data = {key: value for key, value in PLAIN.items() if key != group}
        with pytest.raises(ConfigError, match=f"missing key '{group}'"):
            read(data, tmp_path)


@pytest.mark.parametrize(
    ("group", "key", "value", "message"),
    [
        ("", "tsk", "x", "unknown key 'tsk'; did you mean 'task'"),
        ("", "method", "planet", "unknown key 'method'"),
        ("collect", "episdes", 3, r"'collect\.episdes'; did you mean 'episodes'"),
        ("env", "oversampling", 4, r"unknown key 'env\.oversampling'"),
        ("collect", "episodes", "3", r"collect\.episodes: expected int, got '3'"),
        ("collect", "episodes", True, r"collect\.episodes: expected int, got True"),
        ("collect", "episodes", 3.0, r"collect\.episodes: expected int, got 3\.0"),
        ("collect", "exploration", True, r"collect\.exploration: expected float"),
        ("collect", "overlap", 1, r"collect\.overlap: expected bool"),
        ("learn", "batch_sharing", "shard", "did you mean 'shared'"),
        ("learn", "learning_rate", 10**400, r"learn\.learning_rate: the number is too large"),
        ("model", "posterior", 3, r"model\.posterior: expected str"),
        ("", "env", [], "expected a table"),
        ("", "run", None, "expected a table"),
        ("env", "sensors", 3, "expected a list"),
        ("env", "sensors", [0.5], "expected int"),
        ("env", "observation", "pixels", "expected a list"),
        ("env", "observation", [3], "expected str"),
        ("loss", "kl_balance", "a", "expected float"),
        ("planner", "proposal", "mixtur", "did you mean 'mixture'"),
    ],
)
def test_loading_is_strict(group: str, key: str, value: Any, message: str, tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    (data[group] if group else data)[key] = value
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        read(data, tmp_path)
    del data["format"]
    with pytest.raises(ConfigError, match=message):
        from_dict(Config, data)


def test_whole_numbers_are_floats_too(tmp_path: Path) -> None:
    data = copy.deepcopy(PLAIN)
    data["learn"]["agent_weight"] = 3
    weight = read(data, tmp_path).learn.agent_weight
    assert (weight, type(weight)) == (3.0, float)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    for text in (b"{", b"\xff", b"[" * 100_000):
        (tmp_path / "config.json").write_bytes(text)
        with pytest.raises(RunError, match=r"config\.json"):
            configuration.load(tmp_path / "config.json")
    with pytest.raises(RunError, match=r"nothing\.json"):
        configuration.load(tmp_path / "nothing.json")
    assert PLAIN["loss"]["kl_balance"] is None


def test_differences_are_dotted_names() -> None:
    other = replaced(Config(), seed=1, env={"blur": 3}, run={"device": "cpu"})
    assert configuration.differences(Config(), Config()) == set()
    assert configuration.differences(Config(), other) == {"seed", "env.blur", "run.device"}


# --- values


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModelConfig(num_members=0),
        lambda: replaced(Config(), model={"num_members": 1}, planner={"caution": 1.0}),
        lambda: replaced(Config(), model={"num_members": 1}, planner={"tail": 0.5}),
        lambda: Config(seed=-1),
        lambda: Config(planner=PlannerConfig(num_trajectories=3)),
        lambda: Config(planner=PlannerConfig(proposal="mixtur")),
        lambda: Config(planner=PlannerConfig(optimality="treshold")),
        lambda: Config(learn=LearnConfig(batch_size=3, batch_sharing="split")),
        lambda: Config(model=ModelConfig(deter=10**12)),
        lambda: AgentConfig(belief="exact"),  # type: ignore[arg-type]
        lambda: AgentConfig(latent_particles=0),
        lambda: LearnConfig(batch_size=0),
        lambda: LearnConfig(sequence_length=0),
        lambda: LearnConfig(batch_sharing="shard"),  # type: ignore[arg-type]
        lambda: LearnConfig(updates_per_episode=-1),
        lambda: LearnConfig(first_updates=-1),
        lambda: LearnConfig(agent_weight=0.0),
        lambda: LearnConfig(agent_weight=float("inf")),
        lambda: LearnConfig(onset_share=1.1),
        lambda: LearnConfig(onset_share=-0.1),
        lambda: LearnConfig(learning_rate=0.0),
        lambda: LearnConfig(learning_rate=float("nan")),
        lambda: LearnConfig(ema_decay=1.0),
        lambda: LearnConfig(ema_decay=-0.1),
        lambda: CollectConfig(seed_episodes=0),
        lambda: CollectConfig(episodes=-1),
        lambda: CollectConfig(exploration=-0.1),
        lambda: CollectConfig(exploration=float("nan")),
        lambda: CollectConfig(absorbing_steps=-1),
        lambda: RunConfig(replay_ram=float("inf")),
        lambda: RunConfig(replay_ram=0.0),
        lambda: RunConfig(threads=99999999999),
        lambda: RunConfig(threads=-1),
        lambda: RunConfig(checkpoint_every=0),
        lambda: RunConfig(keep_checkpoints=0),
        lambda: RunConfig(evaluation_episodes=0),
        lambda: RunConfig(evaluate_every=-1),
        lambda: RunConfig(evaluate_last=-1),
        lambda: RunConfig(video_every=-1),
        lambda: ModelConfig(deter=0),
        lambda: ModelConfig(activation="gelu"),  # type: ignore[arg-type]
        lambda: LossConfig(decode_fraction=0.0),
        lambda: LossConfig(free_nats=float("nan")),
        lambda: LossConfig(kl_balance=1.5),
    ],
)
def test_values_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_trajectories_are_shared_among_the_members() -> None:
    for trajectories in (35, 39):
        config = Config(planner=PlannerConfig(num_trajectories=trajectories))
        assert config.planner.num_trajectories // config.model.num_members == 7


@pytest.mark.parametrize("components", [1, 2, 5, 1000])
def test_the_default_parts_of_the_planner_need_no_check(components: int) -> None:
    """`Config` does not look them up, since that would load PyTorch."""
    check_config(PlannerConfig(num_components=components))
    with pytest.raises(ConfigError, match=r"planner\.num_components is 2, but"):
        Config(planner=PlannerConfig(proposal="gaussian", num_components=2))
