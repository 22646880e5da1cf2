"""The wheel without extras: the planner, with PyTorch and NumPy and nothing else."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from planet_bayes.models.kernels import native

REPOSITORY = Path(__file__).parent.parent

CODE = """
import importlib.util, torch
for name in ("gymnasium", "mujoco", "dm_control", "tyro", "rich", "cv2", "safetensors"):
    assert importlib.util.find_spec(name) is None, name
from planet_bayes.planner import Bounds, paets, plan

class Cart:
    def imagine(self, state, actions, generator):
        return -(state[:, None, None] + actions.cumsum(2)).square().sum(-1).unsqueeze(2)

config = paets(horizon=3, num_trajectories=200)
result = plan(Cart(), torch.ones(1, 2), Bounds.symmetric(2), config, torch.Generator())
print(float(result.action.max()))
"""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    words = list(map(str, command))
    result = subprocess.run(
        words, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def requirements(name: str) -> set[str]:
    """Return the distributions that one needs, with those that they need."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        try:
            needs = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        found.add(one)
        waiting += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
    return found


def build_wheel(folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Return a wheel, built with variables added to the environment."""
    source = folder / "source"
    left_out = shutil.ignore_patterns("*.egg-info", "*.so", "__pycache__")
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "-w", folder, source, environment=environment)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, compiled without optimisation, which takes most of the time."""
    folder = tmp_path_factory.mktemp("wheel")
    compiler = folder / "c++"
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    compiler.chmod(0o755)
    return build_wheel(folder, {"CC": str(compiler), "CXX": str(compiler)})


def test_the_wheel_plans_with_torch_and_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    builder = venv.EnvBuilder(with_pip=False, symlinks=True)
    builder.create(tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    (packages,) = (tmp_path / "clean" / "lib").glob("python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel)
    # The files of PyTorch and NumPy, and of what these need, as they are in this environment.
    for name in requirements("torch") | requirements("numpy"):
        distribution = importlib.metadata.distribution(name)
        tops = {Path(str(file)).parts[0] for file in distribution.files or ()} - {
            "..",
            "__pycache__",
        }
        for top in tops:
            target = packages / top
            if not target.exists():
                target.symlink_to(str(distribution.locate_file(top)))
    assert float(run(python, "-c", CODE, cwd=tmp_path)) < 0


def test_the_wheel_requires_torch_and_numpy_only(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    (folder,) = tmp_path.glob("*.dist-info")
    metadata = importlib.metadata.PathDistribution(folder)
    needs = [need for need in metadata.requires or [] if "extra ==" not in need]
    assert sorted(re.split(r"[<>=]", need)[0] for need in needs) == ["numpy", "torch"]
    assert metadata.version == "0.2.0"
    assert (tmp_path / "planet_bayes" / "py.typed").is_file()


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_wheel_has_the_native_kernel(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    found = (tmp_path / "planet_bayes" / "models" / "kernels").glob("_native_*.so")
    names = {path.name.split(".")[0].removeprefix("_native_") for path in found}
    assert names >= set(native.available())
