"""Atomic writes and checksums: a file is whole or absent, and damage is detected.

A file is written under a temporary name, flushed to disk and renamed. Each folder has a list of
SHA-256 checksums in the format of ``sha256sum``; ``sha256sum -c SHA256SUMS`` checks it too.
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
"""Suffix of files and folders that are not complete. A crash may leave some; they are deleted."""
ASIDE = ".aside"
"""Suffix of folders that are ignored but kept for inspection."""


class WriteError(RunError):
    """A file could not be written: the disk is full, or the folder is read-only."""


class DamagedError(RunError):
    """A file is missing, or its contents are not those that were written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


def write(path: Path, data: bytes | str) -> str:
    """Replace the contents of ``path`` by ``data`` and return the checksum of ``data``.

    The replacement is atomic: at every moment the path has its old contents or all of ``data``.
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


def check_target(path: Path) -> None:
    """Make the folder of a file that is written later, and refuse a path that no file can have.

    Call it before minutes are spent on the contents. An existing file is not touched.
    """
    if path.is_dir():
        raise WriteError(f"{path} is a folder; name a file to write.")
    partial = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        partial.unlink()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise WriteError(f"{path} cannot be written: {reason}; name another file.") from error


def put(path: Path, data: bytes | str) -> str:
    """Write a file, flush it to disk, and return its checksum. This is not atomic: see `write`."""
    raw = data.encode() if isinstance(data, str) else data
    with open(path, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(raw).hexdigest()


def append(path: Path, line: str) -> None:
    """Append a line to a file. A crash may leave an incomplete last line without a line end."""
    with explained(path), open(path, "a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[str]:
    """Return the complete lines of a file; none if it does not exist or cannot be read."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.split("\n")[:-1]


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to `put` files into. It becomes ``path``, with its checksums."""
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
    """Raise `DamagedError` unless the folder has exactly the files that were written."""
    sums = read_sums(path)
    if not sums:
        raise DamagedError(path / SUMS, "is missing or empty, so its folder cannot be checked.")
    for name in {entry.name for entry in path.iterdir()} - {SUMS} | set(sums):
        check(path / name, sums.get(name))


def check(path: Path, expected: str | None) -> None:
    """Raise `DamagedError` unless the file has the checksum ``expected``."""
    try:
        found = file_sum(path)
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror}.") from error
    compare(path, found, expected)


def compare(path: Path, found: str, expected: str | None) -> None:
    """Raise `DamagedError` unless two checksums of a file agree."""
    if expected is None:
        raise DamagedError(path, f"has no line in {SUMS}.")
    if found != expected:
        raise DamagedError(path, f"is damaged: its SHA-256 checksum is not the one in {SUMS}.")


def file_sum(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_line(digest: str, name: str) -> str:
    """Return a line of `SUMS`, in the format of ``sha256sum``."""
    return f"{digest}  {name}"


def read_sums(folder: Path) -> dict[str, str]:
    """Return the checksums of a folder's files by name. Malformed lines are ignored.

    So are names that contain a path: no name leads out of the folder.
    """
    sums: dict[str, str] = {}
    for line in read_lines(folder / SUMS):
        digest, _, name = line.partition("  ")
        if len(digest) == 64 and name == os.path.basename(name) and name not in ("", ".", ".."):
            sums[name] = digest
    return sums


def remove_partials(folder: Path, *names: str) -> None:
    """Delete incomplete files and folders: those of the given names, or all if none is given."""
    for path in [folder / (name + PARTIAL) for name in names] or folder.glob(f"*{PARTIAL}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Delete a folder. It is renamed first, so a crash leaves no folder with missing files."""
    partial = path.with_name(path.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    os.replace(path, partial)
    shutil.rmtree(partial)


def set_aside(path: Path) -> None:
    """Rename a folder so that it is ignored but kept for inspection."""
    aside = path.with_name(path.name + ASIDE)
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(path, aside)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. The system releases the lock when the process ends."""
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"{folder} is in use by another process; wait for that process or stop it."
            ) from error
        yield


def sync(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError into a `WriteError` that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}. Its previous contents are "
            "unchanged. Free disk space or make the folder writable, then resume."
        ) from error
