"""Declared experiments: their runs, and that the archived ones are what they declare."""

import shlex
from pathlib import Path

import pytest

from planet_bayes import cli
from planet_bayes import config as configuration
from planet_bayes.cli._parsing import parse
from planet_bayes.cli.train import Train
from planet_bayes.config import PRESETS
from planet_bayes.errors import ConfigError
from planet_bayes.results.curves import RunName
from planet_bayes.results.experiment import Experiment, option, read_experiment
from tiny_run import replaced

ROOT = Path(__file__).parent.parent
DECLARED = sorted((ROOT / "experiments").glob("*.toml"))

WHOLE = """
folder = "some/where"
methods = ["planet", "planet_bayes"]
seeds = [0, 1]

[settings]
collect.episodes = 7
env.original = true

[[runs]]
preset = "quick"
observations = ["sensors"]
tasks = ["cup_catch", "finger_spin"]

[[runs]]
preset = "laptop"
observations = ["pixels", ["camera=pixels", "joints=sensors"]]
tasks = ["walker_run"]
seeds = [5]
settings.model.normalise = false
settings.collect.episodes = 9

[variants.baseline]

[variants.no-kl-balance]
loss.kl_balance = "None"
"""


def declared(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "experiments" / "some.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return read_experiment(path)


def test_runs_are_all_combinations(tmp_path: Path) -> None:
    experiment = declared(tmp_path, WHOLE)
    assert len(experiment.runs) == 2 * (2 * 1 * 2 * 2 + 2 * 2 * 1 * 1)
    assert len({run.folder for run in experiment.runs}) == len(experiment.runs)
    assert experiment.tasks == ["cup_catch", "finger_spin", "walker_run"]
    assert experiment.results == tmp_path / "results" / "some" / "where"
    last = experiment.runs[-1]
    assert last.name == RunName("planet_bayes", "walker_run", "pixels+sensors", 5)
    place = Path("some/where/no-kl-balance/planet_bayes/walker_run-pixels+sensors")
    assert last.folder == Path("runs") / place / "seed-5"
    assert last.result == tmp_path / "results" / place / "seed-5.csv"
    assert shlex.split(last.command) == ["planet-bayes", *last.words]
    assert last.command == (
        "planet-bayes train --preset laptop --method planet_bayes --task walker_run --seed 5 "
        f"--env.observation camera=pixels joints=sensors --run {last.folder} "
        "--collect.episodes 9 --env.original --model.no-normalise --loss.kl-balance None"
    )
    assert experiment.missing() == list(experiment.runs)
    last.result.parent.mkdir(parents=True)
    last.result.touch()
    assert experiment.missing() == list(experiment.runs[:-1])


def test_the_command_line_gives_the_declared_settings(tmp_path: Path) -> None:
    """What a run's command trains is what its record says."""
    for run in declared(tmp_path, WHOLE).runs:
        command = parse(Train, "train", run.words[1:])
        assert command.config == run.config()
        assert command.folder == run.folder
        assert command.config.method == run.name.method
        assert command.config.env.label == run.name.observation


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('folder = "some/where"', "", "folder must name a folder"),
        ("seeds = [0, 1]", "", "seeds is missing"),
        ("seeds = [0, 1]", "seeds = 2", "seeds must be a list of at least one, got 2"),
        ("seeds = [0, 1]", "seeds = []", "seeds must be a list of at least one"),
        ("[settings]", "[setings]", "unknown key 'setings'; did you mean 'settings'"),
        ("tasks = [", "task = [", "unknown key 'task'; did you mean 'tasks'"),
        ("folder", "folder folder", "not a readable experiment"),
    ],
)
def test_mistakes_in_a_declaration_are_told(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        declared(tmp_path, WHOLE.replace(before, after))


def test_unknown_settings_are_told(tmp_path: Path) -> None:
    wrong = WHOLE.replace("collect.episodes = 7", "collect.epsodes = 7")
    with pytest.raises(ConfigError, match=r"epsodes.*did you mean 'episodes'"):
        declared(tmp_path, wrong).runs[0].config()
    with pytest.raises(ConfigError, match="unknown preset 'quik'; did you mean 'quick'"):
        declared(tmp_path, WHOLE.replace('"quick"', '"quik"')).runs[0].config()
    with pytest.raises(ConfigError, match="unknown method"):
        declared(tmp_path, WHOLE.replace('"planet"', '"plant"')).runs[0].config()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("env.original", True, ["--env.original"]),
        ("env.original", False, ["--env.no-original"]),
        ("env.sensors", [0, 2], ["--env.sensors", "0", "2"]),
        ("learn.ema_decay", 0.0, ["--learn.ema-decay", "0"]),
        ("learn.ema_decay", 0.12345678, ["--learn.ema-decay", "0.12345678"]),
        ("task", "cup_catch", ["--task", "cup_catch"]),
    ],
)
def test_a_setting_becomes_words(name: str, value: object, words: list[str]) -> None:
    assert option(name, value) == words


