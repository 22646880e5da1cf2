"""Kills, full disks, damaged files: the promises of docs/development/reliability.md."""

import contextlib
import gc
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crash_harness
from assertions import assert_same_run
from planet_bayes import cli, runs
from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.replay import Replay
from planet_bayes.errors import PlanetBayesError, RunError
from planet_bayes.training import Event, Trainer, checkpoint
from planet_bayes.training.events import IterationDone, Problem, SeedEpisode, Updated
from planet_bayes.training.loop import iterate, seed
from tiny_run import replaced

SCRIPT = Path(crash_harness.__file__)


def kill_and_go_on(run: Path, kills: int, seed: int, episodes: int, *words: str) -> dict[str, int]:
    """Return how many kills of which kind the run survived."""
    command = [sys.executable, str(SCRIPT), *map(str, (run, kills, seed, episodes)), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


# --- kill -9


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    assert kill_and_go_on(run, 0, 0, 12) == {}
    return run


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_ten_kills_at_any_moment_leave_no_trace(
    never_killed: Path, tmp_path: Path, seed: int
) -> None:
    survived = kill_and_go_on(tmp_path / "run", 10, seed, 12)
    assert sum(survived.values()) == 10
    assert len(survived) > 1  # more than one kind of moment
    assert_same_run(never_killed, tmp_path / "run")
    left = [path for path in (tmp_path / "run").rglob("*") if path.suffix == files.PARTIAL]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("overlap",)])
