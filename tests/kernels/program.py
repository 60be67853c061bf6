"""The ctypes side of probe_program.cc: a program's text and arrays in, arrays out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.harness import Array, Guarded, Kernels, at_page_end, pointer

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "double": np.float64,
    **{f"{sign}int{width}": getattr(np, f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64)},
    "bool": np.bool_,
}
REALS = ("float", "float16", "bfloat16", "double")
WHOLES = tuple(name for name in DTYPES if "int" in name)
MOST_DIMS = 512


class ProgramError(Exception):
    """What the C++ side threw."""


def _dims(shapes: Sequence[tuple[int, ...]]) -> Any:
    flat = [number for shape in shapes for number in (len(shape), *shape)]
    return (ctypes.c_int64 * max(len(flat), 1))(*flat)


class Compiled:
    """A program on the instruction set that is forced when it first runs. Raises ProgramError where it is none."""

    def __init__(self, kernels: Kernels, text: str, axes: int = 0) -> None:
        self._c = kernels.c
        self._c.program_make.restype = ctypes.c_void_p
        self._error = ctypes.create_string_buffer(512)
        self._state = ctypes.c_void_p(self._c.program_make(text.encode(), ctypes.c_int64(axes), self._error))
        self._raise()
        results = text.strip().split("\n")[-1].removeprefix("->").split(",")
        types = dict(part.split("=")[0].strip().split(":") for line in text.split("\n")[:-1] for part in self._typed(line))
        self._types = [types[name.strip()].split("/")[0] for name in results]

    def __del__(self) -> None:
        self._c.program_free(getattr(self, "_state", None))

    @staticmethod
    def _typed(line: str) -> list[str]:
        return [line] if "=" in line else line.split()

    def _raise(self) -> None:
        if self._error.value:
            raise ProgramError(self._error.value.decode())

    def shapes(self, inputs: Sequence[Array]) -> list[tuple[int, ...]]:
        """Shapes of the results."""
        out = (ctypes.c_int64 * MOST_DIMS)()
        self._c.program_shapes(self._state, _dims([x.shape for x in inputs]), out, self._error)
        self._raise()
        numbers, shapes = list(out), []
        for _ in self._types:
            rank = numbers[0]
            shapes.append(tuple(numbers[1 : 1 + rank]))
            numbers = numbers[1 + rank :]
        return shapes

    def __call__(self, *inputs: Array, threads: int = 1, over: int | None = None) -> list[Array]:
        """Results of one run, between canaries. over: the number of the input whose memory result 0 is."""
        given = [at_page_end(np.ascontiguousarray(x)) for x in inputs]
        with ExitStack() as stack:
            results = [
                stack.enter_context(Guarded(shape, DTYPES[kind])) for shape, kind in zip(self.shapes(inputs), self._types, strict=True)
            ]
            if over is not None:
                results[0][...] = given[over].view(results[0].dtype)
                given[over] = results[0]
            self._run(given, results, threads)
        return results

    def _run(self, inputs: list[Array], results: list[Array], threads: int) -> None:
        into = (ctypes.c_void_p * len(inputs))(*(pointer(x).value for x in inputs))
        out = (ctypes.c_void_p * len(results))(*(pointer(x).value for x in results))
        self._c.program_run(self._state, into, _dims([x.shape for x in inputs]), out, threads, self._error)
        self._raise()


def one(op: str, *types: str, result: str | None = None) -> str:
    """The program that does `op` on inputs of these types."""
    inputs = " ".join(f"x{i}:{kind}" for i, kind in enumerate(types))
    return f"{inputs}\nv0:{result or types[-1]} = {op}({', '.join(f'x{i}' for i in range(len(types)))})\n-> v0"