def test_commands_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "experiments" / "benchmark.toml"
    assert cli.main(["table", str(path), "--commands"]) == 0
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 16
    assert commands == [run.command for run in read_experiment(path).runs]
    assert cli.main(["table", str(path), "--missing"]) == 0
    assert capsys.readouterr().out == ""


def test_results_are_found_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, path in (
        (ROOT, "experiments/no-blur.toml"),
        (ROOT / "experiments", "no-blur.toml"),
    ):
        monkeypatch.chdir(folder)
        experiment = read_experiment(Path(path))
        assert experiment.results.resolve() == ROOT / "results" / "ablations" / "no-blur"
        assert not experiment.missing()


def test_every_folder_of_results_is_declared() -> None:
    names = {
        *("benchmark", "preset-ablations", "no-blur", "no-ema-no-means-no-elites"),
        *("make-train", "members", "overlap", "posteriors", "disentangle"),
        *("paper-small", "paper-quick", "paper-laptop", "fewer-trajectories"),
        "few-seed-episodes",
    }
    assert {path.stem for path in DECLARED} == names | NOT_RUN
    planned = {run.result for path in DECLARED for run in read_experiment(path).runs}
    assert set((ROOT / "results").rglob("seed-*.csv")) <= planned


NOT_RUN = {"curiosity", "other-tasks", "same-planner"}
"""Experiments that are declared before their first run."""
ENDED_EARLY = {("no-blur", "cheetah_run", 1)}
"""Runs that have fewer episodes than declared; the notes beside them say why."""
WITHOUT_EFFECT = {
    *("model.image_bits", "model.image_depth", "model.decoder_depth", "model.decoder_layers"),
    "run.keep_checkpoints",
}
"""Settings of the preset that changed since, in runs from sensors: only images use them."""


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.stem)
def test_archived_runs_have_the_declared_settings(path: Path) -> None:
    archived = [run for run in read_experiment(path).runs if run.result.is_file()]
    assert bool(archived) == (path.stem not in NOT_RUN)
    for run in archived:
        made = configuration.load(run.result.with_suffix(".json"))
        different = configuration.differences(run.config(), made)
        if run.name.observation == "sensors":
            different -= WITHOUT_EFFECT
        if (path.stem, run.name.task, run.name.seed) in ENDED_EARLY:
            different -= {"collect.episodes"}
        assert not different, run.name


def test_a_declaration_can_name_a_removed_value(tmp_path: Path) -> None:
    """TOML has no null: the word None stands for it."""
    run = next(run for run in declared(tmp_path, WHOLE).runs if run.variant == "no-kl-balance")
    expected = replaced(
        PRESETS["quick"].with_method("planet"),
        task="cup_catch",
        seed=0,
        env={"original": True},
        loss={"kl_balance": None},
        collect={"episodes": 7},
    )
    assert run.config() == expected
