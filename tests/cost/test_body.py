"""Counts of fused ops from their bodies, for every op and case that exists."""

from __future__ import annotations

from math import prod

import onnx
import onnx.parser
import pytest

from onnxfuse.case import Case
from onnxfuse.cost.body import body_work
from onnxfuse.cost.count import work
from onnxfuse.custom_ops import all_cases
from onnxfuse.errors import ModelError, ShapeError
from onnxfuse.op import Instance, Op

OPSET = 20


def function(text: str) -> onnx.FunctionProto:
    return onnx.parser.parse_function(f'<domain: "ai.onnxfuse", opset_import: ["" : 20]>\n{text}')


def test_flops_are_those_of_all_nodes_and_bytes_those_of_the_operands() -> None:
    made = body_work(function("F (x, b) => (y) { s = Add(x, b)  e = Exp(s)  y = Mul(e, x) }"), [(2, 8), (8,)], "float16")
    assert (made.flops, made.special, made.nodes) == (48, 16, 3)
    assert (made.bytes_read, made.bytes_written, made.operands) == (2 * (16 + 8), 2 * 16, 3)
    assert (made.fused, made.kind, made.name) == (True, "pointwise", "F")


def test_attributes_reach_the_nodes_and_constants_set_the_power() -> None:
    body = function("F <axis> (x) => (y) { two = Constant <value = float {2.0}> ()  p = Pow(x, two)  y = Softmax <axis: int = @axis> (p) }")
    made = body_work(body, [(2, 8)], "float", {"axis": 1})
    assert made.parts == (("Pow:2", 16), ("Softmax", 16), ("row step", 2))


def test_absent_input_costs_nothing() -> None:
    assert body_work(function("F (x, b) => (y) { y = Exp(x) }"), [(2, 8), None], ["float", None]).bytes_read == 64


def test_product_in_a_body_is_one() -> None:
    made = body_work(function("F (a, b) => (y) { p = MatMul(a, b)  y = Relu(p) }"), [(4, 8), (8, 16)], "float")
    plain = work("MatMul", [(4, 8), (8, 16)], [(4, 16)], "float")
    assert (made.gemm, made.gemm_flops) == (plain.gemm, plain.flops)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="inner sizes must be equal"):
        body_work(function("F (a, b) => (y) { y = MatMul(a, b) }"), [(4, 8), (9, 16)], "float")


def test_body_that_reads_what_nobody_makes_is_refused() -> None:
    with pytest.raises(ModelError, match="nowhere"):
        body_work(function("F (a) => (y) { y = Add(a, nowhere) }"), [(4, 8)], "float")


def test_shape_that_hangs_on_values_is_refused() -> None:
    with pytest.raises(ShapeError, match="must have a shape that follows from those of the inputs"):
        body_work(function("F (x) => (y) { y = NonZero(x) }"), [(4,)], "float")


def uses() -> list[tuple[Op, Case]]:
    """Every use of an op whose meaning is fixed; what is generated is counted as what it replaces."""
    return [(op, case) for op, case in all_cases() if op.formals is None and all(prod(shape) for shape in case.shapes.values())]


@pytest.mark.parametrize(("op", "case"), uses(), ids=[f"{op.name}-{i}" for i, (op, _) in enumerate(uses())])
def test_every_op_is_counted_in_every_use(op: Op, case: Case) -> None:
    attributes = {**op.attributes, **case.attributes}
    outputs = frozenset(p.name for p in op.outputs if not p.optional)
    instance = Instance(attributes, frozenset(case.shapes), outputs, {name: kinds[0] for name, kinds in op.types.items()}, OPSET)
    shapes = [case.shapes.get(p.name) for p in op.inputs]
    kinds = [None if p.name not in case.shapes else instance.types.get(p.type, p.type) for p in op.inputs]
    made = body_work(op.body(instance), shapes, kinds, attributes)
    sizes = {name: prod(d for d in shape if isinstance(d, int)) for name, shape in op.infer(case.shapes, attributes).items()}
    assert made.bytes_written == sum(4 * sizes[name] for name in outputs)
    assert made.flops >= sizes["y"]
    assert made.fused
