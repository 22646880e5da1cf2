"""A change of structure moves no digit, neither of new runs nor of those that version 0.1 began.

The files of version 0.1 are half of a run each. All runs are made in one fresh process with
portable arithmetic, in one test: a second worker would make them again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import planet_bayes
from pinned_runs import PORTABLE, configurations

HERE = Path(__file__).parent
SOURCE = str(Path(planet_bayes.__file__).parents[1])
PINS = json.loads((HERE / "data" / "pins.json").read_text())
OLD_RETURNS = [1.394311701914329, 2.7175370505149288]
"""What version 0.1 printed for its exported agent."""


def test_every_pinned_run_has_its_hashes() -> None:
    assert set(PINS["trained"]) == set(configurations())


def test_nothing_moved_and_old_files_go_on(tmp_path: Path) -> None:
    """Train all pinned runs, resume the old ones and evaluate the old agent."""
    result = subprocess.run(
        [sys.executable, str(HERE / "pinned_runs.py"), str(tmp_path)],
        env=os.environ | PORTABLE | {"PYTHONPATH": os.pathsep.join([str(HERE), SOURCE])},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["trained"] == PINS["trained"]
    assert found["resumed"] == PINS["resumed"]
    assert found["evaluated"] == OLD_RETURNS
