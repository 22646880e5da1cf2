"""Runs and agents of format 0.1, committed under tests/data, load, act and go on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import planet_bayes
from pinned_runs import PORTABLE

HERE = Path(__file__).parent
SOURCE = str(Path(planet_bayes.__file__).parents[1])
OLD = HERE / "data" / "format-0.1"
PINS = json.loads((HERE / "data" / "pins.json").read_text())

CODE = """
import json, sys
from pathlib import Path
import torch
from planet_bayes import runs
from pinned_runs import hashes
torch.set_num_threads(1)
path = Path(sys.argv[1])
if sys.argv[2] == "resume":
    runs.train(runs.resume_config(path), path, resume=True)
    print(json.dumps(hashes(path)))
else:
    print(json.dumps(runs.evaluate(runs.load_run(path, device="cpu"), 2)))
"""


def run(path: Path, what: str) -> object:
    result = subprocess.run(
        [sys.executable, "-c", CODE, str(path), what],
        cwd=HERE,
        env=os.environ | PORTABLE | {"PYTHONPATH": os.pathsep.join([str(HERE), SOURCE])},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["sensors", "pixels"])
def test_an_old_run_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / name, tmp_path / "run")
    assert run(tmp_path / "run", "resume") == PINS[name]


def test_an_old_export_acts_as_it_did(tmp_path: Path) -> None:
    shutil.copytree(OLD / "exported-planet", tmp_path / "agent")
    assert run(tmp_path / "agent", "evaluate") == [1.394311701914329, 2.7175370505149288]
