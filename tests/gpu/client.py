"""The test's end of worker.py."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake"
LIBRARY = "libonnxfuse_ops.so"  # ours, in the folder of the fakes


@dataclass(frozen=True)
class Ran:
    """What a node gave in each run, and what the driver saw: loads and launches, for the making of the node and for its runs."""

    outputs: list[list[Any]]
    made: list[dict[str, Any]]
    launches: list[dict[str, Any]]


class Client:
    """A worker: `Client(fakes, cache=folder).run(...)`; `close` ends it.

    cache: where generated kernels are kept; None for nowhere. kernels, home, library: what `$ONNXFUSE_KERNELS`, the user's caches
    and our library are; by default there are no compiled kernels anywhere. linear: `$ONNXFUSE_LINEAR`.
    """

    def __init__(
        self,
        fakes: Path,
        *,
        cache: Path | None = None,
        devices: str = "90,80",
        options: str = "-O1",
        preload: str = "",
        kernels: str = "",
        home: Path | None = None,
        library: Path | None = None,
        linear: str = "",
    ) -> None:
        environment = {
            **os.environ,
            "FAKE_CUDA_DEVICES": devices,
            "FAKE_NVRTC_CXX": f"{os.environ.get('CXX', 'c++')} {options}",
            "FAKE_NVRTC_SHIM": str(FAKE),
            "ONNXFUSE_CUDA_CACHE": str(cache or ""),
            "ONNXFUSE_KERNELS": kernels,
            "XDG_CACHE_HOME": str(home or fakes / "nothing"),
            "ONNXFUSE_LINEAR": linear,
            "ONNXFUSE_CUBLASLT": str(fakes / "libcublasLt.so.13"),
        }
        if preload:
            environment |= {
                "LD_PRELOAD": preload,
                "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:verify_asan_link_order=0",
            }
        command = [sys.executable, "-m", "tests.gpu.worker", str(library or fakes / LIBRARY), str(fakes)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def close(self) -> str:
        """End the process; what it printed on its error stream."""
        _, errors = self._process.communicate()
        return errors.decode()

    def ask(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of the worker. Raises RuntimeError with what it raised."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump((method, arguments, keywords), self._process.stdin)
            self._process.stdin.flush()
            state, value = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise AssertionError(f"the worker died with {self._process.wait()}: {self.close()[-3000:]}") from None
        if state == "error":
            raise RuntimeError(value)
        return value

    def run(self, op: str, attributes: Mapping[str, Any], inputs: Sequence[Any], outputs: Sequence[str | None], **options: Any) -> Ran:
        """Run a node on the fake GPU. inputs: arrays, None where not given; outputs: their ONNX types, None where not wanted."""
        packed = [None if i is None else (i.tobytes(), i.dtype.name, i.shape) for i in inputs]
        results, made, launches = self.ask("run", op, dict(attributes), packed, list(outputs), **options)
        return Ran([[None if o is None else _array(o) for o in one] for one in results], made, launches)


def _array(value: tuple[bytes, str, tuple[int, ...]]) -> Any:
    data, dtype, shape = value
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)
