"""Every shape rule against ONNX Runtime: what is inferred, with numbers for its symbols, is what a run gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from onnxfuse import graph, shapes, symbolic
from onnxfuse.shape_facts import SHAPE_RULES
from tests.graph.shape_cases import CASES, Case

SIZES = (
    {"b": 2, "s": 5, "p": 3, "h": 12, "w": 9, "n": 4},
    {"b": 1, "s": 7, "p": 0, "h": 13, "w": 16, "n": 2},
    {"b": 3, "s": 1, "p": 2, "h": 8, "w": 8, "n": 1},
)
NOT_IN_THE_RUNTIME = {"BitCast", "CumProd", "Swish", "TensorScatter"}  # ops of opsets that ONNX Runtime has no kernels for yet
Feed = dict[str, "np.ndarray[Any, Any]"]


def parse(case: Case) -> onnx.ModelProto:
    header = f'<ir_version: 9, opset_import: ["" : {case.opset}, "com.microsoft" : 1]>'
    return onnx.parser.parse_model(f"{header}\ng {case.text.strip()}")


def feed_for(model: onnx.ModelProto, sizes: dict[str, int]) -> Feed:
    rng = np.random.default_rng(3)
    feed: Feed = {}
    for info in model.graph.input:
        shape = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        values = rng.integers(1, 3, shape) if np.issubdtype(dtype, np.integer) else rng.random(shape) + 0.1
        feed[info.name] = np.asarray(values).astype(dtype)
    return feed


def run_all(model: onnx.ModelProto, feed: Feed) -> Feed:
    """Every value that a node of the main graph makes."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for node in model.graph.node for name in node.output if name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def check_value(value: graph.Value, found: np.ndarray[Any, Any], sizes: dict[str, int]) -> bool:
    """Compare what is known of a value with what it is in a run; returns whether all its sizes are known."""
    if found.dtype != object:  # strings
        assert onnx.helper.tensor_dtype_to_np_dtype(value.dtype) == found.dtype, value
    assert value.shape is not None and len(value.shape) == found.ndim, value
    known = [symbolic.substitute(dim, sizes) for dim in value.shape]
    for dim, size in zip(known, found.shape, strict=True):
        assert not isinstance(dim, int) or dim == size, f"{value}: {known}, not {found.shape}"
    if value.elements is not None:
        elements = [symbolic.substitute(e, sizes) for e in value.elements]
        for element, expected in zip(elements, found.reshape(-1).tolist(), strict=True):
            assert not isinstance(element, int) or element == expected, f"{value} holds {elements}, not {found}"
    return all(isinstance(dim, int) for dim in known)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_inferred_shapes_are_those_of_a_run(case: Case) -> None:
    source = parse(case)
    model = graph.load(source)
    shapes.infer(model)
    for sizes in SIZES:
        values = run_all(source, feed_for(source, sizes))
        assert values
        known = [check_value(model.main.values[name], found, sizes) for name, found in values.items()]
        assert all(known) != case.is_open


def test_every_rule_of_a_standard_op_has_a_case() -> None:
    used = {node.op_type for case in CASES.values() for node in parse(case).graph.node}
    assert {op for op in SHAPE_RULES if "." not in op} - used == NOT_IN_THE_RUNTIME
