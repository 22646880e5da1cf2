"""From words to commands: one dialect, two lengths of help, and light imports."""

import dataclasses
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import planet_bayes
from planet_bayes import cli
from planet_bayes.cli import _settings
from planet_bayes.cli._parsing import parse
from planet_bayes.config import PRESETS, Config, differences


def parsed(line: str) -> Any:
    name, *words = shlex.split(line)
    kind = cli.find(name)
    assert kind is not None
    return parse(kind, name, words)


def help_text(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as exit_info:
        parsed(line)
    assert exit_info.value.code == 0
    return capsys.readouterr().out


def settings(config: Any, where: str = "") -> list[str]:
    """Return the dotted names of all settings."""
    names = []
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            names += settings(value, f"{where}{entry.name}.")
        else:
            names.append(where + entry.name)
    return names


def test_every_command_has_a_file_and_every_file_a_command() -> None:
    names = [
        *("train", "evaluate", "export", "tasks", "archive", "bench", "calibrate", "compare"),
        *("diagnose", "explain", "figures", "film", "predict", "refit", "replan", "suggest"),
        *("sweep", "table"),
    ]
    assert list(cli.commands()) == names
    folder = Path(str(cli.__file__)).parent
    files = {path.stem for path in folder.glob("[a-z]*.py")}
    assert files == {*names, "watch"}


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    for name, kind in cli.commands().items():
        assert f"  {name}" in output
        assert kind.__doc__ is not None
        assert kind.__doc__.splitlines()[0] in output
    assert cli.main([]) == 2
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f"planet-bayes {planet_bayes.__version__}\n")


def test_settings_are_named_by_dots_and_booleans_are_flags() -> None:
    command = parsed(
        "train --preset laptop --task finger_spin --seed 3 --run folder --env.original "
        "--collect.overlap --model.no-normalise --env.observation camera=pixels joints=sensors "
        "--env.sensors 0 2 --loss.kl-balance None --run.threads 2 --planner.execute best"
    )
    assert command.folder == Path("folder")
    assert command.config.env.observation == ("camera=pixels", "joints=sensors")
    assert differences(PRESETS["laptop"], command.config) == {
        *("task", "seed", "env.original", "env.observation", "env.sensors", "model.normalise"),
        *("loss.kl_balance", "planner.execute", "collect.overlap", "run.threads"),
    }
    assert type(command.config) is Config
    assert parsed("evaluate run --no-video").video is False
    assert parsed("film all.gif a b --no-reconstruction").folders == (Path("a"), Path("b"))


@pytest.mark.parametrize("line", ["train --env.original True", "train --collect.overlap False"])
def test_flags_take_no_value(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        parsed(line)
    assert exit_info.value.code == 2


def test_the_preset_and_the_method_give_the_defaults() -> None:
    assert parsed("train").config == PRESETS["quick"]
    assert parsed("train --preset paper").config == PRESETS["paper"]
    assert get_args(_settings.PresetName) == tuple(PRESETS)
    for command in ("train", "bench"):
        planet = parsed(f"{command} --seed 1 --method planet --preset laptop").config
        assert (planet.model.num_members, planet.planner.num_components) == (1, 1)
        assert planet.method == "planet"
    mixed = parsed("train --method m_only --planner.num-components 3").config
    assert (mixed.method, mixed.planner.num_components) == ("m_only", 3)


def test_help_is_short_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    short = help_text("train --help", capsys)
    assert len([line for line in short.splitlines() if line.strip()]) < 80
    assert f"the {len(_settings.SHOWN)} settings that change most often" in short
    assert "--help-all" in short
    names = settings(PRESETS["quick"])
    flags = {name: f"--{name.replace('_', '-')}" for name in names}
    assert set(_settings.SHOWN) <= set(names)
    assert len(_settings.SHOWN) <= 24
    listed = {name for name, flag in flags.items() if f"{flag} " in short or f"{flag}," in short}
    assert listed == set(_settings.SHOWN)


@pytest.mark.parametrize("command", ["train", "bench", "replan", "refit"])
def test_all_help_lists_every_setting(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    complete = help_text(f"{command} --help-all", capsys)
    for name in settings(PRESETS["quick"]):
        assert f"--{name.replace('_', '-')}" in complete, name
    assert len(help_text(f"{command} -h", capsys)) < len(complete) / 2


def test_help_has_the_preset_s_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert "(default: 1000)" in help_text("train --preset paper --help", capsys)
    assert "--no-video" in help_text("evaluate --help", capsys)


def test_every_shown_setting_has_a_sentence() -> None:
    groups = {"": PRESETS["quick"], **vars(PRESETS["quick"])}
    for name in _settings.SHOWN:
        group, _, key = name.rpartition(".")
        assert _settings.field_docs(type(groups[group]))[key]


HEAVY = ("matplotlib", "dm_control", "mujoco", "imageio", "cv2")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import planet_bayes.cli", (*HEAVY, "torch", "tyro", "gymnasium")),
        ("import planet_bayes.cli; planet_bayes.cli.commands()", HEAVY),
        ("import planet_bayes.cli; planet_bayes.cli.summaries()", ("torch", "tyro", *HEAVY)),
        (
            "from planet_bayes.results import archive, curves, experiment, figures, tables",
            ("torch", "matplotlib", "gymnasium", "tyro", "rich"),
        ),
        (
            "from pathlib import Path; from planet_bayes.results import figures, tables;"
            f"tables.task_table(Path({str(Path(__file__).parent.parent / 'results/benchmark')!r}))",
            ("torch", "matplotlib"),
        ),
    ],
)
def test_imports_are_light(code: str, absent: tuple[str, ...]) -> None:
    check = f"{code}; import sys; print([m for m in {absent!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("line", ["train --help", "bench --help-all", "replan -h", "export -h"])
def test_help_does_not_load_pytorch(line: str) -> None:
    """It takes seconds to load."""
    code = (
        "import atexit, sys; from planet_bayes import cli\n"
        "atexit.register(lambda: print('torch' in sys.modules, 'gymnasium' in sys.modules))\n"
        f"cli.main({line.split()!r})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("usage: planet-bayes")
    assert result.stdout.endswith("\nFalse False\n")


@pytest.mark.parametrize(("given", "expected"), [(None, "1000"), ("5", "5")])
def test_idle_threads_do_not_spin_unless_told_to(given: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if given is not None:
        environment["GOMP_SPINCOUNT"] = given
    code = (
        "import planet_bayes, os, sys; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == f"{expected} False\n"  # PyTorch would have read it already


def test_the_listing_is_of_the_commands() -> None:
    expected = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in cli.commands().items()}
    assert list(cli.summaries().items()) == list(expected.items())


def test_messages_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither emoji nor markup: a task is called module:function."""
    assert cli.main(["train", "--task", "nowhere:boom:[red]"]) == 2
    assert "nowhere:boom:[red]" in capsys.readouterr().err
