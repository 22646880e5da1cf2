"""The commits that a run was made from, in ``commits.json`` of its folder."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from planet_bayes.data import files
from planet_bayes.data.folder import RunFolder

_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Commit:
    """A state of this package's source."""

    commit: str = "unknown"
    """Name of the git commit; unknown where the package is not in a checkout."""
    modified: bool = False
    """Whether files of the package differed from the commit."""

    def __str__(self) -> str:
        return self.commit[:12] + (" with uncommitted changes" if self.modified else "")


@functools.cache
def current_commit() -> Commit:
    """Return the commit of the package that this process has loaded.

    Files outside of the package do not count: a sweep itself adds files to ``results/``.
    """
    # An installed copy may be inside somebody else's repository, which does not track it.
    if not _git("ls-files", "__init__.py"):
        return Commit()
    name, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", ".")
    return Commit() if not name or changes is None else Commit(name, bool(changes))


def _git(*words: str) -> str | None:
    """Return what git prints about the package's folder; None if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=_PACKAGE, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def read_commits(run: Path) -> list[Commit]:
    """Return the commits of a run in the order of use; one unknown commit if none is recorded."""
    try:
        rows = json.loads(RunFolder(run).commits.read_text())
        return [Commit(str(row["commit"]), bool(row["modified"])) for row in rows] or [Commit()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [Commit()]


def record_commits(run: Path, commits: list[Commit]) -> None:
    """Write the commits of a run."""
    rows = [dataclasses.asdict(commit) for commit in commits]
    files.write(RunFolder(run).commits, json.dumps(rows, indent=1) + "\n")
