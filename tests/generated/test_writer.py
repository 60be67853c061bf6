"""Every operator that is spelled in primitives gives the numbers of the operator, at the opset that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxfuse import runtime
from onnxfuse.generated.body import body, onnx_type
from onnxfuse.generated.made_up import numpy_type
from onnxfuse.generated.primitives import PRIMITIVES
from onnxfuse.generated.program import parse
from onnxfuse.generated.runs import RUNS
from onnxfuse.generated.writer import POINTWISE, REDUCE, ROWS, SPELLINGS, Draft, Use, spell

SHAPE = (5, 37)
OPSETS = {"Swish": 24}  # that have an operator which 20 has not; the runtime may not know it yet
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "Elu": [{}, {"alpha": 2.5}],
    "Selu": [{}],
    "Celu": [{}, {"alpha": 2.0}],
    "HardSigmoid": [{}, {"alpha": 0.3, "beta": 0.1}],
    "ThresholdedRelu": [{}, {"alpha": 0.3}],
    "Shrink": [{}, {"lambd": 0.3, "bias": 0.2}, {"bias": 1.25}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "IsInf": [{}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0}],
    "Mod": [{"fmod": 0}, {"fmod": 1}],
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}],
    "Softmax": [{"axis": -1}],
    "LogSoftmax": [{"axis": -1}],
}
COUNTS = {"Clip": 1, "Sum": 3, "Mean": 3, "Max": 3, "Min": 3, "Pow": 2, "Mod": 2, "BitShift": 2, "CastLike": 2, "Where": 3}
RTOL = {"float16": 2e-3, "double": 0.0, "int32": 0.0, "uint8": 0.0}
KINDS = {"BitShift": "uint8", "Mod": "int32", "Not": "bool", "And": "bool", "Or": "bool", "Xor": "bool"}


def _kinds(op: str, attributes: dict[str, Any]) -> list[str]:
    if op in KINDS:
        return ["float"] if attributes.get("fmod") else [KINDS[op]]
    if op == "Shrink":
        return ["float", "float16", "double", "int32", "uint8"]
    return ["int32"] if op.startswith("Bitwise") else ["float"] if op == "Celu" else ["float", "float16"]


def _uses() -> list[Any]:
    return [
        pytest.param(op, attributes, kind, id=f"{op}-{kind}-{attributes}")
        for op in SPELLINGS
        if op not in OPSETS
        for attributes in ATTRIBUTES.get(op, [{}])
        for kind in _kinds(op, attributes)
    ]


def _array(kind: str, number: int) -> Any:
    rng = np.random.default_rng(number)
    if kind == "bool":
        return rng.random(SHAPE) < 0.5
    if kind in ("int32", "uint8"):
        return rng.integers(1, 7, SHAPE).astype(kind)
    made = rng.standard_normal(SHAPE) * 2
    return np.where(rng.random(SHAPE) < 0.05, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], SHAPE), made).astype(numpy_type(kind))


def _run(nodes: list[onnx.NodeProto], kinds: list[str], arrays: list[Any], result: str) -> Any:
    inputs = [helper.make_tensor_value_info(f"x{i}", onnx_type(kind), SHAPE) for i, kind in enumerate(kinds)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y0", onnx_type(result), None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    made = runtime.session(model, ["CPUExecutionProvider"], optimizations=False, threads=1, register=False)
    return runtime.run(made, {f"x{i}": a for i, a in enumerate(arrays)})[0]


@pytest.mark.parametrize(("op", "attributes", "kind"), _uses())
def test_spelling_gives_the_numbers_of_the_operator(op: str, attributes: dict[str, Any], kind: str) -> None:
    count = COUNTS.get(op, len(PRIMITIVES[op].takes) if op in PRIMITIVES else 1)
    kinds = ["bool", kind, kind] if op == "Where" else [kind] * count
    kinds[1:] = ["int32"] if op == "CastLike" else kinds[1:]
    result = {"Cast": "int32", "CastLike": "int32"}.get(op, (PRIMITIVES[op].gives or (kind,))[0] if op in PRIMITIVES else kind)
    arrays = [np.nan_to_num(a) if op in ("Cast", "CastLike", "ReduceMax", "ReduceMin") else a for a in map(_array, kinds, range(count))]
    names = [f"x{i}" for i in range(count)]
    more = {"to": onnx_type("int32")} if op == "Cast" else {"keepdims": 1} if op in REDUCE else {}
    node = helper.make_node(op, names[: 1 if op in REDUCE else count], ["y0"], **attributes, **more)
    axes = [helper.make_node("Constant", [], ["axes"], value=helper.make_tensor("axes", 7, [1], [-1]))] if op in REDUCE else []
    node.input.extend(["axes"] if op in REDUCE else [])
    draft = Draft()
    formal = tuple(draft.input(k) for k in kinds)
    program = draft.finish([spell(Use(draft, op, formal[:1] if op == "CastLike" else formal, attributes, result))])
    want = _run([*axes, node], kinds, arrays, result)
    got = _run(list(body(program, domain="d", name="F", opset=20).node), kinds, arrays, result)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=RTOL.get(kind, 4e-6), atol=0 if kind in RTOL and kind != "float16" else 1e-6
    )


def test_swish_is_spelled_as_it_is_defined() -> None:
    draft = Draft()
    program = draft.finish([spell(Use(draft, "Swish", (draft.input("float"),), {"alpha": 2.0}, "float"))])
    assert program.ops == ("Mul", "Sigmoid", "Mul")


def test_clip_without_an_end_ends_at_the_largest_number() -> None:
    draft = Draft()
    program = draft.finish([spell(Use(draft, "Clip", (draft.input("float16"), None, None), {}, "float16"))])
    assert [step.number for step in program.steps if step.op == "Const"] == [-65504.0, 65504.0]


def test_equal_steps_are_made_once_and_results_are_steps_of_their_own() -> None:
    draft = Draft()
    x = draft.input("float")
    twice = draft.step("Exp", "float", x), draft.step("Exp", "float", x)
    assert twice[0] == twice[1]
    assert draft.finish([*twice, x]).text.splitlines()[1:] == [
        "v0:float = Exp(x0)",
        "v1:float = Identity(v0)",
        "v2:float = Identity(x0)",
        "-> v0, v1, v2",
    ]


BODIES = [
    "x0:float x1:float\nv0:float = Const(0.5)\nv1:float = Mul(x0, v0)\nv2:float = Gelu(v1)\nv3:float = GeluTanh(x1)\n-> v2, v3",
    "x0:float x1:float/row\nv0:float = ReduceMax(x0)\nv1:float = Sub(x0, v0)\nv2:float = ReduceSum(v1)\nv3:float = Add(v2, x1)\n-> v3, v1",
    "x0:float x1:int64\nv0:int64 = Dim(x0, -1)\nv1:int64 = Add(v0, x1)\n-> v1",
    "x0:float x1:float\nv0:float = Concat(x0, x1, -2)\nv1:float = Const(2.0)\nv2:float = Mul(v0, v1)\n-> v1, v2",
]


@pytest.mark.parametrize("opset", range(11, 24))
@pytest.mark.parametrize("text", BODIES)
def test_bodies_are_valid_and_equal_at_every_opset(text: str, opset: int) -> None:
    program = parse(text)
    inputs = [helper.make_tensor_value_info(f"x{i}", onnx_type(x.type), [4, 1] if x.row else [4, 6]) for i, x in enumerate(program.inputs)]
    outputs = [helper.make_tensor_value_info(f"y{i}", onnx_type(program.types[r]), ["a", "b"]) for i, r in enumerate(program.results)]
    results = []
    for at in (opset, 20):
        nodes = list(body(program, domain="d", name="F", opset=at).node)
        model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", at)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        made = runtime.session(model, ["CPUExecutionProvider"], optimizations=False, threads=1, register=False)
        rng = np.random.default_rng(0)
        feeds = {i.name: rng.integers(0, 9, i.shape).astype(np.int64 if "int" in i.type else np.float32) for i in made.get_inputs()}
        results.append(runtime.run(made, feeds))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_is_known_to_run_covers_every_primitive() -> None:
    assert RUNS.keys() == PRIMITIVES.keys()
    assert not POINTWISE.keys() & ROWS.keys()
