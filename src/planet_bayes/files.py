"""Files that are whole or absent, and that show when they are not what was written.

A file is written under another name, flushed to the disk and renamed. Folders hold the SHA-256
sums of their files in the format of ``sha256sum``, so that ``sha256sum -c SHA256SUMS`` checks
them too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from planet_bayes.errors import RunError

SUMS = "SHA256SUMS"
PARTIAL = ".partial"
"""What is added to a name until all is written. Left behind by a crash, it is no one's."""


class WriteError(RunError):
    """A file could not be written: the disk is full, or the folder may not be written to."""


class DamagedError(RunError):
    """A file is missing, or is not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


def write(path: Path, data: bytes | str) -> str:
    """Make ``data`` the contents of ``path`` and return their sum.

    At every moment the path holds what it held before, or all of ``data``.
    """
    partial = path.with_name(path.name + PARTIAL)
    with explained(path):
        try:
            digest = put(partial, data)
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync(path.parent)
    return digest


def put(path: Path, data: bytes | str) -> str:
    """Write a file that no one looks for yet, to the disk, and return its sum."""
    raw = data.encode() if isinstance(data, str) else data
    with open(path, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(raw).hexdigest()


def append(path: Path, line: str) -> None:
    """Add a line to a file. What a crash cuts short is the last line, without its end."""
    with explained(path), open(path, "a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[str]:
    """Return the complete lines of a file; none if it is not there or cannot be read."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.split("\n")[:-1]


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to `put` files into; with their sums, it is named ``path`` in the end."""
    partial = path.with_name(path.name + PARTIAL)
    with explained(path):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            yield partial
            names = sorted(entry.name for entry in partial.iterdir() if entry.is_file())
            lines = [sum_line(file_sum(partial / name), name) + "\n" for name in names]
            put(partial / SUMS, "".join(lines))
            sync(partial)
            os.replace(partial, path)
            sync(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_folder(path: Path) -> None:
    """Raise `DamagedError` unless the folder's files are those that were written."""
    sums = read_sums(path)
    if not sums:
        raise DamagedError(path / SUMS, "is missing or empty, so nothing beside it can be trusted.")
    for name in {entry.name for entry in path.iterdir()} - {SUMS} | set(sums):
        check(path / name, sums.get(name))


def check(path: Path, expected: str | None) -> None:
    """Raise `DamagedError` unless the file has the sum ``expected``."""
    try:
        found = file_sum(path)
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
    compare(path, found, expected)


def compare(path: Path, found: str, expected: str | None) -> None:
    """Raise `DamagedError` unless the sums of a file agree."""
    if expected is None:
        raise DamagedError(path, f"has no line in {SUMS}.")
    if found != expected:
        raise DamagedError(path, f"is damaged: its SHA-256 sum is not that in {SUMS}.")


def file_sum(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_line(digest: str, name: str) -> str:
    """Return a line as ``sha256sum`` writes it."""
    return f"{digest}  {name}"


def read_sums(folder: Path) -> dict[str, str]:
    """Return the sums of a folder's files by name; a line that makes no sense is left out.

    A name says a file of this very folder; none can lead out of it.
    """
    sums: dict[str, str] = {}
    for line in read_lines(folder / SUMS):
        digest, _, name = line.partition("  ")
        if len(digest) == 64 and name == os.path.basename(name) and name not in ("", ".", ".."):
            sums[name] = digest
    return sums


def remove_partials(folder: Path, *names: str) -> None:
    """Delete what a crash left half written: of files of these names, or else of any."""
    for path in [folder / (name + PARTIAL) for name in names] or folder.glob(f"*{PARTIAL}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Delete a folder; from the first moment on it has no name that anyone looks for."""
    partial = path.with_name(path.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    os.replace(path, partial)
    shutil.rmtree(partial)


def set_aside(path: Path) -> None:
    """Give a folder a name that no one looks for, but a person who wants to know."""
    aside = path.with_name(path.name + ".aside")
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(path, aside)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the system frees it when the process ends, however."""
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"{folder} is in use by another process; wait for it or stop it."
            ) from error
        yield


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that says which file it was, and what to do."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}. What was there before is "
            "as it was; make room or mend the folder, then resume."
        ) from error
