"""Kernels as the host of the library starts them, in Triton's interpreter: choose by conditions and rank, fill arguments by name."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfuse.kernel_build import build, worker
from onnxfuse.triton_kernel import Condition, Kernel

ROOT = Path(__file__).parents[2]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class At:
    """A pointer: this many elements of so many bytes into a buffer."""

    buffer: str
    offset: int = 0
    width: int = 4


Values = Mapping[str, "int | float | At | None"]


def holds(condition: Condition, values: Values) -> bool:
    """Whether the condition is met; buffers of a test lie at multiples of 16 bytes."""
    value = values[condition.name]
    number = value.offset * value.width if isinstance(value, At) else 0 if value is None else value
    if condition.equals is not None and number != condition.equals:
        return False
    if condition.align is not None and number % condition.align:
        return False
    return (condition.min is None or number >= condition.min) and (condition.max is None or number <= condition.max)


def chosen(kernels: Sequence[Kernel], role: str, variant: Mapping[str, str], values: Values) -> Kernel | None:
    """The kernel that the host takes."""
    fitting = [k for k in kernels if k.role == role and k.variant == variant and all(holds(c, values) for c in k.conditions)]
    return min(fitting, key=lambda kernel: kernel.rank, default=None)


class Interpreter:
    """The process that runs kernels; `close` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compiled.interpreter"],
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, kernel: Kernel, grid: int, values: Values, buffers: Mapping[str, Array]) -> dict[str, Array]:
        """All buffers after the launch. Raises AssertionError with what went wrong, a write past a buffer's end included."""
        assert self._process.stdin is not None and self._process.stdout is not None
        nowhere = At(next(iter(buffers)))  # for a null pointer, which the interpreter cannot take; nothing may be read there
        arguments = {name: _passed(nowhere if value is None else value) for name, value in values.items()} | dict(kernel.constants)
        file = ROOT / "custom_ops" / kernel.folder / "kernel_triton.py"
        pickle.dump((str(file), kernel.function, grid, arguments, dict(buffers)), self._process.stdin)
        self._process.stdin.flush()
        state, result = pickle.load(self._process.stdout)
        assert state == "done", result
        return dict(result)


def _passed(value: float | At) -> Any:
    return ("buffer", value.buffer, value.offset) if isinstance(value, At) else value


def choices(folder: str, attribute: str) -> list[str]:
    """The values of an attribute in the order of an op.cc, by which kernels know them."""
    text = (ROOT / "custom_ops" / folder / "op.cc").read_text(encoding="utf-8")
    found = re.search(rf'Choice\("{attribute}", \{{(.*?)\}}', text, re.DOTALL)
    assert found is not None
    return re.findall(r'"(\w+)"', found[1])


def compiled_ops() -> list[str]:
    """The ops that have kernels written in Triton."""
    files = sorted((ROOT / "custom_ops").glob("*/kernel_triton.py"))
    return list(dict.fromkeys(kernel.op for file in files for kernel in worker.variants(file, 80)))


def every_kernel(op: str, arch: int = 80) -> list[Kernel]:
    """All kernels of an op for one architecture. Skips the calling module where Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip('needs Triton: pip install ".[kernels]"', allow_module_level=True)
    return [task.kernel for task in build.tasks([arch]) if task.kernel.op == op]
