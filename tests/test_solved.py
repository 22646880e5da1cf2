"""Steps until a task is solved follow from the files under results/ alone."""

from pathlib import Path

import numpy as np
import pytest

from planet_bayes import cli
from planet_bayes.errors import ConfigError
from planet_bayes.results import figures, statistics
from planet_bayes.results.curves import Curve, RunName, read_curves
from planet_bayes.results.experiment import read_experiment
from planet_bayes.results.solved import Solved, solved_table

HEADER = "episode,steps,train_return,evaluation_return,cpu_minutes\n"
EXPERIMENT = """
folder = "few"
preset = "quick"
observations = ["sensors"]
tasks = ["cup_catch", "cheetah_run"]
seeds = [0, 1, 2]

[variants.without]

[variants.with]
collect.curiosity = 1.0

[solved]
cup_catch = 800
"""


def curve(*evaluations: float | None) -> Curve:
    count = len(evaluations)
    steps = [250 * (index + 1) for index in range(count)]
    run = RunName("planet_bayes", "cup_catch", "sensors", 0)
    return Curve(run, list(range(count)), [None] * count, [*evaluations], [1.0] * count, steps)


def declared(tmp_path: Path, text: str = EXPERIMENT) -> Path:
    path = tmp_path / "experiments" / "few.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def archive(tmp_path: Path, variant: str, seed: int, task: str, *evaluations: float | None) -> None:
    name = RunName("planet_bayes", task, "sensors", seed)
    path = tmp_path / "results" / "few" / variant / name.path.with_name(f"seed-{seed}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{index},{250 * (index + 1)},1,{'' if value is None else value},1"
        for index, value in enumerate(evaluations)
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n")


def test_the_first_evaluation_that_reaches_the_level_counts() -> None:
    assert Solved.of(curve(None, 700, None, 800, 900), 800) == Solved(1000, True)
    assert Solved.of(curve(None, 700, 799.9, None), 800) == Solved(750, False)
    assert [str(Solved(750, reached)) for reached in (True, False)] == ["750", "> 750"]


def test_steps_of_each_seed_and_differences_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = declared(tmp_path)
    for seed, late in enumerate((2, 1, 2)):
        archive(tmp_path, "without", seed, "cup_catch", *[0.0] * late, *[900] * (3 - late))
    archive(tmp_path, "with", 0, "cup_catch", 900, 0)
    archive(tmp_path, "with", 1, "cup_catch", 0, 0)
    archive(tmp_path, "with", 0, "cheetah_run", 900)
    assert cli.main(["table", str(path)]) == 0
    # Up to 500 steps: 500, 500, 500 without; 250, 500 with. The differences are -250 and 0.
    one, other = (
        statistics.mean_over_tasks([np.array(values)]) for values in ([250.0, 500.0], [-250.0, 0.0])
    )
    # All evaluations: 300, 600, 300 without; 450, 0 with. The differences are 150 and -600.
    means, gains = (
        statistics.mean_over_tasks([np.array(values)]).text(0)
        for values in ([300.0, 600.0, 300.0], [150.0, -600.0])
    )
    printed = capsys.readouterr().out.splitlines()
    assert printed[-5:] == [
        "| mean of all evaluations | `cup_catch` |",
        "|---|---|",
        f"| without | {means} (3) |",
        "| with | 225 [-2634, 3084] (2) |",
        f"| with − without | {gains} (2) |",
    ]
    assert printed[-11:-6] == [
        "| steps until | `cup_catch` ≥ 800 |",
        "|---|---|",
        "| without | 750, 500, 750; 3 of 3, mean up to 500: 500 [500, 500] |",
        f"| with | 250, > 500; 1 of 2, mean up to 500: 375 [{one.low:.0f}, {one.high:.0f}] |",
        f"| with − without | -125 [{other.low:.0f}, {other.high:.0f}] |",
    ]


def test_what_no_run_solved_has_no_difference(tmp_path: Path) -> None:
    for seed in range(3):
        archive(tmp_path, "without", seed, "cup_catch", 0, 0)
        archive(tmp_path, "with", seed, "cup_catch", 0, 900)
    table = solved_table(tmp_path / "results" / "few", ["with", "without"], {"cup_catch": 800})
    assert table.splitlines()[2:] == [
        "| with | 500, 500, 500; 3 of 3, mean up to 500: 500 [500, 500] |",
        "| without | > 500, > 500, > 500; 0 of 3 |",
        "| without − with |  |",
    ]


@pytest.mark.parametrize("command", ["table", "figures"])
def test_without_a_result_the_command_that_makes_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = declared(tmp_path)
    assert cli.main([command, str(path)]) == 2
    assert f"Train them: planet-bayes sweep {path}" in capsys.readouterr().err.replace("\n", "")


def test_one_evaluation_cannot_say_when_and_one_seed_has_no_interval(tmp_path: Path) -> None:
    archive(tmp_path, "without", 0, "cup_catch", 0, 900)
    archive(tmp_path, "with", 0, "cup_catch", None, 900)
    lines = solved_table(
        tmp_path / "results" / "few", ["without", "with", "missing"], {"cup_catch": 800}
    ).splitlines()
    assert lines[2:] == ["| without | 500; 1 of 1, mean up to 500: 500 |"]
    only = solved_table(tmp_path / "results" / "few", ["with"], {"cup_catch": 800})
    assert only.splitlines()[2:] == []


def test_the_band_is_over_seeds_at_each_evaluation(tmp_path: Path) -> None:
    for seed, values in enumerate(([None, 1, None, 5], [None, 3, None, 6], [None, 8, None, None])):
        archive(tmp_path, "without", seed, "cup_catch", *values)
    groups = read_curves(tmp_path / "results" / "few" / "without")
    across, bands = figures.evaluation_band(groups["planet_bayes", "cup_catch", "sensors"])
    np.testing.assert_allclose(across, [500])
    np.testing.assert_allclose(bands[:, 0], np.percentile([1, 3, 8], [5, 50, 95]))


def test_variants_have_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for variant in ("without", "with"):
        archive(tmp_path, variant, 0, "cup_catch", 10, 20)
    archive(tmp_path, "with", 0, "cheetah_run", None)  # no panel
    folder = tmp_path / "results" / "few"
    assert cli.main(["figures", str(declared(tmp_path))]) == 0
    names = [str(folder / f"variants.{kind}") for kind in ("png", "svg")]
    assert capsys.readouterr().out.splitlines() == names
    drawn = (folder / "variants.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in ("with (1)", "without (1)"))
    assert "cup_catch" in drawn
    assert "cheetah" not in drawn


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("cup_catch = 800", "cup_cat = 800", "no run has the task 'cup_cat'; did you mean"),
        ("cup_catch = 800", 'cup_catch = "all"', "solved.cup_catch must be a return, got 'all'"),
        ("cup_catch = 800", "cup_catch = true", "solved.cup_catch must be a return, got True"),
        ("[variants.without]", "", "none is declared"),
    ],
)
def test_mistakes_in_solved_are_told(tmp_path: Path, before: str, after: str, message: str) -> None:
    text = EXPERIMENT.replace(before, after)
    if not after:
        text = text.replace("[variants.with]\ncollect.curiosity = 1.0", "")
    with pytest.raises(ConfigError, match=message):
        read_experiment(declared(tmp_path, text))
