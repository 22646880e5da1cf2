"""An exported agent acts where no environment and no simulator is installed."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.envs import EnvConfig
from tiny_run import replaced

FORBIDDEN = ("gymnasium", "mujoco", "dm_control", "shimmy", "test_export")

CODE = """
import importlib.abc, json, sys
import numpy as np

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Refuse())
import torch
from planet_bayes import load_run
torch.set_num_threads(1)
run = load_run(sys.argv[2], device="cpu")
agent, generator = run.agent, torch.Generator().manual_seed(7)
carry = agent.initial()
actions = []
with np.load(sys.argv[3]) as arrays:
    for step in range(len(arrays["joints"])):
        raw = {name: arrays[name][step] for name in arrays.files}
        action, carry, _ = agent.act(carry, [raw], generator)
        actions.append(action[0].tolist())
loaded = sorted(set(sys.argv[1].split(",")) & set(sys.modules))
print(json.dumps({"actions": actions, "loaded": loaded}))
"""


def make(render_mode: str = "rgb_array"):
    from planet_bayes.envs import ToyReach

    return ToyReach(image_size=48, render_mode=render_mode)


@pytest.fixture(scope="module")
def exported(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent with a camera and joints, trained in an environment of this module."""
    folder = tmp_path_factory.mktemp("exported")
    config = replaced(
        tiny,
        task=f"{__name__}:make",
        env=EnvConfig(
            observation=("camera=pixels", "joints=sensors"),
            image_size=32,
            blur=3,
            sensors=(0, 1, 4, 5),
            max_steps=6,
        ),
        model={"image_depth": 2},
        collect={"episodes": 1},
    )
    run, ended = runs.train(config, folder / "run")
    assert ended
    return runs.export(run, folder / "agent")


def test_an_export_acts_the_same_without_gymnasium_mujoco_and_the_users_module(
    exported: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    raw: dict[str, Any] = {
        "camera": rng.integers(0, 256, (3, 48, 60, 3), np.uint8),  # a frame of another size
        "joints": rng.normal(size=(3, 6)),
    }
    np.savez(tmp_path / "raw.npz", **raw)
    result = subprocess.run(
        [sys.executable, "-c", CODE, ",".join(FORBIDDEN), str(exported), str(tmp_path / "raw.npz")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["loaded"] == []
    run = runs.load_run(exported, device="cpu")
    carry, generator = run.agent.initial(), torch.Generator().manual_seed(7)
    for step, action in enumerate(answer["actions"]):
        one = {name: values[step] for name, values in raw.items()}
        expected, carry, _ = run.agent.act(carry, [one], generator)
        assert expected[0].tolist() == action


def test_an_export_holds_what_acting_needs_and_nothing_else(exported: Path) -> None:
    names = sorted(path.name for path in exported.rglob("*") if path.is_file())
    assert names == [
        "SHA256SUMS",
        "config.json",
        "config.json",
        "model.safetensors",
        "progress.json",
        "signature.json",
    ]
    signature = runs.load_run(exported).agent.signature
    assert {name: part.kind for name, part in signature.observation.items()} == {
        "camera": "image",
        "joints": "vector",
    }
    assert signature.observation["joints"].shape == (4,)


def test_loading_makes_no_environment(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.setattr("planet_bayes.envs.make.make_env", refuse)
    assert runs.load_run(exported).agent.signature.action.size == 2
