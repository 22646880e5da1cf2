"""Parts from outside the package on the command line: `planet-bayes --import MODULE COMMAND`.

The parts are the examples of CONTRIBUTING, each in the form in which it is printed there.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planet_bayes import cli, plugins
from planet_bayes.models import HEADS, MODALITIES, POSTERIORS
from planet_bayes.planner import FAMILIES, OPTIMALITIES
from planet_bayes.training import checkpoint
from test_cli import TINY

CONTRIBUTING = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
PARTS = ("class Scan", "class MaskedNetwork", "class TerminalHead", "class FixedStd", "def linear")
REGISTRIES: tuple[dict[str, Any], ...] = (MODALITIES, POSTERIORS, HEADS, FAMILIES, OPTIMALITIES)
SETTINGS = (
    *("--model.posterior", "masked", "--model.heads", "reward", "terminal"),
    *("--planner.proposal", "fixed_std", "--planner.num-components", "1"),
    *("--planner.optimality", "linear"),
    *("--learn.updates-per-episode", "2", "--collect.episodes", "1"),
)
ROVER = """
import gymnasium
import numpy as np
from my_parts import Scan


class Rover(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"scan": gymnasium.spaces.Box(0, 9, (4,))})
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    modalities = {"scan": Scan(4)}
    render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return {"scan": self.np_random.random(4, np.float32)}, {}

    def step(self, action):
        self.time += 1
        scan = self.np_random.random(4, np.float32)
        return {"scan": scan}, float(scan[0]), False, self.time >= 20, {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with two modules. What they register is forgotten after the test."""
    blocks = re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.S)
    parts = [next(block for block in blocks if name in block) for name in PARTS]
    (tmp_path / "my_parts.py").write_text("\n\n".join(parts))
    (tmp_path / "rover.py").write_text(ROVER)
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(plugins, "_registering", [])
    before = [dict(registry) for registry in REGISTRIES]
    yield tmp_path
    for registry, kept in zip(REGISTRIES, before, strict=True):
        for name in registry.keys() - kept.keys():
            registry.pop(name)
    for name in ("my_parts", "rover"):
        sys.modules.pop(name, None)


def test_every_command_knows_the_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *TINY, *SETTINGS, "--task", "rover:Rover", "--env.observation", "scan"]
    assert cli.main(["--import", "my_parts", *words, "--run", "run"]) == 0, capsys.readouterr().err
    assert "planet-bayes --import my_parts evaluate run" in capsys.readouterr().out
    for command in (
        "evaluate run --no-video --no-baselines --episodes 1",
        "export run agent",
        "diagnose run --episodes 1 --horizon 3",
        "replan agent --episodes 1 --planner.horizon 3",
        "refit run --updates 1 --horizon 3 --hold-out 2",
        "train --resume run --collect.episodes 2",
    ):
        assert cli.main(["--import=my_parts", *command.split()]) == 0, capsys.readouterr().err
    saved = "".join(path.read_text() for path in folder.rglob("*.json"))
    assert json.loads((checkpoint.latest(folder / "run") / "config.json").read_text())
    assert "my_parts" not in saved  # a folder names no code

    result = subprocess.run(  # a process that has imported nothing
        [sys.executable, "-m", "planet_bayes.cli", "export", "agent", "other"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert "there is no 'linear'" in result.stderr
    assert "planet-bayes --import MODULE COMMAND" in result.stderr


@pytest.mark.usefixtures("folder")
def test_the_collecting_process_knows_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing there imports the module by itself, as the environment above does."""
    words = ["train", *TINY, *SETTINGS, "--collect.overlap", "--run", "run"]
    assert cli.main(["--import", "my_parts", *words]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--import", "--import: name a module"),
        ("--import nowhere tasks", "could not import the module 'nowhere' (ModuleNotFoundError"),
        ("--import my_parts.py tasks", "The file folder/file.py is the module folder.file."),
        ("--import broken tasks", "module 'broken' (ZeroDivisionError: division by zero)"),
        ("tasks --import my_parts", "--import comes before the command"),
    ],
)
def test_mistakes_get_one_sentence(
    folder: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_the_option_may_be_repeated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--import", "my_parts", "--import", "rover", "--version"]) == 0
    assert plugins.registering() == ("my_parts", "rover")
    assert "scan" in MODALITIES
    assert cli.main(["--help"]) == 0
    assert "[--import MODULE] COMMAND" in capsys.readouterr().out
