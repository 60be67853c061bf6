"""Runs Triton kernels on the CPU, block by block, in a process of its own: `TRITON_INTERPRET=1 python -m tests.compiled.interpreter`.

Reads pickled requests (file, function, grid, arguments) and answers with the buffers after the run, or with what went wrong.
"""

from __future__ import annotations

import inspect
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse.kernel_build import worker

CANARY = 256  # elements on either side of a buffer that no kernel may write, and none may take for a value


class _DType:
    """Triton reads the name behind the point."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"torch.{self._name}"


# Triton keeps these by their address, so they must never go away.
DTYPES = {np.dtype(name): _DType(name) for name in ("float16", "float32", "uint8")}


class Buffer:
    """Just as much of a torch.Tensor as the interpreter asks for, over host memory: NaN, or 255, around the values."""

    def __init__(self, values: Any, offset: int) -> None:
        self._values = values.size
        self.padded = np.full(values.size + 2 * CANARY, 255 if values.dtype == np.uint8 else np.nan, values.dtype)
        self.array = self.padded[CANARY : CANARY + values.size]
        self.array[:] = values.reshape(-1)
        self.dtype = DTYPES[values.dtype]
        self._offset = offset * values.itemsize

    def rim_is_whole(self) -> bool:
        rim = np.concatenate([self.padded[:CANARY], self.padded[CANARY + self._values :]])
        return bool((rim == 255).all() if rim.dtype == np.uint8 else np.isnan(rim).all())

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data) + self._offset

    def untyped_storage(self) -> Buffer:
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return (self._values,)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def cpu(self) -> Buffer:
        return self

    def new_empty(self, *_: Any, **__: Any) -> Buffer:
        return self

    def set_(self, *_: Any) -> Buffer:
        return self

    def copy_(self, _: Any) -> None:
        """Nothing to bring back: the memory is the host's."""


def run(modules: dict[str, Any], file: str, function: str, grid: int, arguments: dict[str, Any], buffers: dict[str, Any]) -> dict[str, Any]:
    """The buffers after one launch. arguments: numbers and None as they are, ("buffer", name, offset) for a pointer."""
    module = modules.setdefault(file, None) or worker.load(Path(file))
    modules[file] = module
    memory = {name: Buffer(values, 0) for name, values in buffers.items()}
    passed = {name: arguments[name] for name in inspect.signature(getattr(module, function).fn).parameters}
    for name, value in passed.items():
        if isinstance(value, tuple):
            _, buffer, offset = value
            view = Buffer.__new__(Buffer)
            view.__dict__ |= memory[buffer].__dict__ | {"_offset": offset * buffers[buffer].itemsize}
            passed[name] = view
    with np.errstate(all="ignore"):
        getattr(module, function)[(grid,)](**passed)
    broken = [name for name, one in memory.items() if not one.rim_is_whole()]
    if broken:
        raise AssertionError(f"{function} wrote outside of {broken}")
    return {name: one.array.reshape(buffers[name].shape) for name, one in memory.items()}


def main() -> None:
    modules: dict[str, Any] = {}
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("done", run(modules, *request))
        except Exception:
            answer = ("error", traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
