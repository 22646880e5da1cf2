"""The README, the examples and the shipped agent are run here, so that they stay true."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planet_bayes import cli, runs
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.models import Vector
from planet_bayes.results.confidence import tables as tables_of_confidence
from planet_bayes.results.experiment import read_experiment
from planet_bayes.results.tables import table
from planet_bayes.spaces import ACTION_SPACES, Signature
from tiny_run import TINY, replaced

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
NOTES = sorted((ROOT / "results").rglob("README.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *NOTES]


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.S)


def test_the_readmes_planner_runs(capsys: pytest.CaptureFixture) -> None:
    (block,) = [block for block in python_blocks(README) if "class Cart" in block]
    exec(block, {})
    assert "tensor([[" in capsys.readouterr().out


def test_the_planner_tutorial_runs_and_looks_at_a_plan_around_the_post() -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "plan-with-your-own-model.md").read_text()
    names: dict[str, Any] = {}
    for block in python_blocks(tutorial):
        exec(block, names)
        if "found" in names and "sideways" not in names:
            (means,) = names["components"].mean  # [M, H, A]
            names["sideways"] = 0.5 * means[..., 1].cumsum(-1)
    assert (names["sideways"].abs().amax(-1) > 0.4).all()  # the radius of the post is 0.5


def test_the_action_space_of_contributing_is_registered_and_saved() -> None:
    (block,) = [one for one in python_blocks(CONTRIBUTING) if "class LogBox" in one]
    names: dict[str, Any] = {}
    try:
        exec(block, names)
        signature = Signature({"joints": Vector(2)}, names["LogBox"]((0.1,), (10.0,)))
        assert Signature.from_json(signature.to_json()) == signature
    finally:
        ACTION_SPACES.pop("log_box", None)
    assert signature.action.to_native(np.array([0.0])) == pytest.approx([1.0])


def test_the_planner_example_keeps_both_ways_with_paets_only(
    capsys: pytest.CaptureFixture,
) -> None:
    runpy.run_path(str(ROOT / "examples" / "plan_in_your_own_model.py"))
    cem, paets = capsys.readouterr().out.split("paets:")
    assert len({"left", "right"} & set(cem.split())) == 1
    assert {"left", "right"} <= set(paets.split())


def test_the_example_environment_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    env = make_env("examples.own_env:make", EnvConfig(observation=("state",)))
    observation, _ = env.reset(seed=0)
    assert observation["state"].shape == (1,)
    cold = sum(float(env.step([-1.0])[1]) for _ in range(100))
    env.reset(seed=0)
    warm = sum(float(env.step([-0.7])[1]) for _ in range(100))
    assert warm > cold  # heating helps


def test_the_example_with_a_camera_and_joints_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = replaced(
        TINY,
        task="examples.camera_and_sensors:make",
        env={"observation": ("camera", "joints"), "image_size": 32, "max_steps": 8},
        model={"image_depth": 2},
        collect={"episodes": 0},
    )
    run = runs.load_run(runs.train(config, tmp_path / "run")[0])
    shapes = {name: part.shape for name, part in run.agent.signature.observation.items()}
    assert shapes == {"camera": (32, 32, 3), "joints": (2,)}


def test_the_trained_agent_that_comes_along_swings_the_pole_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its example is run; random actions return about 130."""
    example = runpy.run_path(str(ROOT / "examples" / "control_with_a_trained_agent.py"))
    assert example["main"]() > 700
    assert "ms for each action" in capsys.readouterr().out


def test_a_fallback_earns_more_after_the_motor_has_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "fall_back_on_alarm.py"))
    found = example["main"]()
    assert found["with fallback"] > found["agent alone"]
    assert "alarm at step None" not in capsys.readouterr().out


def test_the_trained_agent_is_calibrated() -> None:
    agent = runs.load_run(ROOT / "agents" / "cartpole_swingup").agent
    assert agent.monitor is not None
    assert agent.monitor.calibration is not None
    assert agent.monitor.calibration.episodes == 20


def test_the_tables_of_confidence_are_those_of_the_files() -> None:
    page = (ROOT / "docs" / "results" / "confidence.md").read_text()
    for part in tables_of_confidence(ROOT / "results" / "confidence").split("\n\n"):
        assert part in page


def test_the_trained_agent_is_small_and_loads_without_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [path for path in (ROOT / "agents").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix not in (".mp4", ".html")) < 4e6

    def refuse(*words: object) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.setattr("planet_bayes.envs.make.make_env", refuse)
    run = runs.load_run(ROOT / "agents" / "cartpole_swingup")
    assert run.trained_episodes == 60
    assert run.warnings == ()


def test_the_readmes_results_are_those_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line that `planet-bayes table` prints. One setting is not today's, and it is named."""
    assert cli.main(["table", str(ROOT / "experiments" / "benchmark.toml")]) == 0
    printed = capsys.readouterr().out
    rows = table(ROOT / "results" / "benchmark")
    assert printed.startswith(rows)
    lines = README.splitlines()
    for row in rows.splitlines():
        assert row in lines
    others = re.findall(r"^- `([^`]*)`", printed.removeprefix(rows), re.M)
    assert others == ["--learn.batch-sharing shared"]
    assert "members shared one batch" in README


def test_the_notes_have_the_table_of_the_ablation() -> None:
    experiment = read_experiment(ROOT / "experiments" / "preset-ablations.toml")
    assert table(experiment.results) in (experiment.results / "README.md").read_text()


def test_marked_tables_are_what_their_commands_print() -> None:
    """`make tables` would change nothing."""
    tables = runpy.run_path(str(ROOT / "scripts" / "tables.py"))
    marked = tables["pages"]()
    assert marked
    for path in marked:
        assert tables["renewed"](path.read_text()) == path.read_text(), path.relative_to(ROOT)


def test_figures_of_results_are_what_their_files_give() -> None:
    """`make tables` would draw nothing else, to the last bit."""
    tables = runpy.run_path(str(ROOT / "scripts" / "tables.py"))
    found = tables["figures"]()
    assert found
    for folder, paths in found.items():
        for path, picture in tables["drawn"](folder, paths).items():
            assert picture == path.read_bytes(), path.relative_to(ROOT)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_link_targets_exist_in_a_checkout(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_links_out_of_the_documentation_become_links_in_the_site() -> None:
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    text = "[a](../../CONTRIBUTING.md#a-modality) ![b](../../results/benchmark/curves.png)"
    assert hooks["site_links"](text, "how-to") == (
        "[a](../development/contributing.md#a-modality) ![b](../images/benchmark-curves.png)"
    )
    assert hooks["site_links"]("[c](../CHANGELOG.md)", "") == "[c](development/changelog.md)"


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.parent.name)
def test_commands_in_the_notes_are_commands(path: Path) -> None:
    found = re.findall(r"^planet-bayes (\w+)|`planet-bayes (\w+)", path.read_text(), re.M)
    assert found
    for names in found:
        assert cli.find(names[0] or names[1]) is not None, names
