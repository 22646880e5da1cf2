"""A change of structure moves no digit: hashes of tiny runs, from before the change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinned_runs import PORTABLE, configurations

HERE = Path(__file__).parent
PINS = json.loads((HERE / "data" / "pins.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Train all pinned runs in one fresh process with portable arithmetic."""
    result = subprocess.run(
        [sys.executable, str(HERE / "pinned_runs.py"), str(tmp_path_factory.mktemp("pinned"))],
        env=os.environ | PORTABLE,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_pinned_run_has_its_hashes() -> None:
    assert set(PINS) == set(configurations())


@pytest.mark.parametrize("name", sorted(PINS))
def test_nothing_moved(found: dict[str, dict[str, str]], name: str) -> None:
    assert found[name] == PINS[name]
