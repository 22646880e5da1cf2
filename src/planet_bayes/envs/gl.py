"""Rendering without a display: the choice of MuJoCo's OpenGL backend, and advice if none works.

MuJoCo reads ``MUJOCO_GL`` once, when it is imported. Call `choose_backend` before that.
"""

import ctypes
import os
import sys

EGL_PLATFORM_DEVICE_EXT = 0x313F
MAX_EGL_DEVICES = 16


def choose_backend() -> None:
    """Set ``MUJOCO_GL`` on Linux: to ``egl`` if EGL works, else to ``off``.

    A value that the user has set is kept. ``off`` is needed because observations other than pixels
    need no backend: MuJoCo fails at import if the named backend is missing, and warns if none is
    named and there is no display.
    """
    if not os.environ.get("MUJOCO_GL") and sys.platform.startswith("linux"):
        os.environ["MUJOCO_GL"] = "egl" if egl_works() else "off"


def egl_works() -> bool:
    """Return whether EGL can open a display on some device, as MuJoCo does.

    The library alone is not enough: without a driver it loads but opens no display.
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
    devices = (ctypes.c_void_p * MAX_EGL_DEVICES)()
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
        opened = get_display(EGL_PLATFORM_DEVICE_EXT, device, None)
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
