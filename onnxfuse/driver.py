"""The NVIDIA driver of this machine, asked by its C API."""

from __future__ import annotations

import ctypes
import sys


def gpus() -> list[str]:
    """Names of the NVIDIA GPUs that the driver shows; empty without a driver."""
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [name for ordinal in range(count.value) if (name := _gpu_name(cuda, ordinal))]


def _gpu_name(cuda: ctypes.CDLL, ordinal: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or cuda.cuDeviceGetName(name, len(name), device):
        return ""
    return name.value.decode(errors="replace")
