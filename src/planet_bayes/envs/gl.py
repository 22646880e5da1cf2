"""Rendering without a display: which OpenGL backend MuJoCo loads, and what to say if none does.

MuJoCo reads ``MUJOCO_GL`` once, when it is imported, so `choose_backend` has to run before that.
"""

import ctypes
import os
import sys


def choose_backend() -> None:
    """Set ``MUJOCO_GL`` on a Linux machine without a display: EGL if it can be loaded, else off.

    A choice that the user made is left alone. Naming a backend that is missing would make the
    *import* of MuJoCo fail, and leaving the choice to it warns about the missing display, while
    observations other than pixels need no backend at all: hence ``off``.
    """
    if os.environ.get("MUJOCO_GL") or not sys.platform.startswith("linux"):
        return
    if not os.environ.get("DISPLAY"):
        os.environ["MUJOCO_GL"] = "egl" if egl_loads() else "off"


def egl_loads() -> bool:
    """Return whether the EGL library can be loaded."""
    # Loading it is the only sure test: find_library needs ldconfig or gcc, which slim images lack.
    for name in ("libEGL.so.1", "libEGL.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def advice() -> str:
    """Return what to do when MuJoCo cannot render."""
    if not sys.platform.startswith("linux"):
        return "MuJoCo needs a working OpenGL; observation 'sensors' needs none."
    sudo = "" if os.geteuid() == 0 else "sudo "
    backend = os.environ.get("MUJOCO_GL") or "unset"
    return (
        f"MuJoCo needs OpenGL (MUJOCO_GL is {backend}). Without a display, install EGL: "
        f"`{sudo}apt-get install -y libegl1 libgl1-mesa-dri`, leave MUJOCO_GL unset and start "
        "again; or use observation 'sensors', which needs no OpenGL."
    )
