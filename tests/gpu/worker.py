"""A process of its own for the fake driver: `python -m tests.gpu.worker LIBRARY FAKES`. Requests come in, answers go out.

Both are pickles on the standard streams. A request is (method, arguments); an answer is ("done", value) or ("error", text).
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from onnx import helper

from onnxfuse.op import ONNX_TYPES
from tests.gpu.runtime import CUDA, Info, Run, Runtime, Value, allocated
from tests.kernels.harness import at_page_end


class Worker:
    def __init__(self, library: Path, fakes: Path) -> None:
        # By their names, which dlopen then finds loaded.
        self._driver = ctypes.CDLL(str(fakes / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self._driver.fake_cuda_log.restype = ctypes.c_char_p
        ctypes.CDLL(str(fakes / "libnvrtc.so.13"), mode=ctypes.RTLD_GLOBAL)
        self._runtime = Runtime(library, is_sanitized="libasan" in os.environ.get("LD_PRELOAD", ""))
        self._ops: dict[tuple[str, ...], dict[tuple[str, str], list[int]]] = {}

    def registered(self, config: Mapping[str, str], available: Sequence[str] | None = None) -> list[tuple[str, str, int]]:
        """(name, provider, number of type choices) of every op that a session gets."""
        if available is not None:
            self._runtime.available = list(available)
        return [(name, provider, len(ops)) for (name, provider), ops in self._runtime.session(config).items()]

    def fail(self, function: str, error: int) -> None:
        self._driver.fake_cuda_fail(function.encode(), error)

    def reverse(self, *, on: bool) -> None:
        self._driver.fake_cuda_reverse(int(on))

    def set_variable(self, name: str, value: str) -> None:
        os.environ[name] = value
        ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)

    def launches(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._driver.fake_cuda_log().decode().splitlines()]

    def run(
        self,
        op: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[tuple[bytes, str, tuple[int, ...]] | None],
        output_types: Sequence[str | None],
        *,
        declared: Sequence[Any] | None = None,
        device: int = 0,
        over: Mapping[int, int] | None = None,
        threads: int = 1,
        runs: int = 1,
        only_make: bool = False,
        missing: int = 0,
    ) -> tuple[list[list[Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """The outputs of every run, what was launched for the making, and what for the runs."""
        arrays = [None if i is None else _unpacked(i) for i in inputs]
        ops = self._session(device)[op, CUDA]
        types = [0 if a is None else int(helper.np_dtype_to_tensor_dtype(a.dtype)) for a in arrays]
        chosen = self._runtime.op_for(ops, types)
        shapes = declared if declared is not None else [None if a is None else a.shape for a in arrays]
        infos = [None if s is None else (t, s) for t, s in zip(types, shapes, strict=True)]
        named = max(number for number, kind in enumerate(output_types, 1) if kind is not None)  # a node ends with its last output
        kernel = self._runtime.make(chosen, Info(attributes, infos, named, device))
        made = self.launches()

        def one(_: int) -> list[Any]:
            own = [None if a is None else Value(self._placed(a, missing), device) for a in arrays]
            kinds = [0 if t is None else ONNX_TYPES[t] for t in output_types]
            call = Run(own, [t is not None for t in output_types], device, over or {}, types=kinds)
            return [None if o is None else _packed(o) for o in self._runtime.run(chosen, kernel, call)]

        if only_make:
            results = []
        elif threads == 1:
            results = [one(i) for i in range(runs)]
        else:
            with ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(one, range(runs)))
        self._runtime.destroy(chosen, kernel)
        return results, made, self.launches()

    def _placed(self, array: Any, missing: int) -> Any:
        """A copy that ends where no access is allowed any more; under AddressSanitizer `missing` bytes earlier."""
        return allocated(array, missing) if self._runtime.is_sanitized else at_page_end(array)

    def _session(self, device: int) -> dict[tuple[str, str], list[int]]:
        entry = f"{CUDA}:{device},CPUExecutionProvider"
        if (entry,) not in self._ops:
            self._ops[(entry,)] = self._runtime.session({"onnxfuse.providers": entry})
        return self._ops[(entry,)]


def _unpacked(value: tuple[bytes, str, tuple[int, ...]]) -> Any:
    import ml_dtypes  # noqa: F401 - registers bfloat16 with numpy
    import numpy as np

    data, dtype, shape = value
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()


def _packed(array: Any) -> tuple[bytes, str, tuple[int, ...]]:
    return array.tobytes(), array.dtype.name, array.shape


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed goes to the error stream
    worker = Worker(Path(sys.argv[1]), Path(sys.argv[2]))
    while True:
        try:
            method, arguments, keywords = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("done", getattr(worker, method)(*arguments, **keywords))
        except Exception as error:  # noqa: BLE001 - the test judges it
            answer = ("error", f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
