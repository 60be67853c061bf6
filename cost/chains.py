"""Small ONNX models that repeat one op, and how long one repetition takes in ONNX Runtime."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfuse.errors import RuntimeMissingError

OPSET = 20  # the newest that every runtime we support knows
CONTRIB = "com.microsoft"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Probe:
    """One op to time: its input x, constants beside it (None for one that is absent), attributes, and how outputs look.

    chained: each repetition reads the one before (x must keep its shape and type); else all of them read x.
    x: what is fed; by default, and where it has the type float32, numbers between 0.2 and 0.9.
    """

    op: str
    shape: tuple[int, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    chained: bool = True
    first: bool = False  # the constants come before x
    outputs: int = 1
    out_type: int = TensorProto.FLOAT
    domain: str = ""
    twice: bool = False  # x is the second operand too
    x: Array | None = None

    @property
    def fed(self) -> Array:
        """What is fed as x."""
        return np.random.default_rng(7).uniform(0.2, 0.9, self.shape).astype(np.float32) if self.x is None else self.x


class Stopwatch:
    """`count` repetitions of a probe, and the seconds of the shortest run so far.

    library: of custom operators that the probe needs. Raises RuntimeMissingError when ONNX Runtime is not installed.
    """

    def __init__(self, probe: Probe, count: int, *, threads: int = 1, library: Path | None = None) -> None:
        self._session = _session(model(probe, count), threads, library)
        self._feeds = {"x": probe.fed}
        self.best = inf

    def sample(self, budget_s: float) -> None:
        """As many runs as fit in the budget: at least three, after one to warm up."""
        self._session.run(None, self._feeds)
        runs, end = 0, time.perf_counter() + budget_s
        while runs < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self._session.run(None, self._feeds)
            self.best = min(self.best, time.perf_counter() - start)
            runs += 1


class Slope:
    """What one more repetition of a probe takes: a short and a long chain of it, the best of each.

    The two are kept apart until the end: the shortest difference of any two runs would be too short on a busy machine.
    """

    def __init__(self, probe: Probe, repeats: tuple[int, int], *, threads: int = 1, library: Path | None = None) -> None:
        self._count = repeats[1] - repeats[0]
        self._short, self._long = (Stopwatch(probe, count, threads=threads, library=library) for count in repeats)

    def sample(self, budget_s: float) -> None:
        """Run both for that long together."""
        self._short.sample(budget_s / 2)
        self._long.sample(budget_s / 2)

    @property
    def seconds(self) -> float:
        """Seconds of one repetition, as far as is known."""
        return max(0.0, self._long.best - self._short.best) / self._count


def model(probe: Probe, count: int) -> onnx.ModelProto:
    """`count` repetitions of the op."""
    constants = [numpy_helper.from_array(value, f"c{i}") for i, value in enumerate(probe.constants) if value is not None]
    names = ["" if value is None else f"c{i}" for i, value in enumerate(probe.constants)]
    nodes: list[onnx.NodeProto] = []
    ends: list[str] = []
    at = "x"
    for i in range(count):
        outputs = [f"y{i}_{k}" for k in range(probe.outputs)]
        given = [at, at] if probe.twice else [at]
        operands = [*names, *given] if probe.first else [*given, *names]
        nodes.append(helper.make_node(probe.op, operands, outputs, domain=probe.domain, **probe.attributes))
        at, ends = (outputs[0], outputs[:1]) if probe.chained else (at, ends + outputs[:1])
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(probe.fed.dtype), probe.shape)],
        [helper.make_tensor_value_info(name, probe.out_type, None) for name in ends],
        constants,
    )
    domains = dict.fromkeys(("", CONTRIB, probe.domain))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, 1 if d else OPSET) for d in domains], ir_version=9)


def runtime_version() -> str:
    """The version of the ONNX Runtime that is installed. Raises RuntimeMissingError when there is none."""
    return str(_runtime().__version__)


def _runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise RuntimeMissingError("calibrate: ONNX Runtime must be installed; it is not. Run `pip install onnxruntime`") from error


def _session(proto: onnx.ModelProto, threads: int, library: Path | None) -> Any:
    runtime = _runtime()
    options = runtime.SessionOptions()
    if library is not None:
        options.register_custom_ops_library(str(library))
    options.intra_op_num_threads = threads
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def constants(*values: float | Sequence[int] | Array) -> tuple[Array, ...]:
    """Constant operands: floats become float32 scalars, lists int64 vectors."""
    return tuple(
        value if isinstance(value, np.ndarray) else np.array(value, np.float32) if isinstance(value, float) else np.array(value, np.int64)
        for value in values
    )
