"""Learning, for minutes: `make slow`. Each bound is compared with random actions."""

from pathlib import Path

import numpy as np
import pytest

from planet_bayes import runs
from planet_bayes.config import PRESETS
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig, random_return
from tiny_run import replaced

pytestmark = pytest.mark.slow


def test_the_toy_is_learned(tmp_path: Path) -> None:
    """Random actions return about 12 of 50, a hand-written controller more than 35."""
    config = replaced(
        PRESETS["quick"],
        task="toy_reach",
        collect={"episodes": 12},
        run={"threads": 1, "evaluate_every": 0, "video_every": 0},
    )
    path, _ = runs.train(config, tmp_path / "run")
    learned = read_metrics(path / "metrics.jsonl")[-1]["evaluation_return"]
    aimless = np.mean(
        random_return("toy_reach", EnvConfig(observation=("state",)), 20, 0, "random")
    )
    assert aimless < 20
    assert learned > 1.6 * aimless, f"{learned:.1f} against {aimless:.1f} at random"


def test_the_pole_swings_up_from_three_sensors(tmp_path: Path) -> None:
    """The run of `make train`: random actions return about 130, zero actions 0."""
    config = replaced(PRESETS["quick"], run={"threads": 1})
    path, _ = runs.train(config, tmp_path / "run")
    assert read_metrics(path / "metrics.jsonl")[-1]["evaluation_return"] > 600
