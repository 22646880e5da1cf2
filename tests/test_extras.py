"""Where an extra is not installed, one sentence says which."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from planet_bayes import cli, runs
from planet_bayes.config import Config
from planet_bayes.extras import EXTRAS
from test_architecture import MODULES, imports
from tiny_run import replaced

ROOT = Path(__file__).parent.parent


def sentence(module: str, extra: str) -> str:
    return (
        f"{module} is not installed; it belongs to the extra [{extra}]. From a checkout: "
        f'pip install ".[{extra}]".'
    )


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Block the modules of an extra."""
    modules = EXTRAS[request.param]
    loaded = [name for name in sys.modules if name.partition(".")[0] in modules]
    for name in (*modules, *loaded):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = replaced(tiny, collect={"episodes": 0})
    return runs.train(config, tmp_path_factory.mktemp("extras") / "run")[0]


@pytest.mark.parametrize("module", ["rich", "tyro", "gymnasium"])
def test_without_train_every_command_says_so(module: str, tmp_path: Path) -> None:
    """In a process of its own, where none of it is loaded."""
    names = ["train"] if module == "gymnasium" else list(cli.summaries())
    if module == "tyro":
        names.remove("tasks")  # it has no options
    code = (
        f"import sys; sys.modules[{module!r}] = None; from planet_bayes import cli; "
        f"print([cli.main([name, '--task', 'toy_reach']) for name in {names!r}])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stderr == f"error: {sentence(module, 'train')}\n" * len(names)
    assert result.stdout == f"{[2] * len(names)}\n"


@pytest.mark.parametrize("without", ["results"], indirect=True)
@pytest.mark.usefixtures("without")
def test_figures_without_matplotlib(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figures", str(ROOT / "results" / "benchmark")]) == 2
    assert capsys.readouterr().err == f"error: {sentence('matplotlib', 'results')}\n"


@pytest.mark.parametrize("without", ["video"], indirect=True)
@pytest.mark.usefixtures("without")
def test_films_without_their_encoders(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["film", str(tmp_path / "film.gif"), str(run)]) == 2
    assert capsys.readouterr().err == f"error: {sentence('PIL', 'video')}\n"
    assert cli.main(["evaluate", str(run), "--episodes", "1"]) == 0  # the numbers come anyway
    assert f"no video: {sentence('PIL', 'video')}\n" in capsys.readouterr().out


@pytest.mark.parametrize("without", ["video"], indirect=True)
@pytest.mark.usefixtures("without", "films")
def test_training_without_encoders_goes_on(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[object] = []
    runs.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run", report=told.append)
    assert f"no video: {sentence('PIL', 'video')}" in [getattr(one, "message", "") for one in told]


def test_every_module_that_is_not_ours_has_an_extra() -> None:
    found = {name.partition(".")[0] for path in MODULES.values() for name in imports(path)}
    found -= {*sys.stdlib_module_names, "planet_bayes", "torch", "numpy"}
    listed = {module for modules in EXTRAS.values() for module in modules}
    assert found == listed - {"imageio_ffmpeg"}  # a part of imageio imports this one


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extras_are_those_of_the_project(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=\[]", one)[0] for one in project["optional-dependencies"][extra]}
    installed = importlib.metadata.packages_distributions()
    found = {installed[module][0].lower() for module in EXTRAS[extra]}
    assert found == declared - {"planet-bayes"}
