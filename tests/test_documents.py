"""What the README and the examples say is run here, so that it stays true."""

import dataclasses
import json
import re
import runpy
from pathlib import Path

import pytest

from planet_bayes import config as configuration
from planet_bayes.config import PRESETS, Config
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.experiments import figures, summary

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_readmes_planner_runs(capsys: pytest.CaptureFixture) -> None:
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "class Cart" in b]
    exec(block, {})
    assert "tensor([[" in capsys.readouterr().out


def test_the_planner_example_keeps_both_ways_with_paets_only(
    capsys: pytest.CaptureFixture,
) -> None:
    runpy.run_path(str(ROOT / "examples" / "plan_in_your_own_model.py"))
    cem, paets = capsys.readouterr().out.split("paets:")
    assert len({"left", "right"} & set(cem.split())) == 1
    assert {"left", "right"} <= set(paets.split())


def test_the_example_environment_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    env = make_env("examples.own_env:make", EnvConfig("state"))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (1,)
    cold = sum(float(env.step([-1.0])[1]) for _ in range(100))
    env.reset(seed=0)
    warm = sum(float(env.step([-0.7])[1]) for _ in range(100))
    assert warm > cold  # heating helps


def test_the_readmes_presets_are_the_codes() -> None:
    for name, config in PRESETS.items():
        (line,) = [row for row in README.splitlines() if row.startswith(f"| `{name}` |")]
        assert f"{config.model.deter} / {config.model.stoch}" in line
        planner = config.resolved_planner
        numbers = (config.num_trajectories, planner.horizon, planner.num_iterations)
        assert " × ".join(map(str, numbers)) in line
        if config.env.observation == "pixels":
            assert f"{config.env.image_size}×{config.env.image_size} pixels" in line


def images(env: EnvConfig) -> str:
    """Return how an image is made, as the README says it."""
    means = [f"{n} × {n}" if n > 1 else "off" for n in (env.oversampling, env.blur)]
    return ", ".join(dict.fromkeys(means))


def departures(config: Config) -> dict[str, str]:
    """Return what a preset's column says, by the row's first name."""
    train, planner, model = config.train, config.planner, config.model
    batch = f"{train.batch_size} × {train.sequence_length}"
    execute = {"mean": "the mean", "sample": "a sample"}[planner.execute]
    names = {"elu": "ELU", "relu": "ReLU"}[model.activation]
    pixels = config.env.observation == "pixels"
    depths = f"{model.image_depth}, {model.decoder_depth or model.image_depth}"
    kl = f"{config.loss.kl_balance}" if config.loss.kl_balance else "3 nats free"
    return {
        "model.normalise": "on" if model.normalise else "off",
        "train.seed_episodes": f"{train.seed_episodes}, {train.first_updates or 'as later'}",
        "train.updates_per_episode": f"{train.updates_per_episode} of {batch}",
        "train.agent_weight": f"{train.agent_weight:g}",
        "train.onset_share": f"{train.onset_share:g}" if train.onset_share else "by chance",
        "train.batch_sharing": {"shared": "all", "own": "each its own"}[train.batch_sharing],
        "loss.kl_balance": kl,
        "loss.decode_fraction": f"{config.loss.decode_fraction:g}".replace("1", "all"),
        "env.oversampling": images(config.env) if pixels else "",
        "train.learning_rate": f"{train.learning_rate:g}",
        "train.averaging": f"{train.averaging:g}" if train.averaging else "off",
        "model.latent_noise": {
            "shared": "one for all",
            "independent": "each candidate its own",
            "mean": "none",
        }[model.latent_noise],
        "model.belief": {"sample": "a sample", "mean": "the mean"}[model.belief],
        "planner.initial_std": f"{planner.initial_std:g}, {execute}",
        "planner.candidate_decay": f"{planner.candidate_decay:g}",
        "planner.keep_elites": f"{planner.keep_elites or 'none'}",
        "planner.min_std": f"{planner.min_std:g}",
        "model.activation": names,
        "model.image_bits": f"{model.image_bits}" if pixels else "",
        "model.image_depth": f"{depths}, {model.image_layers or 'none'}" if pixels else "",
    }


@pytest.mark.parametrize("name", departures(PRESETS["paper"]))
def test_the_readmes_departures_are_those_of_the_presets(name: str) -> None:
    (line,) = [row for row in README.splitlines() if row.startswith(f"| `{name}`")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == [departures(PRESETS[preset])[name] for preset in PRESETS]


def test_figures_are_made_from_the_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "planet_bayes" / "some_task-sensors"
    folder.mkdir(parents=True)
    (folder / "seed-0.csv").write_text(
        "episode,train_return,evaluation_return,cpu_minutes\n0,10,,0.5\n1,,30,1.5\n"
    )
    level = {"mean": 5.0, "std": 1.0}
    (tmp_path / "baselines.json").write_text(
        json.dumps({"some_task": {"random": level, "zero": level}})
    )
    curve = figures.read_curve(folder / "seed-0.csv")
    assert curve.train_return == [10.0, None]
    assert curve.evaluation_return == [None, 30.0]
    assert figures.main(tmp_path).stat().st_size > 5000
    row = "| `some_task` | sensors | 30 (30, 30) of 1 | 1 | 0.0 | 5 ± 1 | 5 ± 1 |"
    assert summary.table(tmp_path).splitlines()[-1] == row
    with pytest.raises(SystemExit, match="no curves"):
        figures.main(tmp_path / "planet_bayes")


def test_a_result_is_the_median_of_the_last_ten_evaluations() -> None:
    values: list[float | None] = [1000.0, None, *(float(value) for value in range(10)), None]
    curve = figures.Curve("0", list(range(13)), [], values, [0.0] * 13)
    assert summary.result(curve) == (4.5, 0.0, 9.0, 10)
    none: list[float | None] = [None]
    assert summary.result(figures.Curve("0", [0], [], none, [0.0]))[-1] == 0


def test_the_trained_agent_that_comes_along_swings_the_pole_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its example is run; random actions return about 130."""
    example = runpy.run_path(str(ROOT / "examples" / "control_with_a_trained_agent.py"))
    assert example["main"]() > 700
    assert "ms for each action" in capsys.readouterr().out


def test_the_trained_agent_is_small() -> None:
    files = [path for path in (ROOT / "trained").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix != ".mp4") < 4e6


def test_the_readmes_results_are_those_of_the_files() -> None:
    folder = ROOT / "results" / "learns"
    for row in [*summary.table(folder).splitlines(), *summary.unlike(folder).splitlines()]:
        assert row in README


def test_settings_that_are_not_a_presets_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "planet_bayes" / "cup_catch-sensors"
    folder.mkdir(parents=True)
    quick = PRESETS["quick"]
    other = dataclasses.replace(
        quick,
        env=dataclasses.replace(quick.env, blur=3),  # nothing to blur
        planner=dataclasses.replace(quick.planner, keep_elites=0),
        train=dataclasses.replace(quick.train, averaging=0.5, episodes=7),
    )
    same = dataclasses.replace(quick, task="cup_catch", seed=1)
    for seed, config in enumerate((other, same, other)):
        configuration.save(config, folder / f"seed-{seed}.json")
    assert summary.unlike(tmp_path) == (
        "- `--planner.keep-elites 0 --train.averaging 0.5`: `cup_catch` from sensors, seed 0; "
        "`cup_catch` from sensors, seed 2"
    )


def test_what_the_readme_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
