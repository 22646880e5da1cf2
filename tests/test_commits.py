"""The commits of a run: recorded where there is git, unknown where there is none."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.data import commits
from planet_bayes.data.commits import Commit, current_commit, read_commits
from planet_bayes.training import Event
from planet_bayes.training import session as sessions
from planet_bayes.training.events import Problem
from tiny_run import replaced


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    result = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in a folder of its own, outside of any repository."""
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(commits, "_PACKAGE", folder)
    current_commit.cache_clear()
    yield folder
    current_commit.cache_clear()


def fresh_commit() -> Commit:
    current_commit.cache_clear()
    return current_commit()


def test_the_commit_and_uncommitted_changes_of_the_package(package: Path) -> None:
    assert fresh_commit() == Commit("unknown", False)
    checkout = package.parent
    git(checkout, "init", "-q")
    assert fresh_commit() == Commit("unknown", False)  # a repository that does not track it
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first")
    name = git(checkout, "rev-parse", "HEAD")
    assert len(name) == 40
    assert fresh_commit() == Commit(name, False)
    (checkout / "result.csv").touch()
    assert fresh_commit() == Commit(name, False)
    (package / "module.py").touch()
    assert fresh_commit() == Commit(name, True)
    assert str(fresh_commit()) == f"{name[:12]} with uncommitted changes"


def test_without_git_the_commit_is_unknown(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(package, "init", "-q")
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "first")
    monkeypatch.setenv("PATH", str(package))
    assert fresh_commit() == Commit("unknown", False)


def test_a_run_records_every_commit_and_reports_a_change(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, told = tmp_path / "run", list[Event]()
    first, second = Commit("a" * 40, False), Commit("b" * 40, True)
    short = replaced(tiny, collect={"episodes": 0})

    def sit(commit: Commit, episodes: int) -> list[str]:
        monkeypatch.setattr(sessions, "current_commit", lambda: commit)
        told.clear()
        config = replaced(short, collect={"episodes": episodes})
        runs.train(config, run, resume=run.exists(), report=told.append)
        return [event.message for event in told if isinstance(event, Problem)]

    assert sit(first, 0) == []
    assert json.loads((run / "commits.json").read_text()) == [
        {"commit": "a" * 40, "modified": False}
    ]
    assert sit(second, 0) == []  # it has ended: nothing is made from the other commit
    assert read_commits(run) == [first]
    assert sit(first, 1) == []
    assert read_commits(run) == [first]
    (message,) = sit(second, 2)
    assert message == f"The run continues from commit {second}; before, it was {first}."
    assert read_commits(run) == [first, second]


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "[1]", '[{"commit": "a"}]'])
def test_a_run_without_a_record_is_of_an_unknown_commit(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "commits.json").write_text(text)
    assert read_commits(tmp_path) == [Commit()]
