"""Tables and figures follow from the files under results/ alone."""

import dataclasses
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from planet_bayes import cli
from planet_bayes import config as configuration
from planet_bayes.config import PRESETS
from planet_bayes.errors import RunError
from planet_bayes.results import curves, figures, tables
from planet_bayes.results.curves import Curve, RunName

RUN = RunName("planet_bayes", "cup_catch", "sensors", 0)
HEADER = "episode,steps,train_return,evaluation_return,cpu_minutes\n"


def write(folder: Path, run: RunName, *evaluations: str) -> None:
    path = folder / run.path.with_name(f"{run.path.name}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{number},{100 * number},1,{value},0.5" for number, value in enumerate(evaluations)]
    path.write_text(HEADER + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    "run",
    [RUN, RunName("planet", "Pendulum-v1", "state", 12), RunName("m_only", "a", "pixels+state", 1)],
)
def test_a_run_s_name_is_read_from_its_path(run: RunName) -> None:
    assert RunName.of(Path("results") / run.path.with_name(f"{run.path.name}.csv")) == run
    assert RunName.of(Path("results") / run.path.with_name(f"{run.path.name}.json")) == run


@pytest.mark.parametrize("path", ["seed-0.csv", "a/b/seed-0.csv", "a/b-c/seed-x.csv"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(RunError, match="expected <method>/<task>-<observation>"):
        RunName.of(Path(path))


def test_figures_are_made_from_the_files_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "planet_bayes" / "some_task-sensors"
    folder.mkdir(parents=True)
    (folder / "seed-0.csv").write_text(HEADER + "0,100,10,,0.5\n1,200,,30,1.5\n")
    level = {"mean": 5.0, "std": 1.0}
    (tmp_path / "baselines.json").write_text(
        json.dumps({"some_task": {"random": level, "zero": level}})
    )
    curve = curves.read_curve(folder / "seed-0.csv")
    assert curve.train_return == [10.0, None]
    assert curve.evaluation_return == [None, 30.0]
    assert curve.evaluations == [30.0]
    assert curve.steps == [100, 200]
    assert all(path.stat().st_size > 5000 for path in figures.draw_curves(tmp_path))
    assert cli.main(["figures", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'curves.png'}\n{tmp_path / 'curves.svg'}\n"
    row = "| `some_task` | sensors | 30 (30, 30) of 1 | 1 | 0.0 | 5 ± 1 | 5 ± 1 |"
    assert tables.table(tmp_path).splitlines()[-1] == row
    with pytest.raises(RunError, match="no curves"):
        figures.draw_curves(tmp_path / "planet_bayes")


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_legend_covers_no_curve(count: int) -> None:
    figure = Figure(figsize=figures.PANEL_INCHES)
    axes = figure.subplots()
    runs = [RunName("planet", "some_task", "sensors", seed) for seed in range(count)]
    flat = [Curve(one, [0, 9], [7.0, 7.0], [None, 7.0], [1.0, 2.0], [1, 2]) for one in runs]
    figures.draw_panel(axes, runs[0].group, flat, {})
    figure.tight_layout()
    figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == count
    lowest = axes.transData.inverted().transform(legend.get_window_extent())[0, 1]
    assert 7 < lowest < 10


def test_a_result_is_the_median_of_the_last_ten_evaluations() -> None:
    values: list[float | None] = [1000.0, None, *(float(value) for value in range(10)), None]
    curve = Curve(RUN, list(range(13)), [], values, [0.0] * 13, [0] * 13)
    assert tables.Result.of(curve) == tables.Result(4.5, 0.0, 9.0, 10)
    none: list[float | None] = [None]
    assert tables.Result.of(Curve(RUN, [0], [], none, [0.0], [0])).count == 0


def test_methods_are_a_column_where_there_are_several(tmp_path: Path) -> None:
    write(tmp_path, RUN, "10")
    assert tables.table(tmp_path).splitlines()[0].startswith("| task |")
    write(tmp_path, dataclasses.replace(RUN, method="planet"), "20")
    lines = tables.table(tmp_path).splitlines()
    assert lines[0].startswith("| method | task |")
    assert lines[2].startswith("| `planet` | `cup_catch` | sensors | 20 (20, 20) of 1 |")
    assert lines[3].startswith("| `planet_bayes` | `cup_catch` | sensors | 10 (10, 10) of 1 |")


def test_variants_are_rows_and_tasks_columns(tmp_path: Path) -> None:
    cartpole = dataclasses.replace(RUN, task="cartpole_swingup")
    write(tmp_path / "no-ema", RUN, "10", "", "20.4")
    write(tmp_path / "baseline", cartpole, "30", "40")
    write(tmp_path / "baseline", dataclasses.replace(cartpole, seed=1), "50", "")
    write(tmp_path / "baseline", RUN, "", "")
    (tmp_path / "README.md").write_text("not a variant")
    assert tables.table(tmp_path).splitlines() == [
        "| variant | `cartpole_swingup` | `cup_catch` |",
        "|---|---|---|",
        "| baseline | 40, 50 | nan |",
        "| no-ema |  | 20 |",
    ]


def test_variants_differ_from_the_first_declared_one_on_the_same_seeds(tmp_path: Path) -> None:
    for seed, without, curious in ((0, "10", "13"), (1, "20", "27"), (2, "30", "")):
        run = dataclasses.replace(RUN, seed=seed)
        write(tmp_path / "without", run, without)
        write(tmp_path / "curiosity", run, curious)
    write(tmp_path / "alone", dataclasses.replace(RUN, seed=9), "5")
    # Student's interval of 3 and 7: t(0.975, 1) = 12.706 times a standard error of 2.
    assert "| curiosity − without | 5 [-20, 30] |" in tables.table(
        tmp_path, ["without", "curiosity", "alone"]
    )
    assert "alone −" not in tables.table(tmp_path, ["without", "curiosity", "alone"])
    assert "−" not in tables.table(tmp_path)  # which one is the reference is not known


def test_settings_that_are_not_a_presets_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "planet_bayes" / "cup_catch-sensors"
    folder.mkdir(parents=True)
    quick = PRESETS["quick"]
    other = dataclasses.replace(
        quick,
        env=dataclasses.replace(quick.env, blur=3),  # nothing to blur
        model=dataclasses.replace(quick.model, normalise=False),
        planner=dataclasses.replace(quick.planner, keep_elites=0),
        collect=dataclasses.replace(quick.collect, episodes=7),
        learn=dataclasses.replace(quick.learn, ema_decay=0.5),
        run=dataclasses.replace(quick.run, evaluate_every=3),
    )
    same = dataclasses.replace(quick, task="cup_catch", seed=1).with_method("m_only")
    for seed, config in enumerate((other, same, other)):
        configuration.save(config, folder / f"seed-{seed}.json")
        write(tmp_path, dataclasses.replace(RUN, seed=seed), "1")
    unlike = (
        "- `--learn.ema-decay 0.5 --model.no-normalise --planner.keep-elites 0`: `cup_catch` from "
        "sensors, seed 0; `cup_catch` from sensors, seed 2"
    )
    assert tables.unlike_presets(tmp_path) == unlike
    assert cli.main(["table", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(tables.table(tmp_path))
    assert output.endswith(f"Unlike today's presets:\n\n{unlike}\n")
