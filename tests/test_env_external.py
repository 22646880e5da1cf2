"""Environments from outside the package, and the choice of an OpenGL backend."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from env_parts import SENSORS, STATE, package_path, prepared, rollout, same
from planet_bayes.envs import EnvConfig, gl, make_env
from planet_bayes.errors import EnvError
from planet_bayes.spaces import Box


def test_gymnasium_id_as_vector() -> None:
    env = make_env("Pendulum-v1", STATE)
    assert env.signature.observation["state"].shape == (3,)
    assert env.signature.action == Box((-2.0,), (2.0,))
    assert same(rollout(env, seed=1), rollout(make_env("Pendulum-v1", STATE), seed=1))
    some = make_env("Pendulum-v1", EnvConfig(("sensors",), sensors=(2, 0)))
    whole = prepared(env, env.reset(seed=1)[0])
    assert np.array_equal(prepared(some, some.reset(seed=1)[0]), whole[[2, 0]])
    assert make_env("Pendulum-v1", SENSORS).signature.observation["sensors"].shape == (3,)
    # The agent's 1 is the pendulum's torque of 2.
    env.step(np.ones(1, np.float32))
    assert env.unwrapped.last_u == 2.0  # type: ignore[attr-defined]


def test_gymnasium_id_as_pixels() -> None:
    try:
        import pygame  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with pytest.raises(EnvError, match=r"Pendulum-v1: render\(\) raised .*pygame") as caught:
            make_env("Pendulum-v1")
        assert "OpenGL" not in str(caught.value)  # which is not what is missing
    else:
        env = make_env("Pendulum-v1")
        assert prepared(env, env.reset(seed=0)[0]).shape == (64, 64, 3)


def test_own_function_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tasks.py").write_text(
        "import gymnasium\n"
        "from planet_bayes.envs import ToyReach\n"
        "def plain(): return ToyReach(40)\n"
        "def with_mode(*, render_mode=None): return ToyReach(40, render_mode=render_mode)\n"
        "def broken(): raise OSError('no robot')\n"
        "def number(): return 3\n"
        "constant = 3\n"
        "gymnasium.register('MyToy-v0', entry_point=with_mode)\n"
    )
    # Found in the current folder, without any help from the search path.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("plain", "with_mode", "MyToy-v0"):
        env = make_env(f"my_tasks:{name}", STATE)
        assert same(rollout(env, 1), rollout(make_env("toy_reach", STATE), 1))
    for name in ("with_mode", "MyToy-v0"):
        env = make_env(f"my_tasks:{name}")
        assert env.reset(seed=0)[0]["camera"].shape == (40, 40, 3)
        assert prepared(env, env.reset(seed=0)[0]).shape == (64, 64, 3)
    for name, message in {
        "broken": "raised OSError: no robot",
        "number": "returned a builtins.int, expected a gymnasium.Env",
        "constant": "'constant' is a int, expected a function",
        "plane": r"has no 'plane'.*did you mean 'plain'",
    }.items():
        with pytest.raises(EnvError, match=message):
            make_env(f"my_tasks:{name}", STATE)
    with pytest.raises(EnvError, match="could not import the module 'no_such_module'"):
        make_env("no_such_module:make", STATE)
    gymnasium.registry.pop("MyToy-v0")


# --- OpenGL


def test_without_opengl_sensors_work_and_render_says_what_to_install() -> None:
    code = (
        "from planet_bayes.envs import *; from planet_bayes.envs import gl; "
        "from planet_bayes.errors import EnvError; gl.egl_works = lambda: False\n"
        "env = make_env('cartpole_swingup', EnvConfig(('sensors',))); env.reset(seed=0)\n"
        "try: env.render()\n"
        "except EnvError as error: print(error)\n"
    )
    keep = {"PATH": "/usr/bin:/bin"} | package_path()  # neither DISPLAY nor MUJOCO_GL
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=keep)
    if sys.platform.startswith("linux"):
        assert "apt-get install -y libegl1 libgl1-mesa-dri" in run.stdout
        assert "MUJOCO_GL is off" in run.stdout
        assert run.stderr == ""


def test_backend_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    gl.choose_backend()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.delenv("DISPLAY", raising=False)
    for loads, expected in ((True, "egl"), (False, "off")):
        monkeypatch.setenv("MUJOCO_GL", "")
        monkeypatch.setattr(gl, "egl_works", lambda loads=loads: loads)
        gl.choose_backend()
        assert os.environ["MUJOCO_GL"] == expected
