"""Building the native kernel: clean under sanitizers, and left out where there is no compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from planet_bayes.models.kernels import native
from test_native import problem
from test_wheel import build_wheel

SOURCE = Path(native.__file__).parent / "cpp" / "native.cpp"
DRIVER = Path(__file__).with_name("native_driver.cpp")
COMPILER = shutil.which("c++")
AVX2 = ("-mavx2", "-mfma")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
needs_avx2 = pytest.mark.skipif("avx2" not in native.available(), reason="there is no AVX2")


def compiled(source: Path, target: Path, *flags: str) -> Path:
    assert COMPILER is not None
    words = [COMPILER, "-std=c++17", "-ffp-contract=fast", "-pthread", *flags]
    subprocess.run([*words, str(source), "-o", str(target)], check=True)
    return target


@needs_compiler
@pytest.mark.parametrize(
    "flags",
    [
        AVX2 if "avx2" in native.available() else (),
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("-DLANES=16",), marks=pytest.mark.slow),
    ],
)
def test_sanitizers_find_nothing(tmp_path: Path, flags: tuple[str, ...]) -> None:
    sanitizers = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-psabi")
    driver = compiled(DRIVER, tmp_path / "driver", *sanitizers, *flags)
    result = subprocess.run([driver, "0", "100"], capture_output=True, text=True)
    assert result.stdout == "sound\n", result.stdout + result.stderr


@needs_compiler
@pytest.mark.slow
def test_vectors_of_sixteen_are_the_plain_rollout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a processor with AVX-512, in the instructions of this one."""
    flags = ("-O2", "-shared", "-fPIC", "-DLANES=16", "-Wno-psabi")
    path = compiled(SOURCE, tmp_path / "native.so", *flags)
    monkeypatch.setattr(native, "_path", lambda name: path)
    monkeypatch.setenv(native.VARIABLE, "portable")
    native.library.cache_clear()
    try:
        assert native.library("portable").planet_bayes_lanes() == 16
        for noise in ("independent", "mean"):
            for activation in ("relu", "elu", "silu"):
                case = problem(3, 61, deter=33, stoch=18, latent_noise=noise, activation=activation)
                case.assert_plain()
    finally:
        native.library.cache_clear()


def test_without_a_compiler_the_package_is_installed_all_the_same(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, {"CC": "/bin/false", "CXX": "/bin/false"})
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert not [name for name in names if name.endswith(".so")]
        archive.extractall(tmp_path / "installed")
    code = (
        "import planet_bayes\n"
        "from planet_bayes.models.kernels import native\n"
        "print(planet_bayes.__file__, native.available(), native.chosen())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    where = tmp_path / "installed" / "planet_bayes" / "__init__.py"
    assert result.stdout == f"{where} [] torch\n"
