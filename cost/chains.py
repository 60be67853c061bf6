"""Small ONNX models that repeat one op, and how long one repetition takes in ONNX Runtime."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """One op to time: its input x, constants beside it, attributes, and how outputs look.

    chained: each repetition reads the one before (x must keep its shape and type); else all of them read x.
    """

    op: str
    shape: tuple[int, ...]
    constants: tuple[Array, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    chained: bool = True
    first: bool = False  # the constants come before x
    outputs: int = 1
    out_type: int = TensorProto.FLOAT
    domain: str = ""
    twice: bool = False  # x is the second operand too


def seconds_each(probe: Probe, *, budget_s: float, threads: int = 1, repeats: tuple[int, int] = (2, 10)) -> float:
    """Seconds that one more repetition takes: the slope between two lengths, each the best of many runs.

    Raises RuntimeMissingError when ONNX Runtime is not installed.
    """
    short, long = repeats
    best = [seconds(probe, count, budget_s=budget_s / 2, threads=threads) for count in repeats]
    return max(0.0, best[1] - best[0]) / (long - short)


def seconds(probe: Probe, count: int, *, budget_s: float, threads: int = 1) -> float:
    """Seconds of the best of many runs of `count` repetitions."""
    x = {"x": np.random.default_rng(7).uniform(0.2, 0.9, probe.shape).astype(np.float32)}
    return _best(_session(model(probe, count), threads), x, budget_s)


def model(probe: Probe, count: int) -> onnx.ModelProto:
    """`count` repetitions of the op."""
    constants = [numpy_helper.from_array(value, f"c{i}") for i, value in enumerate(probe.constants)]
    nodes: list[onnx.NodeProto] = []
    ends: list[str] = []
    at = "x"
    for i in range(count):
        outputs = [f"y{i}_{k}" for k in range(probe.outputs)]
        names = [c.name for c in constants]
        given = [at, at] if probe.twice else [at]
        operands = [*names, *given] if probe.first else [*given, *names]
        nodes.append(helper.make_node(probe.op, operands, outputs, domain=probe.domain, **probe.attributes))
        at, ends = (outputs[0], outputs[:1]) if probe.chained else (at, ends + outputs[:1])
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, probe.shape)],
        [helper.make_tensor_value_info(name, probe.out_type, None) for name in ends],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)], ir_version=9)


def runtime_version() -> str:
    """The version of the ONNX Runtime that is installed. Raises RuntimeMissingError when there is none."""
    return str(_runtime().__version__)


def _runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise RuntimeMissingError("calibrate: ONNX Runtime must be installed; it is not. Run `pip install onnxruntime`") from error


def _session(proto: onnx.ModelProto, threads: int) -> Any:
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _best(session: Any, feeds: Mapping[str, Array], budget_s: float) -> float:
    """The shortest of as many runs as fit in the budget: at least three, after one to warm up."""
    session.run(None, feeds)
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return min(times)


def constants(*values: float | Sequence[int] | Array) -> tuple[Array, ...]:
    """Constant operands: floats become float32 scalars, lists int64 vectors."""
    return tuple(
        value if isinstance(value, np.ndarray) else np.array(value, np.float32) if isinstance(value, float) else np.array(value, np.int64)
        for value in values
    )
