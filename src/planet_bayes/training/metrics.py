"""What a run records: metrics.jsonl and metrics.csv to read anywhere, TensorBoard to watch."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter


class Metrics:
    """Appends one row per iteration; on resume, drops rows past the checkpoint."""

    def __init__(self, run: Path, rows: int) -> None:
        self.path = run / "metrics.jsonl"
        self.rows = read_metrics(self.path)[:rows] if rows else []
        _replace(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
        last = self.rows[-1]["episode"] + 1 if self.rows else 0
        self.board = SummaryWriter(str(run / "tensorboard"), purge_step=last if rows else None)

    def add(self, row: dict[str, Any]) -> None:
        """Record an iteration. Numbers go to TensorBoard too."""
        self.rows.append(row)
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")
        write_csv(self.rows, self.path.with_suffix(".csv"))
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
        self.board._get_file_writer().add_summary(summary, episode)
        self.board.add_image("frame", frames[len(frames) // 2], episode, dataformats="HWC")
        self.board.flush()

    def close(self) -> None:
        """Flush TensorBoard's file."""
        self.board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics.jsonl; a last line cut short by a crash is left out."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the rows as CSV; a list becomes its values with spaces between."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    _replace(path, text.getvalue())


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(str(_cell(item)) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else value


def _replace(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
