"""Settings of version 0.1: every committed file loads as what it meant when it was written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config
from planet_bayes.config.migrations import (
    _DEFAULTS_0_1,
    _REMOVED_0_1,
    FORMAT,
    migrated,
)
from planet_bayes.errors import ConfigError, PlanetBayesError

ROOT = Path(__file__).parents[1]
COMMITTED = sorted(
    path
    for pattern in (
        "results/**/seed-*.json",
        "trained/**/config.json",
        "agents/**/config.json",
        "tests/data/**/config.json",
    )
    for path in ROOT.glob(pattern)
    if not path.name.endswith(".commits.json")
)
BENCHMARK = next(
    path for name in ("benchmark", "learns") if (path := ROOT / "results" / name).is_dir()
)


def old(**changes: Any) -> Config:
    """Load a configuration of version 0.1 with the given values, the rest left out."""
    return configuration.from_dict(Config, migrated(changes))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def averaged_otherwise(data: dict[str, Any]) -> bool:
    """Return whether a file has images of the suite that this version cannot make."""
    env = data["env"]
    small = env["observation"] == "pixels" and env["image_size"] == 32
    return "format" not in data and small and env.get("oversampling", 1) != 4


@pytest.mark.parametrize("path", COMMITTED, ids=name)
def test_every_committed_file_loads(path: Path) -> None:
    data = json.loads(path.read_text())
    if averaged_otherwise(data) and data["task"] != "toy_reach":
        with pytest.raises(ConfigError, match=r"env\.oversampling is 1 in this file"):
            configuration.load(path)
        return
    config = configuration.load(path)
    assert (config.task, config.seed) == (data["task"], data["seed"])
    if data.get("format") == FORMAT:
        assert json.loads(configuration.to_json(config)) == data
        return
    if "format" in data:
        saved = json.loads(configuration.to_json(config))
        for group, values in data.items():
            if isinstance(values, dict):
                assert {key: saved[group][key] for key in values} == values
        return
    assert config.env.observation == (data["env"]["observation"],)
    assert config.method == data["method"]
    for new, group, key in (
        (config.env.image_size, "env", "image_size"),
        (config.model.deter, "model", "deter"),
        (config.model.dense_units, "model", "vector_units"),
        (config.loss.free_nats, "loss", "free_nats"),
        (config.planner.horizon, "planner", "horizon"),
        (config.collect.episodes, "train", "episodes"),
        (config.learn.learning_rate, "train", "learning_rate"),
        (config.run.replay_ram, "train", "replay_ram"),
    ):
        assert new == data[group][key]


@pytest.mark.parametrize(
    ("components", "elites", "warm"), [(5, 3, 5), (1, 3, 1), (5, 0, 0), (1, 0, 0)]
)
def test_kept_elites_of_format_3_put_in_every_mean(components: int, elites: int, warm: int) -> None:
    planner = {"num_components": components, "keep_elites": elites}
    found = migrated({"format": 3, "planner": planner})
    added = {"warm_candidates": warm, "caution": 0.0, "tail": 1.0}
    assert found["planner"] == {**planner, **added}
    planned = {"planner": {"caution": 0.0, "tail": 1.0}, "offline": ""}
    assert migrated({"format": 4, "planner": {}}) == planned
    added = {"curiosity": 0.0, "curiosity_decay": 1.0}
    assert migrated({"format": 5, "collect": {}}) == {"collect": added, "offline": ""}
    assert migrated({"format": 6, "loss": {}}) == {"loss": {"total_correlation": 0.0}}
    assert old(planner={**planner}).planner.warm_candidates == warm
    assert migrated({"format": FORMAT, "planner": planner}) == {"planner": planner}


def test_files_of_version_0_1_and_of_format_3_are_among_them() -> None:
    formats = [json.loads(path.read_text()).get("format") for path in COMMITTED]
    assert formats.count(None) > 5
    assert formats.count(3) >= 2


def test_a_file_of_format_3_has_particles_of_equal_weights() -> None:
    data = json.loads(configuration.to_json(PRESETS["quick"]))
    del data["agent"], data["planner"]["warm_candidates"], data["model"]["dropout_rate"]
    del data["learn"]["cycle_updates"], data["learn"]["posterior_temperature"]
    del data["planner"]["caution"], data["planner"]["tail"], data["offline"]
    del data["collect"]["curiosity"], data["collect"]["curiosity_decay"]
    del data["loss"]["total_correlation"]
    config = configuration.from_dict(Config, migrated({**data, "format": 3}))
    assert config == PRESETS["quick"]
    assert config.agent.belief == "inference"
    with pytest.raises(ConfigError, match="missing key"):
        configuration.from_dict(Config, migrated(data))


# --- presets


def of_benchmark(observation: str) -> list[Path]:
    found = sorted(BENCHMARK.glob(f"*/*-{observation}/seed-*.json"))
    assert len(found) >= 4
    return found


@pytest.mark.parametrize(
    ("preset", "kind", "since"),
    [("quick", "sensors", {"learn.batch_sharing"}), ("laptop", "pixels", set())],
)
def test_presets_are_the_settings_of_the_benchmark(preset: str, kind: str, since: set[str]) -> None:
    """``since``: what has changed in the preset since the benchmark; its page names it."""
    for path in of_benchmark(kind):
        differing = configuration.differences(configuration.load(path), PRESETS[preset])
        differing = {key for key in differing if not key.startswith("run.")}
        assert differing - {"task", "seed", "collect.episodes"} == since, path


def test_the_defaults_of_version_0_1_are_the_papers() -> None:
    assert old() == Config()
    paper = old(planner={"min_std": 1e-3})
    assert paper == PRESETS["paper"]


# --- single settings


@pytest.mark.parametrize(
    "group", ["env", "model", "loss", "planner", "agent", "collect", "learn", "run"]
)
def test_a_missing_key_has_the_value_of_its_time_and_not_todays_default(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = getattr(old(), group)
    nonsense = tuple(object() for _ in type(before).__init__.__defaults__)
    monkeypatch.setattr(type(before).__init__, "__defaults__", nonsense)
    with pytest.raises((TypeError, PlanetBayesError)):
        type(before)()  # no default of today can be used
    assert getattr(old(), group) == before


@pytest.mark.parametrize("setting", _REMOVED_0_1)
def test_a_removed_setting_with_another_value_is_refused(setting: str) -> None:
    group, key = setting.split(".")
    before = _DEFAULTS_0_1[group][key]
    assert old(**{group: {key: before}}) == old()
    other = (not before) if isinstance(before, bool) else before + 1
    with pytest.raises(ConfigError, match=rf"{re.escape(setting)} was set in this file"):
        old(**{group: {key: other}})


def test_every_setting_of_version_0_1_is_moved_or_removed() -> None:
    """Change each one: the configuration changes, or the file is refused."""
    groups = {key: value for key, value in _DEFAULTS_0_1.items() if isinstance(value, dict)}
    others: dict[str, Any] = {
        "env.observation": "sensors",
        "env.image_size": 64,  # see below
        "env.oversampling": 2,
        "env.sensors": [],
        "model.activation": "elu",
        "model.latent_noise": "mean",
        "model.belief": "mean",
        "loss.kl_balance": 0.5,
        "planner.proposal": "cma",
        "planner.optimality": "exponential",
        "planner.num_candidates": 200,
        "planner.expectation": "after",
        "planner.execute": "mean",
        "train.batch_sharing": "shared",
    }
    unchanged = set()
    for group, values in groups.items():
        for key, value in values.items():
            setting = f"{group}.{key}"
            if setting in others:
                other = others[setting]
            elif isinstance(value, bool):
                other = not value
            elif isinstance(value, int):
                other = value + 2
            else:
                other = value / 2 + 0.01
            single = {"method": "e_only"} if setting == "planner.proposal" else {}
            changes = {group: {key: other, **({"num_components": 1} if single else {})}}
            try:
                if old(**changes, **single) == old(**single):
                    unchanged.add(setting)
            except ConfigError:
                assert setting in {*_REMOVED_0_1, "env.oversampling"}, setting
    # These follow their own tests.
    assert unchanged == {"env.image_size", "env.sensors", "planner.num_candidates"}


@pytest.mark.parametrize(
    ("method", "members", "components"),
    [("planet", 1, 1), ("e_only", 4, 1), ("m_only", 1, 3), ("planet_bayes", 4, 3)],
)
def test_methods_become_members_and_components(method: str, members: int, components: int) -> None:
    found = old(method=method, num_members=4, planner={"num_components": 3})
    assert (found.model.num_members, found.planner.num_components) == (members, components)
    assert found.method == method
    assert found.planner.num_trajectories == 1000


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ConfigError, match="method: 'planet_bays' is not one of planet, e_only"):
        old(method="planet_bays")


def test_trajectories_or_candidates() -> None:
    assert old(num_trajectories=300).planner.num_trajectories == 300
    found = old(num_trajectories=0, num_members=4, planner={"num_candidates": 7})
    assert found.planner.num_trajectories == 28  # seven candidates for four members
    found = old(num_trajectories=0, num_members=4, method="planet", planner={"num_candidates": 7})
    assert found.planner.num_trajectories == 7


@pytest.mark.parametrize(
    ("task", "observation", "size", "oversampling", "accepted"),
    [
        ("cup_catch", "pixels", 32, 4, True),
        ("cup_catch", "pixels", 32, 1, False),
        ("cup_catch", "pixels", 64, 1, True),
        ("cup_catch", "pixels", 64, 4, False),
        ("cup_catch", "sensors", 32, 1, True),
        ("toy_reach", "pixels", 32, 1, True),
        ("toy_reach", "pixels", 32, 4, True),
        ("mine:make", "pixels", 32, 1, True),
    ],
)
def test_images_of_the_suite_were_averaged_as_they_are_now(
    task: str, observation: str, size: int, oversampling: int, accepted: bool
) -> None:
    env = {"observation": observation, "image_size": size, "oversampling": oversampling}
    if accepted:
        assert old(task=task, env=env).env.image_size == size
    else:
        with pytest.raises(ConfigError, match=rf"oversampling is {oversampling} in this file"):
            old(task=task, env=env)


def test_sensors_are_kept() -> None:
    found = old(env={"observation": "sensors", "sensors": [2, 0]})
    assert found.env.observation == ("sensors",)
    assert found.env.sensors == (2, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tsk": "x"}, "unknown key 'tsk'"),
        ({"train": {"episdes": 3}}, r"unknown key 'train\.episdes'"),
        ({"model": []}, r"model: expected a table, got \[\]"),
        ({"env": None}, "env: expected a table, got None"),
        ({"method": []}, "method: expected a value like 'planet_bayes'"),
        ({"task": {}}, "task: expected a value like 'cup_catch'"),
        ({"num_members": "a"}, "num_members: expected a value like 5"),
        ({"planner": {"num_candidates": None}}, r"planner\.num_candidates: expected a value"),
        ({"train": {"learning_rate": 10**400}}, "too large"),
        ({"train": {"learning_rate": "fast"}}, r"train\.learning_rate: expected a value"),
        ({"loss": {"kl_balance": "a"}}, r"loss\.kl_balance: expected a value"),
        ({"format": 8}, "format 8; this version reads the formats 7, 6, 5, 4, 3 and 0.1"),
        ({"format": 5, "offline": ""}, "unknown key 'offline' before format 6"),
        (
            {"format": 6, "loss": {"total_correlation": 0.0}},
            "unknown key 'loss.total_correlation' in format 6",
        ),
        ({"format": 5, "collect": {"curiosity": 1}}, r"unknown key 'collect\.curiosity' in"),
        ({"format": 4, "planner": {"tail": 0.5}}, r"unknown key 'planner\.tail' in format 4"),
        ({"format": 3, "model": {"dropout_rate": 0.2}}, r"unknown key 'model\.dropout_rate'"),
        ({"format": 3, "learn": {"ema_decay": 0.0}}, "missing key"),
        ({"format": "3"}, "format '3'; this version reads"),
        ({"format": 3, "agent": {}}, "unknown key 'agent' in a configuration of format 3"),
    ],
)
def test_damaged_files_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(changes))
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        configuration.load(path)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"'])
def test_a_file_that_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="expected a table"):
        configuration.load(path)
