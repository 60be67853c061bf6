"""The ctypes side of probe.cc: arrays in, arrays out, one instruction set at a time."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
ISAS = {"baseline": 0, "avx2": 1, "avx512": 2, "amx": 3}
LANES = {"baseline": 4, "avx2": 8, "avx512": 16, "amx": 16}
TYPES: dict[str, tuple[int, Any]] = {"float": (0, np.float32), "float16": (1, np.float16), "bfloat16": (2, ml_dtypes.bfloat16)}
# In the order of probe.cc's enum.
FUNCTIONS = ["copy", "exp", "erf", "tanh", "sigmoid", "rsqrt", "sqrt", "divide", "fma", "neg_fma", "min", "max", "abs",
             "copy_sign", "round_even", "floor", "negate", "less", "less_equal", "equal", "not_equal", "is_nan", "exp_two"]  # fmt: skip
GUARD = 64  # elements of canary on either side of a guarded array


def build(source: Path, directory: Path, *, cmake: str, ninja: str, options: tuple[str, ...] = ()) -> Path:
    """Configure and build `source` into `directory`; returns the library. A failure is an AssertionError with the log."""
    configure = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", str(source), "-B", str(directory), *options]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer is for the tests
    for command in (configure, [ninja, "-j2", "-C", str(directory)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return directory / "onnxfuse_kernel_tests.so"


def at_page_end(array: Array) -> Array:
    """A copy whose last byte is the last before an unreadable page: a read past its end is a fault, not luck."""
    page = mmap.PAGESIZE
    room = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0) == 0
    copy: Array = np.frombuffer(memory, np.uint8, array.nbytes, room - array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def pointer(array: Array | None) -> ctypes.c_void_p:
    """Where the array's data starts; None is a null pointer."""
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


class Guarded:
    """A writable array inside a larger one whose rim must stay as it was: `with Guarded(shape, dtype) as y: ...`."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._bytes = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        self._size = size
        self.array: Array = self._bytes[GUARD : GUARD + size].view(dtype).reshape(shape)

    def __enter__(self) -> Array:
        return self.array

    def __exit__(self, *failure: object) -> None:
        rim = np.concatenate([self._bytes[:GUARD], self._bytes[GUARD + self._size :]])
        assert failure[0] is not None or (rim == 0xA5).all(), "memory outside the output was written"


class Kernels:
    """The loaded library. Its instruction set is process-wide, so one instance is used at a time."""

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        self.isa = ""

    def force_isa(self, isa: str) -> bool:
        """Run everything on `isa` from now on; False where the machine cannot."""
        self.isa = isa
        return bool(self.c.force_isa(ISAS[isa]))

    @property
    def lanes(self) -> int:
        return LANES[self.isa]

    def map(self, function: str, a: Array, b: Array | None = None, c: Array | None = None) -> Array:
        """f over 1-D arrays of one type, element by element."""
        kind = next(number for number, dtype in TYPES.values() if a.dtype == dtype)
        b, c = a if b is None else b, a if c is None else c
        with Guarded(a.shape, a.dtype) as y:
            self.c.probe_map(kind, pointer(a), pointer(b), pointer(c), pointer(y), ctypes.c_int64(a.size), FUNCTIONS.index(function))
        return y

    def reduce(self, a: Array, mask: Array) -> Array:
        """(sum, max, min, any, all, count) over at most one vector; the last three of the mask."""
        kind = next(number for number, dtype in TYPES.values() if a.dtype == dtype)
        with Guarded((6,), np.float32) as out:
            self.c.probe_reduce(kind, pointer(a), pointer(mask), pointer(out), ctypes.c_int64(a.size))
        return out

    def convert(self, conversion: int, x: Array, dtype: Any) -> Array:
        """Scalar conversions of half.h, as numbered in probe.cc."""
        with Guarded(x.shape, dtype) as y:
            self.c.probe_scalar(conversion, pointer(x), pointer(y), ctypes.c_int64(x.size))
        return y


def ulps(got: Array, want: Array) -> Array:
    """How far float32 `got` is from float64 `want`, in units of the last place of float32 at `want`.

    Equal NaNs and infinities are 0 apart; a NaN or infinity on one side only is inf.
    """
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(got)
        unit = np.spacing(np.abs(np.where(finite, rounded, 1)).astype(np.float32)).astype(np.float64)
        apart = np.abs(np.where(finite, got, 0).astype(np.float64) - np.where(finite, want, 0)) / unit
    same = (np.isnan(got) & np.isnan(want)) | (got == rounded)
    return np.where(finite, apart, np.where(same, 0.0, np.inf))
