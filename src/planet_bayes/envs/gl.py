"""Rendering without a display: which OpenGL backend MuJoCo loads, and what to say if none does.

MuJoCo reads ``MUJOCO_GL`` once, when it is imported, so `choose_backend` has to run before that.
"""

import ctypes
import os
import sys

_PLATFORM_DEVICE = 0x313F  # EGL_PLATFORM_DEVICE_EXT


def choose_backend() -> None:
    """Set ``MUJOCO_GL`` on Linux: EGL if it works, with or without a display, else off.

    A choice that the user made is left alone. Naming a backend that is missing would make the
    *import* of MuJoCo fail, and leaving the choice to it warns where there is no display, while
    observations other than pixels need no backend at all: hence ``off``.
    """
    if not os.environ.get("MUJOCO_GL") and sys.platform.startswith("linux"):
        os.environ["MUJOCO_GL"] = "egl" if egl_works() else "off"


def egl_works() -> bool:
    """Return whether EGL can open a display on some device, which is what MuJoCo will ask of it.

    Finding the library says too little: without a driver it loads and opens nothing.
    """
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    display = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if not query or not display:
        return False
    devices = (ctypes.c_void_p * 16)()
    count = ctypes.c_int()
    query_devices = ctypes.CFUNCTYPE(
        ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)
    )(query)
    get_display = ctypes.CFUNCTYPE(
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
    )(display)
    if not query_devices(len(devices), devices, ctypes.byref(count)):
        return False
    for device in devices[: count.value]:
        opened = get_display(_PLATFORM_DEVICE, device, None)
        if opened and egl.eglInitialize(ctypes.c_void_p(opened), None, None):
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
