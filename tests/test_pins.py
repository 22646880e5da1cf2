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
ALL_PINS = json.loads((HERE / "data" / "pins.json").read_text())
"""By the maker of the processor. MKL's portable products of few rows round differently on theirs.
Version 0.1 printed the returns under AuthenticAMD for its exported agent."""


def maker() -> str:
    """Return the processor's maker; AMD's pins are those of any other."""
    intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    return "GenuineIntel" if intel else "AuthenticAMD"


PINS = ALL_PINS[maker()]


def test_every_pinned_run_has_its_hashes() -> None:
    for pins in ALL_PINS.values():
        assert set(pins["trained"]) == set(configurations())


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
    assert found["evaluated"] == PINS["evaluated"]
