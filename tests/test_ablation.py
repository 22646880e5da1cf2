"""The comparison of methods follows from the files under results/ alone."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from planet_bayes import cli
from planet_bayes.errors import RunError
from planet_bayes.results import ablation, figures, statistics
from planet_bayes.results.contrast import contrast
from planet_bayes.results.curves import Cost, Curve, RunName, read_curves

HEADER = "episode,train_return,evaluation_return,cpu_minutes,steps\n"


def curve(method: str, seed: int, evaluations: list[float], task: str = "cup_catch") -> Curve:
    count = len(evaluations)
    train = [10.0 * seed + index for index in range(count)]
    minutes = [6.0 * (index + 1) for index in range(count)]
    return Curve(
        RunName(method, task, "sensors", seed),
        list(range(count)),
        [*train],
        [*evaluations],
        minutes,
        [250 * (index + 1) for index in range(count)],
    )


def write(folder: Path, one: Curve) -> None:
    path = folder / one.run.path.with_name(f"{one.run.path.name}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = one.episode, one.train_return, one.evaluation_return, one.cpu_minutes, one.steps
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text(HEADER + "\n".join(rows) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for method, mean in {"planet_bayes": 800, "planet": 600}.items():
        for task, seed in itertools.product(("cup_catch", "walker_run"), range(4)):
            returns = list(mean + 100 * rng.standard_normal() + rng.standard_normal(12))
            write(tmp_path, curve(method, seed, returns, task))
    level = {"mean": 14.0, "std": 1.0}
    both = {"random": level, "zero": level}
    (tmp_path / "baselines.json").write_text(json.dumps({"cup_catch": both, "walker_run": both}))
    return tmp_path


def test_the_last_ten_trials_count() -> None:
    curves = [curve("planet", 0, [1000.0, *range(10)]), curve("planet", 1, [4.0] * 10)]
    values = np.array([*range(10), *[4.0] * 10])
    mean, std = statistics.mean_and_std(curves)
    assert mean == pytest.approx(values.sum() / 20)
    assert std == pytest.approx(np.sqrt(((values - values.mean()) ** 2).sum() / 20))
    np.testing.assert_allclose(statistics.run_means(curves), [4.5, 4.0])


def test_a_run_without_trials_does_not_count() -> None:
    empty = Curve(RunName("planet", "cup_catch", "sensors", 1), [0], [1.0], [None], [1.0], [250])
    assert len(statistics.run_means([empty])) == 0
    assert np.isnan(statistics.mean_and_std([empty])[0])


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16])
def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side(count: int) -> None:
    values = np.random.default_rng(count).standard_normal(count)
    middle = np.sort(values)[count // 4 : count - count // 4]
    assert statistics.interquartile_mean(values) == pytest.approx(middle.sum() / len(middle))


def test_the_probability_of_improvement_counts_pairs() -> None:
    left, right = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in left for b in right]
    assert statistics.probability_of_improvement(left, right) == pytest.approx(sum(pairs) / 6)
    assert statistics.probability_of_improvement(left, left) == 0.5


def test_intervals_are_those_of_resampling_within_tasks() -> None:
    rng = np.random.default_rng(1)
    left = {task: rng.normal(1.0, 0.3, 4) for task in "abc"}
    right = {task: rng.normal(0.8, 0.3, 4) for task in "abc"}
    found = statistics.improvement(left, right)
    drawn = []
    for _ in range(4000):
        wins = []
        for task in "abc":
            one, other = (side[task][rng.integers(4, size=4)] for side in (left, right))
            wins.append(np.mean([a > b for a in one for b in other]))
        drawn.append(np.mean(wins))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.03)
    assert found.high == pytest.approx(high, abs=0.03)
    assert found.low < found.value < found.high
    assert found == statistics.improvement(left, right)  # the same on every call


@pytest.mark.parametrize("counts", [(1,), (2, 4), (1, 1, 2), (3, 3), (3, 8, 4), (4, 4, 4, 4)])
def test_intervals_contain_their_value_and_need_three_runs_of_each_task(
    counts: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(sum(counts))
    means = {str(task): rng.normal(task, 0.3, count) for task, count in enumerate(counts)}
    others = {task: rng.normal(size=len(values)) for task, values in means.items()}
    for found in (statistics.aggregate_iqm(means), statistics.improvement(means, others)):
        if min(counts) < 3:
            assert np.isnan([found.low, found.high]).all()
        else:
            assert found.low <= found.value <= found.high
            assert found.low < found.high


def test_the_paper_s_layout_is_beside_the_paper_s_numbers(folder: Path) -> None:
    lines = ablation.ablation(folder).splitlines()
    assert lines[0] == "| method | `cup_catch` | `walker_run` | hours of one core |"
    groups = read_curves(folder)
    mean, std = statistics.mean_and_std(groups["planet_bayes", "cup_catch", "sensors"])
    assert lines[2].startswith(f"| `planet_bayes` | {mean:.0f} ± {std:.0f} (4) |")
    assert lines[2].endswith("| 1.20 |")
    assert lines[5] == "| *planet, the paper's, from pixels* | *719 ± 325* | *845 ± 131* |  |"


def test_methods_are_compared_by_task_and_over_tasks(folder: Path) -> None:
    lines = ablation.ablation(folder).split("\n\n")[1].splitlines()
    assert lines[0] == (
        "| runs of each | IQM, `planet_bayes` | IQM, `planet` | P(`planet_bayes` > `planet`) |"
    )
    groups = read_curves(folder)
    runs = {
        method: {
            task: (statistics.run_means(groups[method, task, "sensors"]) - 14) / (best - 14)
            for task, best in {"cup_catch": 842, "walker_run": 1099}.items()
        }
        for method in ("planet_bayes", "planet")
    }
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert cells[0] == "2 tasks (8)"
    assert cells[1] == str(statistics.aggregate_iqm(runs["planet_bayes"]))
    assert cells[3] == str(statistics.improvement(runs["planet_bayes"], runs["planet"]))


def test_methods_are_compared_on_the_seeds_that_all_have(tmp_path: Path) -> None:
    """Equal methods are equal, whatever runs are missing."""
    level = {"random": {"mean": 0.0, "std": 1.0}}
    both = {"cup_catch": level, "cheetah_run": level}
    (tmp_path / "baselines.json").write_text(json.dumps(both))
    for task, seed in itertools.product(both, range(5)):
        value = [seed * (80.0 if task == "cup_catch" else 500.0)] * 10
        first, second = curve("planet_bayes", seed, value, task), curve("planet", seed, value, task)
        if seed < 4 or task == "cup_catch":
            write(tmp_path, first)
        if seed < 4 or task == "cheetah_run":
            write(tmp_path, second)
    for line in ablation.ablation(tmp_path).split("\n\n")[1].splitlines()[2:]:
        title, one, other, probability = (cell.strip() for cell in line.strip("|").split("|"))
        assert title.endswith("(8)" if "tasks" in title else "(4)")
        assert one == other
        assert probability.startswith("0.50")


def test_tasks_without_random_actions_are_refused(folder: Path) -> None:
    write(folder, curve("planet_bayes", 0, [5.0], "pendulum_swingup"))
    with pytest.raises(
        RunError, match=r"no random actions for pendulum_swingup\. Write it: planet"
    ):
        ablation.ablation(folder)


def test_the_whole_method_is_compared_with_each_part(folder: Path) -> None:
    write(folder, curve("e_only", 0, [500.0]))
    titles = ablation.ablation(folder).split("\n\n")[1].splitlines()[0]
    assert titles.split("|")[-3:-1] == [
        " P(`planet_bayes` > `e_only`) ",
        " P(`planet_bayes` > `planet`) ",
    ]


def test_differences_are_of_the_same_seeds(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, curve("planet_bayes", seed, [500.0 + 100 * seed] * 10))
    for seed in (2, 0, 5):
        write(tmp_path, curve("planet", seed, [100.0 * seed**2] * 10))
    level = {"random": {"mean": 0.0, "std": 1.0}}
    (tmp_path / "baselines.json").write_text(json.dumps({"cup_catch": level}))
    interval = statistics.mean_over_tasks([np.array([500.0, 300.0]) / 842])
    assert ablation.ablation(tmp_path).split("\n\n")[2].splitlines() == [
        "| same seeds (pairs) | `planet_bayes` − `planet` |",
        "|---|---|",
        f"| `cup_catch` | {interval} (2) |",
    ]
    assert interval.value == pytest.approx(400 / 842)


def test_the_interval_of_one_task_is_student_s() -> None:
    values = np.random.default_rng(3).normal(size=4)
    found = statistics.mean_over_tasks([values])
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], [low, high])


def test_intervals_over_tasks_contain_the_truth_in_95_of_100_cases() -> None:
    """Four seeds of four tasks whose spreads differ."""
    rng = np.random.default_rng(4)
    inside = []
    for _ in range(4000):
        samples = [rng.normal(0.0, std, 4) for std in (1, 2, 3, 8)]
        found = statistics.mean_over_tasks(samples)
        inside.append(found.low <= 0 <= found.high)
    assert 0.93 <= np.mean(inside) <= 0.98


def test_the_mean_over_tasks_weighs_tasks_and_not_runs() -> None:
    found = statistics.mean_over_tasks([np.array([1.0, 3.0]), np.array([6.0])])
    assert found.value == 4.0
    assert np.isnan(found.low)
    equal = statistics.mean_over_tasks([np.array([1.0, 1.0]), np.array([2.0, 2.0])])
    assert (equal.low, equal.high) == (1.5, 1.5)


def test_tasks_of_one_method_only_are_not_compared(folder: Path) -> None:
    write(folder, curve("planet_bayes", 0, [5.0], "finger_spin"))
    levels = json.loads((folder / "baselines.json").read_text())
    levels["finger_spin"] = levels["cup_catch"]
    (folder / "baselines.json").write_text(json.dumps(levels))
    lines = ablation.ablation(folder).split("\n\n")[1].splitlines()
    row = next(line for line in lines if "finger_spin" in line)
    assert row.endswith("|  |  |")
    assert lines[-1].startswith("| 2 tasks (8) |")


def test_a_band_is_over_seeds_and_the_last_episodes() -> None:
    curves = [curve("planet", seed, [0.0] * 8) for seed in range(3)]
    episodes, bands = figures.comparison_band(curves, "episodes", {})
    hours, _ = figures.comparison_band(curves, "hours", {})
    values = [10.0 * seed + index for seed in range(3) for index in range(3, 8)]
    np.testing.assert_allclose(bands[:, 7], np.percentile(values, [5, 50, 95]))
    np.testing.assert_allclose(bands[1, 0], 10.0)
    np.testing.assert_allclose(episodes, np.arange(8))
    np.testing.assert_allclose(hours, 0.1 * np.arange(1, 9))
    costs = {curves[0].run.group: Cost(random_step=0.036, step=0.36, update=3.6)}
    curves = [dataclasses.replace(one, updates=[10 * n for n in range(8)]) for one in curves]
    common, _ = figures.comparison_band(curves, "hours", costs)
    np.testing.assert_allclose(common, 0.0025 + (0.025 + 0.01) * np.arange(8))


def test_hours_are_at_common_costs_where_these_are_known(folder: Path) -> None:
    """Those of the CSV files are of the machines that made them."""
    groups = {"cup_catch-sensors": 1.0, "walker_run-sensors": 3.0}
    seconds = {
        method: {
            body: {"random_step": 0.0, "step": factor * per_step, "update": 0.0}
            for body, per_step in groups.items()
        }
        for method, factor in {"planet_bayes": 2.0, "planet": 1.0}.items()
    }
    (folder / "costs.json").write_text(json.dumps({"seconds": seconds}))
    lines = ablation.ablation(folder).splitlines()
    # 11 episodes of 250 steps after the first row, a mean of 2 s a step over both tasks.
    assert lines[2].endswith(f"| {2 * 2 * 11 * 250 / 3600:.2f} |")
    assert lines[3].endswith(f"| {2 * 11 * 250 / 3600:.2f} |")
    assert cli.main(["figures", str(folder)]) == 0
    del seconds["planet"]["walker_run-sensors"]
    (folder / "costs.json").write_text(json.dumps({"seconds": seconds}))
    with pytest.raises(RunError, match=r"costs.json has no costs of planet on walker_run-sensors"):
        ablation.ablation(folder)


def test_table_and_figures_from_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(ablation.ablation(folder))
    assert cli.main(["figures", str(folder)]) == 0
    names = [f"{stem}.{kind}" for stem in FIGURES for kind in ("png", "svg")]
    paths = [folder / name for name in names]
    assert capsys.readouterr().out.split() == [str(path) for path in paths]
    before = [path.read_bytes() for path in paths if path.suffix == ".svg"]
    assert cli.main(["figures", str(folder)]) == 0
    assert before == [path.read_bytes() for path in paths if path.suffix == ".svg"]


FIGURES = ("curves", "methods-episodes", "methods-hours")


def test_a_folder_of_one_method_is_not_compared(tmp_path: Path) -> None:
    write(tmp_path, curve("planet_bayes", 0, [1.0]))
    assert not ablation.compares_methods(tmp_path)
    write(tmp_path, curve("e_only", 0, [1.0]))
    assert ablation.compares_methods(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another experiment, of one method and seeds 1 to 4 of one task."""
    for seed in range(1, 5):
        write(tmp_path / "other", curve("planet", seed, [100.0 * seed] * 12, "walker_run"))
    return tmp_path / "other"


def test_two_experiments_are_compared_on_the_same_seeds(
    folder: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", str(folder), "--against", str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [f"`{name}` − `planet` of other" for name in ("planet_bayes", "planet")]
    assert lines[0] == f"| same seeds (pairs) | {' | '.join(titles)} |"
    assert len(lines) == 3  # the cup has no run in the other experiment
    cells = []
    for method in ("planet_bayes", "planet"):
        curves = read_curves(folder)[method, "walker_run", "sensors"]
        by_seed = {one.run.seed: np.mean(one.evaluations[-10:]) for one in curves}
        gains = np.array([by_seed[seed] - 100.0 * seed for seed in (1, 2, 3)]) / (1099 - 14)
        half = stats.t.ppf(0.975, 2) * gains.std(ddof=1) / np.sqrt(3)
        mean = gains.mean()
        cells.append(f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}] (3)")
    assert lines[2] == f"| `walker_run` | {' | '.join(cells)} |"


def test_experiments_without_a_common_seed_are_not_compared(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", curve("planet", 9, [1.0]))
    with pytest.raises(RunError, match="no runs of the same task, observation and seed"):
        contrast(folder, tmp_path / "other")
