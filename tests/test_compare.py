"""Several agents on the same starts: the same figures as of each alone, in one page."""

from pathlib import Path

import numpy as np
import pytest

from explaining import NEEDS_BROWSER, PIXELS, SENSORS, browser, trained
from planet_bayes import cli, runs
from planet_bayes.data.folder import labels
from planet_bayes.diagnostics.explain import comparison, html
from planet_bayes.diagnostics.explain.images import unpacked
from tiny_run import replaced


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run with two members, and one from pixels whose episodes are shorter."""
    folder = tmp_path_factory.mktemp("compare")
    quick = replaced(SENSORS, collect={"episodes": 0})
    single = replaced(
        quick, seed=4, model={"num_members": 1}, planner={"num_components": 1}, run={"threads": 1}
    )
    return trained(quick, folder / "two"), trained(single, folder / "one")


@pytest.fixture(scope="module")
def page(folders: tuple[Path, Path]) -> Path:
    target = folders[0].parent / "compare.html"
    words = ["compare", *map(str, folders), "--episodes", "3", "--output", str(target)]
    assert cli.main(words) == 0
    return target


def test_all_agents_have_the_same_starts(page: Path, folders: tuple[Path, Path]) -> None:
    made = html.figures(page.read_text())
    first, second = made["runs"]
    assert [first["run"], second["run"]] == ["two", "one"]
    assert [first["method"], second["method"]] == ["planet_bayes", "planet"]
    starts = [unpacked(run["vectors"][0]["real"])[0] for run in (first, second)]
    assert np.array_equal(*starts)
    for facts, known, folder in zip(made["runs"], made["returns"], folders, strict=True):
        assert len(known["values"]) == 3
        assert known["values"][0] == pytest.approx(facts["return"], rel=1e-5)
        assert known["mean"] == pytest.approx(np.mean(known["values"]))
        assert known["std"] == pytest.approx(np.std(known["values"]))
        run = runs.load_run(folder, device="cpu")
        assert comparison.start_returns(run, 3) == known["values"]


def test_runs_that_cannot_be_compared_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(folders[0])
    for words, message in (
        ([one], "name 2 to 4 runs, got 1"),
        ([one] * 5, "name 2 to 4 runs, got 5"),
        ([one, one, "--episodes", "0"], "episodes must be at least 1"),
        ([one, str(tmp_path)], "is not a run folder"),
        ([one, str(trained(PIXELS, tmp_path / "pixels"))], "env.max_steps is 24"),
    ):
        assert cli.main(["compare", *words]) == 2
        assert message in capsys.readouterr().err


def test_runs_are_named_after_what_differs() -> None:
    def named(*paths: str) -> list[str]:
        return labels([Path(path) for path in paths])

    assert named("a/one", "b/two") == ["one", "two"]
    assert named("runs/planet/cup/seed-1", "runs/planet_bayes/cup/seed-1") == [
        "planet",
        "planet_bayes",
    ]
    assert named("a/x/c/seed-1", "a/y/d/seed-1") == ["x/c", "y/d"]
    assert named("a/seed-1", "a/seed-1") == ["seed-1 (1)", "seed-1 (2)"]


@NEEDS_BROWSER
def test_one_slider_moves_all_columns(page: Path) -> None:
    made = html.figures(page.read_text())
    with browser(viewport={"width": 1200, "height": 900}) as shown:
        shown.open(page)
        for step in (0, 7):
            shown.get(f"page.moveTo({step})")
            shown.until(f"page.rendered === {step}")
            for index, run in enumerate(made["runs"]):
                expected = unpacked(run["plans"]["mean"])[step, 0, :, 0].clip(-1, 1)
                drawn = shown.trace(f"actions-{index}", "component 1")
                assert drawn == pytest.approx(expected.tolist(), abs=1e-6)
                imagined = unpacked(run["vectors"][0]["imagined"])[step, 0, :, 0]
                fan = shown.trace(f"fan-{index}", "member 1")
                assert fan[1:] == pytest.approx(imagined.tolist(), abs=1e-6)
                place = f"document.getElementById('confidence-{index}').layout"
                assert shown.get(f"{place}.shapes[0].x0") == step
        shown.press("ArrowRight", 8)
        race = shown.trace("race", "one")
        rewards = unpacked(made["runs"][1]["reward"]).cumsum(dtype=np.float64)
        assert race == pytest.approx(rewards.tolist(), rel=1e-5, abs=1e-6)
        assert shown.page.locator("#returns tr").count() == 3
        shown.page.set_viewport_size({"width": 390, "height": 800})
        shown.until("document.documentElement.scrollWidth <= 390")
        assert shown.complaints == []
        assert shown.outside == []
