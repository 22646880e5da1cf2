"""Learning, for minutes: `make slow`. The level of random actions stands beside each bound."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from planet_bayes import runs
from planet_bayes.config import PRESETS
from planet_bayes.envs import EnvConfig, random_return
from planet_bayes.training.metrics import read_metrics

pytestmark = pytest.mark.slow


def test_the_toy_is_learned(tmp_path: Path) -> None:
    """Random actions return about 12 of 50, a hand-written controller more than 35."""
    preset = PRESETS["quick"]
    config = dataclasses.replace(
        preset,
        task="toy_reach",
        threads=1,
        train=dataclasses.replace(preset.train, episodes=12, evaluate_every=0, video_every=0),
    )
    path, _ = runs.train(config, tmp_path / "run")
    learned = read_metrics(path / "metrics.jsonl")[-1]["evaluation_return"]
    aimless = np.mean(random_return("toy_reach", EnvConfig("state"), 20, 0, "random"))
    assert aimless < 20
    assert learned > 1.6 * aimless, f"{learned:.1f} against {aimless:.1f} at random"


def test_the_pole_swings_up_from_three_sensors(tmp_path: Path) -> None:
    """What `make train` runs: random actions return about 130, doing nothing 0."""
    config = dataclasses.replace(PRESETS["quick"], threads=1)
    path, _ = runs.train(config, tmp_path / "run")
    assert read_metrics(path / "metrics.jsonl")[-1]["evaluation_return"] > 600
