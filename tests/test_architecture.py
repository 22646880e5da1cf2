"""Who may import whom: a test that walks the imports and fails on any other arrow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import planet_bayes

ROOT = Path(planet_bayes.__file__).parent
TESTS = Path(__file__).parent
MAX_SOURCE_LINES, MAX_TEST_LINES = 300, 500
BASE = {"checks", "errors", "extras", "lazy", "machine", "plugins", "rng", "spaces", "types"}
ALLOWED = {
    "errors": set(),
    "extras": set(),
    "lazy": set(),
    "machine": {"models"},
    "plugins": {"errors"},
    "rng": set(),
    "types": set(),
    "checks": {"errors"},
    "planner": {"errors", "lazy"},
    "models": {"checks", "errors", "lazy", "types"},
    "spaces": {"errors", "models", "planner"},
    "confidence": {"errors", "models", "types"},
    "agent": {"confidence", "errors", "models", "planner", "spaces", "types"},
    "guard": {"agent", "confidence", "errors", "planner"},
    "data": {"errors", "types"},
    "envs": {"checks", "errors", "extras", "lazy", "models", "plugins", "rng", "spaces"},
    "config": {"checks", "data", "envs", "errors", "models", "planner"},
    "training": {"agent", "config", "data", "envs", "models", "planner", *BASE},
    "runs": {"agent", "confidence", "config", "data", "envs", "training", *BASE},
    "diagnostics": {
        *("agent", "confidence", "config", "data", "envs", "models", "planner", "runs"),
        *("training", *BASE),
    },
    "results": {"config", "data", "envs", "errors"},
    "sweep": {"config", "data", "errors", "plugins", "results"},
    "bench": {"agent", "config", "data", "envs", "models", "planner", "training", *BASE},
    "cli": {
        *("bench", "config", "data", "diagnostics", "envs", "planner", "results", "runs"),
        *("sweep", "training", *BASE),
    },
}
THIRD_PARTY = {
    "planner": {"torch"},
    "models": {"torch", "numpy", "cv2", "PIL"},
    "spaces": {"torch", "numpy"},
    "agent": {"torch", "numpy"},
    "confidence": {"torch", "numpy"},
    "guard": {"torch", "numpy"},
    "data": {"torch", "numpy"},
    "results": {"numpy", "matplotlib", "scipy"},
    "sweep": {"ray"},
}


def module_name(path: Path) -> str:
    parts = ["planet_bayes", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(path: Path) -> set[str]:
    """Return the dotted names of the modules that a file imports, at whatever place."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = inner & set(MODULES)
            found |= submodules
            if len(submodules) < len(inner):
                found.add(node.module)
    return found


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_package_has_a_rule() -> None:
    assert {room(name) for name in MODULES if "." in name} == set(ALLOWED)


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_imports_point_downwards(name: str) -> None:
    for module, path in MODULES.items():
        if "." not in module or room(module) != name:
            continue
        found = imports(path)
        ours = {room(word) for word in found if word.startswith("planet_bayes.")}
        assert ours - {name} <= ALLOWED[name], path
        if name in THIRD_PARTY:
            other = {word.split(".")[0] for word in found} - set(sys.stdlib_module_names)
            assert other - {"planet_bayes"} <= THIRD_PARTY[name], path


def test_there_is_no_cycle_inside_packages_either() -> None:
    graph = {
        module: {name for name in imports(path) if name in MODULES and name != "planet_bayes"}
        for module, path in MODULES.items()
        if module != "planet_bayes"
    }
    done: set[str] = set()

    def walk(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " → ".join((*above[above.index(module) :], module))
        if module not in done:
            for name in sorted(graph[module]):
                walk(name, (*above, module))
            done.add(module)

    for module in graph:
        walk(module, ())


def test_no_file_is_too_long() -> None:
    def lines(path: Path) -> int:
        return len(path.read_text().splitlines())

    long = {path.name: lines(path) for path in MODULES.values() if lines(path) > MAX_SOURCE_LINES}
    long |= {path.name: lines(path) for path in TESTS.rglob("*.py") if lines(path) > MAX_TEST_LINES}
    assert long == {}


def loaded_by(statement: str, *names: str) -> list[str]:
    """Return which of the modules are loaded after a statement in a fresh process."""
    code = f"import sys; {statement}; print(*[m for m in {names!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_the_planner_alone_loads_neither_environments_nor_models() -> None:
    names = ("gymnasium", "mujoco", "tyro", "planet_bayes.models")
    assert loaded_by("from planet_bayes.planner import *", *names) == []


def test_results_need_no_torch() -> None:
    statement = (
        "import planet_bayes.results.tables, planet_bayes.results.figures, "
        "planet_bayes.results.archive"
    )
    assert loaded_by(statement, "torch") == []


def test_every_public_name_exists() -> None:
    assert planet_bayes.__all__
    for name in planet_bayes.__all__:
        assert getattr(planet_bayes, name) is not None
    assert set(planet_bayes.__all__) == set(dir(planet_bayes))
