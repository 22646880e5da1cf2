"""What a run records: metrics.jsonl and metrics.csv to read anywhere, TensorBoard to watch."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from planet_bayes import files


class Metrics:
    """Appends one row per iteration, after the first ``count`` that the run's folder holds.

    Rows past these belong to what a resumed run does again, and are dropped. A line that cannot
    be read leaves a row with nothing but its episode.
    """

    def __init__(self, run: Path, count: int = 0) -> None:
        self.path = run / "metrics.jsonl"
        lines = files.read_lines(self.path)[:count]
        rows = [_parse(line) or {"episode": number} for number, line in enumerate(lines)]
        rows += [{"episode": number} for number in range(len(rows), count)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        files.write(self.path, text)
        self._hash = hashlib.sha256(text.encode())
        self._columns = write_csv(rows, self.path.with_suffix(".csv")) if rows else []
        self.board = SummaryWriter(str(run / "tensorboard"), purge_step=count or None)

    @property
    def digest(self) -> str:
        """The SHA-256 sum of metrics.jsonl."""
        return self._hash.hexdigest()

    def add(self, row: dict[str, Any]) -> None:
        """Record an iteration. Numbers go to TensorBoard too."""
        line = json.dumps(row)
        files.append(self.path, line)
        self._hash.update((line + "\n").encode())
        table = self.path.with_suffix(".csv")
        if set(row) <= set(self._columns):
            # Made from the other file at each start, so it needs no care of its own.
            with files.explained(table), open(table, "a") as file:
                file.write(_csv([row], self._columns) + "\n")
        else:
            self._columns = write_csv(read_metrics(self.path), table)
        with self._board():
            for name, value in row.items():
                if isinstance(value, int | float) and name != "episode" and math.isfinite(value):
                    self.board.add_scalar(name, value, row["episode"])
            self.board.flush()

    def add_video(self, frames: NDArray[np.uint8], episode: int) -> None:
        """Show frames ``[T, H, W, 3]`` in TensorBoard: as an animation, and the middle as image.

        TensorBoard plays animated GIFs in its image tab; encoding it here spares a dependency
        on a film editor.
        """
        buffer = io.BytesIO()
        iio.imwrite(buffer, frames, extension=".gif", duration=50, loop=0)
        image = Summary.Image(
            height=frames.shape[1],
            width=frames.shape[2],
            colorspace=3,
            encoded_image_string=buffer.getvalue(),
        )
        summary = Summary(value=[Summary.Value(tag="episode", image=image)])
        with self._board():
            self.board._get_file_writer().add_summary(summary, episode)
            self.board.add_image("frame", frames[len(frames) // 2], episode, dataformats="HWC")
            self.board.flush()

    def close(self) -> None:
        """Flush TensorBoard's file."""
        with self._board():
            self.board.close()

    def _board(self) -> AbstractContextManager[None]:
        return files.explained(self.path.with_name("tensorboard"))


def prefix_digest(path: Path, count: int) -> str | None:
    """Return the SHA-256 sum of the first ``count`` lines of a file, if it has that many."""
    lines = files.read_lines(path)
    if len(lines) < count:
        return None
    return hashlib.sha256("".join(line + "\n" for line in lines[:count]).encode()).hexdigest()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics.jsonl up to the first line that is none."""
    rows: list[dict[str, Any]] = []
    for line in files.read_lines(path):
        row = _parse(line)
        if row is None:
            break
        rows.append(row)
    return rows


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and "episode" in row else None


def write_csv(rows: list[dict[str, Any]], path: Path) -> list[str]:
    """Write the rows as CSV, a list as its values with spaces between; return the columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    files.write(path, ",".join(names) + "\n" + _csv(rows, names) + "\n")
    return names


def _csv(rows: list[dict[str, Any]], names: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue().removesuffix("\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(str(_cell(item)) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else value
