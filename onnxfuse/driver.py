"""The NVIDIA driver of this machine, asked by its C API."""

from __future__ import annotations

import ctypes
import sys

MAJOR, MINOR = 75, 76  # attributes of a device: its compute capability


def gpus() -> list[str]:
    """Names of the NVIDIA GPUs that the driver shows; empty without a driver."""
    cuda, count = _driver()
    return [name for ordinal in range(count) if cuda and (name := _gpu_name(cuda, ordinal))]


def architectures() -> list[int]:
    """Those of the GPUs that the driver shows, 90 for compute capability 9.0; empty without a driver."""
    cuda, count = _driver()
    return [arch for ordinal in range(count) if cuda and (arch := _architecture(cuda, ordinal))]


def _driver() -> tuple[ctypes.CDLL | None, int]:
    """The driver and how many devices it shows."""
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None, 0
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None, 0
    return cuda, count.value


def _gpu_name(cuda: ctypes.CDLL, ordinal: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or cuda.cuDeviceGetName(name, len(name), device):
        return ""
    return name.value.decode(errors="replace")


def _architecture(cuda: ctypes.CDLL, ordinal: int) -> int:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    wanted = ((MAJOR, major), (MINOR, minor))
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal):
        return 0
    if any(cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device) for attribute, number in wanted):
        return 0
    return 10 * major.value + minor.value
