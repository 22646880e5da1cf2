"""What a step costs as a run grows: ``python benchmarks/growth.py [FOLDER]``.

Sampling a batch from 100, 1000 and 10000 episodes of frames, all in memory or a tenth of them;
adding a row to metrics of 10, 500 and 5000 rows; and reading the episodes again at a resume. 10000
episodes of 32×32 frames take 8 GB of disk and memory, of 64×64 four times as much.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from planet_bayes.bench.measure import fill
from planet_bayes.config import PRESETS
from planet_bayes.data.replay import Replay
from planet_bayes.training.metrics import Metrics


def median(work: Callable[[], object], repeats: int = 15) -> float:
    """Return the median time of a call in milliseconds."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[1:])


def sampling(folder: Path, episodes: int, image_size: int) -> None:
    """Print the time of a batch of 50 × 50, and of reading all episodes again."""
    paper = PRESETS["paper"]
    config = dataclasses.replace(paper, env=dataclasses.replace(paper.env, image_size=image_size))
    whole = fill(folder, config, 6, episodes)
    size = whole.episode(0).num_bytes
    for share in (1.0, 0.1):
        replay = Replay(whole.folder, int(share * episodes * size) + 1)
        start = time.perf_counter()
        replay.restore(episodes)
        resume = (time.perf_counter() - start) / episodes * 1000
        rng = np.random.default_rng(0)
        for onset_share in (0.0, 0.3):
            batch = median(partial(replay.sample, rng, 1, 50, 50, onset_share=onset_share))
            print(
                f"{episodes} episodes of {image_size}×{image_size}, {share:.0%} in memory, onset "
                f"share {onset_share}: batch {batch:.1f} ms; resume {resume:.2f} ms per episode",
                flush=True,
            )


def rows(folder: Path, count: int) -> None:
    """Print the time of adding a row after ``count`` rows."""
    folder.mkdir()
    metrics = Metrics(folder)
    row = {f"value_{index}": float(index) for index in range(25)}
    try:
        for number in range(count):
            metrics.add({"episode": number, "steps": number, **row})
        numbers = iter(range(count, 10**9))
        added = median(lambda: metrics.add({"episode": next(numbers), "steps": 0, **row}))
        print(f"{count} rows of metrics: one more takes {added:.2f} ms", flush=True)
    finally:
        metrics.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="where the episodes are written; a temporary one")
    parser.add_argument("--most", type=int, default=10_000, help="largest number of episodes")
    parser.add_argument("--image-size", type=int, default=32, choices=(32, 64))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="growth-") as name:
        for count in (10, 500, 5000):
            rows(Path(name) / f"rows-{count}", count)
        for episodes in (100, 1000, 10_000):
            if episodes <= arguments.most:
                sampling(Path(name) / str(episodes), episodes, arguments.image_size)


if __name__ == "__main__":
    main()
