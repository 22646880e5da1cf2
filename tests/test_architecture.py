"""Who may import whom: a test that walks the imports and fails on any other arrow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import planet_bayes

ROOT = Path(planet_bayes.__file__).parent
BASE = {"errors", "rng", "types"}
ALLOWED = {
    "planner": set(),
    "errors": set(),
    "rng": set(),
    "types": set(),
    "files": {"errors"},
    "envs": {"errors", "rng"},
    "models": {"errors", "types"},
    "replay": {"errors", "files", "types"},
    "agent": {"models", "planner", "types"},
    "config": {"envs", "errors", "files", "models", "planner"},
    "training": {"agent", "config", "envs", "files", "models", "planner", "replay", *BASE},
    "runs": {"agent", "config", "envs", "files", "models", "training", *BASE},
    "watch": {"config", "training"},
    "memory": set(),
    "bench": {
        *("agent", "config", "envs", "memory", "models", "planner", "replay", "training"),
        *BASE,
    },
    "experiments": {"config", "envs", "models", "planner", "replay", "runs", "training", *BASE},
    "cli": {"bench", "files", "runs", "watch", "config", "envs", "planner", "training", *BASE},
}
THIRD_PARTY = {
    "planner": {"torch"},
    "models": {"torch"},
    "agent": {"torch", "numpy"},
    "experiments": {"PIL", "matplotlib", "numpy", "rich", "torch", "tyro"},
}


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            if node.module == "planet_bayes":
                found |= {f"planet_bayes.{alias.name}" for alias in node.names}
    return found


def packages() -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if name != "__init__":
            files.setdefault(name, []).append(path)
    return files


def test_every_package_has_a_rule() -> None:
    assert set(packages()) == set(ALLOWED)


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_imports_point_downwards(name: str) -> None:
    for path in packages()[name]:
        found = imports(path)
        ours = {word.split(".")[1] for word in found if word.startswith("planet_bayes.")}
        assert ours - {name} <= ALLOWED[name], path
        if name in THIRD_PARTY:
            other = {word.split(".")[0] for word in found} - set(sys.stdlib_module_names)
            assert other - {"planet_bayes"} <= THIRD_PARTY[name], path


def test_the_planner_alone_loads_neither_environments_nor_models() -> None:
    code = (
        "import sys, planet_bayes.planner;"
        "print([m for m in ('gymnasium', 'mujoco', 'tyro', 'planet_bayes.models')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    assert planet_bayes.__all__
    for name in planet_bayes.__all__:
        assert getattr(planet_bayes, name) is not None