def test_a_hundred_kills_leave_no_trace(tmp_path: Path, words: tuple[str, ...]) -> None:
    kill_and_go_on(tmp_path / "whole", 0, 0, 80, *words)
    survived = kill_and_go_on(tmp_path / "run", 100, 7, 80, *words)
    print(words, survived)
    assert sum(survived.values()) == 100
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_we_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def replaced(old: Path, new: Path) -> None:
        done.append(f"name {new.name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    files.write(tmp_path / "a", "text")
    assert done == ["sync a.partial", "name a", f"sync {tmp_path.name}"]
    done.clear()
    with files.new_folder(tmp_path / "b") as folder:
        files.put(folder / "one", "text")
    written = ["sync one", "sync SHA256SUMS", "sync b.partial"]
    assert done == [*written, "name b", f"sync {tmp_path.name}"]
    done.clear()
    files.append(tmp_path / "c", "line")
    assert done == ["sync c"]


# --- damage


@pytest.fixture(scope="module")
def stopped(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped in the updates after its second episode; not to be written to."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    done = 0

    def report(event: Event) -> None:
        nonlocal done
        done += isinstance(event, Updated)

    runs.train(tiny, folder, should_stop=lambda: done >= 10, report=report)
    assert checkpoint.newest_sound(folder).progress.updates == 10
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def whole(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, never stopped."""
    return runs.train(tiny, tmp_path_factory.mktemp("never") / "run")[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [cut, empty, flip, remove]
UNCHANGED = ["model.safetensors", "optimiser.safetensors", "config.json", "signature.json"]
CHECKPOINT = [*UNCHANGED, "progress.json", files.SUMS]


def resume(run: Path) -> list[str]:
    """Go on with a run to its end; return the warnings."""
    said: list[str] = []

    def report(event: Event) -> None:
        if isinstance(event, Problem):
            said.append(event.message)

    assert runs.train(runs.resume_config(run), run, resume=True, report=report)[1]
    return said


@pytest.mark.parametrize("name", CHECKPOINT)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    run: Path, whole: Path, damage: Callable[[Path], None], name: str
) -> None:
    newest = checkpoint.latest(run)
    damage(newest / name)
    assert newest.name in runs.load_run(run).warnings[0]
    said = resume(run)
    assert newest.name in said[0]
    assert "done again" in said[1]
    assert_same_run(whole, run)
    assert newest.with_name(newest.name + ".aside").is_dir()
    assert resume(run) == []


def test_without_any_sound_checkpoint_all_are_named(run: Path) -> None:
    found = checkpoint.list_checkpoints(run)
    for path in found:
        flip(path / "model.safetensors")
    with pytest.raises(RunError, match="no sound checkpoint") as error:
        runs.resume_config(run)
    assert all(path.name in str(error.value) for path in found)
    assert len(list((run / "episodes").glob("*.npz"))) == 4  # what was collected is still there


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [1, 3])
def test_a_damaged_episode_that_can_be_had_again_is(
    run: Path, whole: Path, damage: Callable[[Path], None], number: int
) -> None:
    """Episode 1 is random, episode 3 came after the checkpoint before."""
    damage(run / "episodes" / f"{number:06d}.npz")
    said = resume(run)
    assert f"{number:06d}.npz" in said[0]
    assert_same_run(whole, run)


def test_a_checkpoint_that_was_passed_over_is_not_taken_for_the_newest(
    whole: Path, tmp_path: Path
) -> None:
    """Of a finished run: the redone one reaches the state of the checkpoint once more."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    flip(run / "episodes" / "000004.npz")
    said = resume(run)
    assert "000004.npz" in said[0]
    assert "done again" in said[1]
    assert_same_run(whole, run)
    assert resume(run) == []


def test_what_an_older_checkpoint_does_not_need_is_had_again_after_a_loss(
    tiny: Config, tmp_path: Path
) -> None:
    config = replaced(tiny, collect={"episodes": 6}, run={"keep_checkpoints": 6})
    run, _ = runs.train(config, tmp_path / "run")
    flip(run / "episodes" / "000002.npz")
    resume(run)
    flip(run / "episodes" / "000007.npz")
    said = resume(run)
    assert any("000007.npz" in text for text in said)
    assert list(Replay(run / "episodes").damaged(8)) == [2]


def test_a_longer_run_that_is_stopped_early_is_not_called_damaged(
    whole: Path, tiny: Config, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    longest = replaced(tiny, collect={"episodes": 5})
    longer = runs.resume_config(run, longest)
    assert not runs.train(longer, run, resume=True, should_stop=lambda: True)[1]
    assert runs.resume_config(run).collect.episodes == 5
    assert resume(run) == []
    reference, _ = runs.train(longest, tmp_path / "reference")
    assert_same_run(reference, run)


@pytest.mark.parametrize("damage", [*DAMAGES, "edit"])
def test_settings_are_those_of_the_checkpoint_and_others_are_told(
    run: Path, whole: Path, damage: Any
) -> None:
    path = run / "config.json"
    if damage == "edit":
        text = path.read_text()
        path.write_text(text.replace('"learning_rate": 0.001', '"learning_rate": 0.005'))
        assert path.read_text() != text
    else:
        damage(path)
    said = resume(run)
    assert "config.json" in said[0]
    assert damage != "edit" or "learn.learning_rate" in said[0]
    assert_same_run(whole, run)
    assert path.read_bytes() == (whole / "config.json").read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_episode_that_is_gone_is_named_and_left_out(
    run: Path, whole: Path, damage: Callable[[Path], None]
) -> None:
    for path in checkpoint.list_checkpoints(run)[:-1]:
        shutil.rmtree(path)
    damage(run / "episodes" / "000002.npz")
    said = resume(run)
    assert "000002.npz" in said[0]
    assert "continues without it" in said[1]
    with pytest.raises(AssertionError):
        assert_same_run(whole, run)
    assert resume(run) == said  # it is not forgotten


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_list_of_sums_is_no_silent_pass(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / "episodes" / files.SUMS)
    assert any(files.SUMS in text for text in resume(run))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_metrics_are_told(run: Path, whole: Path, damage: Callable[[Path], None]) -> None:
    damage(run / "metrics.jsonl")
    said = resume(run)
    assert "metrics.jsonl is damaged" in said[0]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["episode"] for row in rows] == [0, 1, 2, 3]
    if damage is cut:  # the last line only: there is a checkpoint that does not need it
        assert_same_run(whole, run)


# --- a full disk


def limited(limit: int, work: Callable[[], object]) -> str:
    """Do work in a process that may not write files above ``limit`` bytes; return its error."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            work()
        except BaseException as error:
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(theirs)
    with open(ours) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("limit", [100, 1200, 4000])
def test_a_full_disk_is_named_and_costs_nothing(run: Path, whole: Path, limit: int) -> None:
    before = {path.name for path in checkpoint.list_checkpoints(run)}
    said = limited(limit, lambda: resume(run))
    assert said.startswith(f"WriteError: {run}")
    assert "could not be written: File too large" in said
    for path in checkpoint.list_checkpoints(run):
        files.check_folder(path)
    assert before & {path.name for path in checkpoint.list_checkpoints(run)}
    assert resume(run) == []
    assert_same_run(whole, run)


# --- nothing that is loaded runs


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def resume_for_one_update(run: Path) -> None:
    """Read all that a resumed run reads: settings, weights, episodes, metrics."""
    updated = False

    def report(event: Event) -> None:
        nonlocal updated
        updated |= isinstance(event, Updated)

    runs.train(
        runs.resume_config(run), run, resume=True, report=report, should_stop=lambda: updated
    )


@pytest.mark.parametrize("sums", ["as they were", "made to fit"])
def test_a_pickle_under_any_of_our_names_does_not_run(
    stopped: Path, tmp_path: Path, sums: str
) -> None:
    touched = tmp_path / "touched"
    names = [path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file()]
    assert len(names) > 15
    for number, name in enumerate(names):
        if "tensorboard" in name.parts or name.name == "lock":
            continue  # never read
        run = tmp_path / str(number)
        shutil.copytree(stopped, run)
        (run / name).write_bytes(pickle.dumps(Bomb(touched)))
        if sums == "made to fit" and (run / name).with_name(files.SUMS).exists():
            folder = (run / name).parent
            lines = [
                files.sum_line(files.file_sum(path), path.name) + "\n"
                for path in sorted(folder.iterdir())
                if path.name != files.SUMS
            ]
            (folder / files.SUMS).write_text("".join(lines))
        for use in (runs.load_run, resume_for_one_update):
            with contextlib.suppress(PlanetBayesError):  # anything else fails the test
                use(run)
        assert not touched.exists(), name
        shutil.rmtree(run)


# --- same seed, same run


def test_other_conditions_are_told_at_resume(run: Path) -> None:
    newest = checkpoint.latest(run)
    state = json.loads((newest / "progress.json").read_text())
    state["machine"] |= {"threads": "8", "processor": "another"}
    with files.new_folder(newest.with_name("again")) as folder:
        for name in UNCHANGED:
            files.put(folder / name, (newest / name).read_bytes())
        files.put(folder / "progress.json", json.dumps(state))
    shutil.rmtree(newest)
    newest.with_name("again").rename(newest)
    (said,) = resume(run)
    assert "processor another → " in said
    assert "threads 8 → 1" in said


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    tiny: Config, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def power_cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", power_cut)
        with pytest.raises(KeyboardInterrupt):
            runs.train(tiny, run)
    assert (run / "config.json").exists()
    assert resume(run) == []
    assert_same_run(whole, run)


def test_sigterm_is_answered_with_a_checkpoint_and_its_code(tiny: Config, tmp_path: Path) -> None:
    settings = replaced(tiny, collect={"episodes": 10_000}, run={"checkpoint_every": 10**6})
    run = tmp_path / "run"
    run.mkdir()
    configuration.save(settings, run / "config.json")
    command = [sys.executable, "-m", "planet_bayes.cli", "train", "--resume", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[:1] == ["3"]:
                break
        for _ in range(3):  # schedulers may send it to the process and to its group
            process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(30) == 143
    assert checkpoint.newest_sound(run).progress.episodes >= 5
    assert not list(run.rglob(f"*{files.PARTIAL}"))
    assert cli.main(["export", str(run), str(tmp_path / "agent")]) == 0


# --- bounded


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize(
    ("seeds", "episodes"), [(900, 100), pytest.param(9_600, 400, marks=pytest.mark.slow)]
)
def test_memory_and_handles_stay_flat_over_thousands_of_episodes(
    tiny: Config, tmp_path: Path, seeds: int, episodes: int
) -> None:
    config = replaced(
        tiny,
        env={"max_steps": 2},
        collect={"seed_episodes": seeds, "episodes": episodes},
        learn={"updates_per_episode": 1},
        run={"evaluate_every": 25, "checkpoint_every": 20, "replay_ram": 1e-5},
    )
    moments = ("seed 500", f"seed {seeds}", "row 40", f"row {episodes - 1}")
    seen: dict[str, tuple[int, int]] = {}

    def report(event: Event) -> None:
        when = ""
        if isinstance(event, SeedEpisode):
            when = f"seed {event.done}"
        elif isinstance(event, IterationDone):
            when = f"row {event.row['episode']}"
        if when in moments:
            gc.collect()
            seen[when] = resident_bytes(), len(os.listdir("/proc/self/fd"))

    path = tmp_path / "run"
    with Trainer(config, path, report=report).session() as run:
        seed(run)
        while not run.finished:
            iterate(run)
        held = run.replay._cache.values()
        assert 0 < sum(episode.num_bytes for episode in held) <= 1e4
    assert len(list((path / "episodes").glob("*.npz"))) == seeds + episodes
    assert len(checkpoint.list_checkpoints(path)) == config.run.keep_checkpoints
    for before, after in (moments[:2], moments[2:]):
        assert seen[after][0] < 1.05 * seen[before][0], seen
        assert seen[after][1] <= seen[before][1], seen
