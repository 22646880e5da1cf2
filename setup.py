"""The native kernels, one for each instruction set. Without a compiler, PyTorch does their work."""

import copy
import os
import platform

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/planet_bayes/models/kernels/cpp"
FLAGS = {"portable": []}
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS["avx2"] = ["-mavx2", "-mfma"]
    FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]


class BuildExt(build_ext):
    """Builds extensions of the same source at the same time: each has a folder for its objects."""

    def finalize_options(self) -> None:
        """Build all at once, also in an editable install, which ignores options of `setup`."""
        super().finalize_options()
        self.parallel = len(FLAGS)

    def build_extension(self, ext: Extension) -> None:
        """Build one extension."""
        own = copy.copy(self)
        own.build_temp = os.path.join(self.build_temp, ext.name)
        super(BuildExt, own).build_extension(ext)


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        Extension(
            f"planet_bayes.models.kernels._native_{name}",
            [f"{FOLDER}/native.cpp"],
            language="c++",
            depends=[
                f"{FOLDER}/{name}.hpp" for name in ("dense", "imagination", "filter", "layer")
            ],
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-ffp-contract=fast", *flags],
            extra_link_args=["-pthread"],
            optional=True,
        )
        for name, flags in FLAGS.items()
    ],
)
