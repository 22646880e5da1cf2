"""The metrics of a run: metrics.jsonl and metrics.csv to read anywhere, TensorBoard to watch.

Row ``i`` holds the losses of the updates before episode ``i``, the evaluation after those updates
if one was due, and the return of episode ``i`` itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from planet_bayes.data import files
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.rows import csv_lines, parse_row, read_metrics, write_csv


class Metrics:
    """Appends one row per iteration, after the first ``count`` that the run's folder holds.

    Rows past these belong to what a resumed run does again, and are dropped. A line that cannot
    be read leaves a row with nothing but its episode.
    """

    def __init__(self, run: Path, count: int = 0) -> None:
        folder = RunFolder(run)
        self.path, self.table = folder.metrics, folder.table
        lines = files.read_lines(self.path)[:count]
        rows = [parse_row(line) or {"episode": number} for number, line in enumerate(lines)]
        rows += [{"episode": number} for number in range(len(rows), count)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        files.write(self.path, text)
        self._hash = hashlib.sha256(text.encode())
        self._columns = write_csv(rows, self.table) if rows else []
        self.board = SummaryWriter(str(folder.tensorboard), purge_step=count or None)

    @property
    def digest(self) -> str:
        """The SHA-256 sum of metrics.jsonl."""
        return self._hash.hexdigest()

    def add(self, row: dict[str, Any]) -> None:
        """Record an iteration. Numbers go to TensorBoard too."""
        line = json.dumps(row)
        files.append(self.path, line)
        self._hash.update((line + "\n").encode())
        if set(row) <= set(self._columns):
            # It is made from the other file at each start, so a crash cannot harm it.
            with files.explained(self.table), open(self.table, "a") as file:
                file.write(csv_lines([row], self._columns) + "\n")
        else:
            self._columns = write_csv(read_metrics(self.path), self.table)
        with self._board():
            for name, value in row.items():
                if isinstance(value, int | float) and name != "episode" and math.isfinite(value):
                    self.board.add_scalar(name, value, row["episode"])
            self.board.flush()

    def add_video(self, frames: NDArray[np.uint8], episode: int) -> None:
        """Show frames ``[T, H, W, 3]`` in TensorBoard: as an animation, and the middle as image.

        TensorBoard plays animated GIFs in its image tab. Encoding it here avoids a dependency on a
        video editor.
        """
        import imageio.v3 as iio  # late: only films need it

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

    def show(self, values: Mapping[str, float], episode: int) -> None:
        """Show numbers in TensorBoard that are not in the rows."""
        with self._board():
            for name, value in values.items():
                self.board.add_scalar(name, value, episode)
            self.board.flush()

    def add_image(self, name: str, image: NDArray[np.uint8], episode: int) -> None:
        """Show an image ``[H, W, 3]`` in TensorBoard."""
        with self._board():
            self.board.add_image(name, image, episode, dataformats="HWC")
            self.board.flush()

    def close(self) -> None:
        """Flush TensorBoard's file."""
        with self._board():
            self.board.close()

    def _board(self) -> AbstractContextManager[None]:
        return files.explained(Path(self.board.log_dir))
