"""Compiled kernels on a GPU, started by NVIDIA's driver as the library starts them, on memory of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

MAX_DYNAMIC_SHARED = 8  # attribute of a function
KINDS: dict[str, Any] = {"pointer": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}
TYPES = {torch.float32: "float", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.bool: "bool", torch.uint8: "bool"}
Facts = Mapping[str, Any]
Values = dict[str, Any]


def holds(condition: Mapping[str, Any], values: Values) -> bool:
    """Whether a condition of a kernel is met; tensors stand for their addresses."""
    value = values[condition["name"]]
    number = value.data_ptr() if isinstance(value, torch.Tensor) else value or 0
    if "align" in condition and number % condition["align"]:
        return False
    if "equals" in condition and number != condition["equals"]:
        return False
    return bool(condition.get("min", number) <= number <= condition.get("max", number))


class Gpu:
    """The kernels of one GPU. `started`: names of those that ran since it was cleared."""

    def __init__(self, kernels: Sequence[Facts]) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the context that modules go into
        self.started: list[str] = []
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._kernels = list(kernels)
        self._functions: dict[str, Any] = {}

    def find(self, role: str, op: str, variant: Mapping[str, str], values: Values) -> Facts | None:
        """The kernel that the library would take, None where no one fits."""
        fitting = [
            k
            for k in self._kernels
            if (k["role"], k["op"], k["variant"]) == (role, op, dict(variant)) and all(holds(c, values) for c in k["conditions"])
        ]
        return min(fitting, key=lambda kernel: int(kernel["rank"]), default=None)

    def start(self, kernel: Facts, values: Values, grid: int) -> Callable[[], None]:
        """Launch on torch's stream; what is given back launches the same again."""
        self.started.append(str(kernel["name"]))
        function = self._function(kernel)
        scratch = torch.empty(max(1, grid * int(kernel["scratch"])), dtype=torch.uint8, device="cuda")
        given = values | {"global_scratch": scratch if kernel["scratch"] else None}
        arguments = [KINDS[a["kind"]](_plain(given.get(a["name"]))) for a in kernel["arguments"]]
        packed = (ctypes.c_void_p * len(arguments))(*[ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        block = int(kernel["block"][0])

        def launch() -> None:
            keep_alive = arguments, scratch  # the packed pointers point into these
            sizes = (grid, 1, 1, block, 1, 1, int(kernel["shared"]))
            self._check(self._cuda.cuLaunchKernel(function, *sizes, stream, packed, None), f"start {kernel['name']}", keep_alive)

        launch()
        return launch

    def _function(self, kernel: Facts) -> Any:
        name = str(kernel["name"])
        if name not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            image = Path(kernel["path"]).read_bytes()
            self._check(self._cuda.cuModuleLoadData(ctypes.byref(module), image), f"load {name}")
            self._check(self._cuda.cuModuleGetFunction(ctypes.byref(function), module, str(kernel["entry"]).encode()), f"find {name}")
            if kernel["shared"] > 48 * 1024:
                self._check(self._cuda.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, int(kernel["shared"])), f"allow {name}")
            self._functions[name] = function
        return self._functions[name]

    def _check(self, code: int, what: str, _: object = None) -> None:
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"could not {what}: {(text.value or b'').decode()} ({code})")


def _plain(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, torch.Tensor) else 0 if value is None else value


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)
