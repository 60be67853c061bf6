"""GatedLinear: f(x wg + bg) (x wu + bu) in one product; f is an activation, and both weights lie side by side in one.

w is `weight` [k, 2n], or its transpose where trans_weight is 1: the columns of the gate and then those of the other half, or the
reverse where gate_first is 0. bias [2n] lies likewise. activation_alpha is the alpha of silu, v sigmoid(alpha v).
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.products import depth_and_columns, weight_problem
from onnxfuse.reference import Reference, gelu, silu


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    weight = r.wide("weight")
    if instance.attributes["trans_weight"]:
        weight = r.let(f"Transpose <perm = [1, 0]> ({weight})")
    both = r.op("MatMul", r.wide("x"), weight)
    if r.has("bias"):
        both = r.op("Add", both, r.wide("bias"))
    first, second = r.halves(both)
    gate, up = (first, second) if instance.attributes["gate_first"] else (second, first)
    r.give("y", r.op("Mul", _activated(r, gate), up))
    return r.text


def _activated(r: Reference, x: str) -> str:
    kind = str(r.instance.attributes["activation"])
    if kind == "silu":
        return silu(r, x, float(r.instance.attributes["activation_alpha"]))
    if kind in ("gelu", "gelu_tanh"):
        return gelu(r, x, "tanh" if kind == "gelu_tanh" else "none")
    return r.op({"sigmoid": "Sigmoid", "relu": "Relu"}[kind], x)


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    if (problem := weight_problem(shapes, attributes)) is not None:
        return problem
    _, columns = depth_and_columns(shapes["weight"], attributes)
    if isinstance(columns, int) and columns % 2:
        return f"weight must have an even number of columns; got {show(shapes['weight'])}"
    if "bias" in shapes and shapes["bias"] != (columns,):
        return f"bias must have 2n = {columns}; got {show(shapes['bias'])}"
    return None


def _output_shapes(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> Mapping[str, Shape]:
    return {"y": (*shapes["x"][:-1], depth_and_columns(shapes["weight"], attributes)[1] // 2)}


GATED_LINEAR = Op(
    signature="GatedLinear(x: T[..., k], weight: T, bias: T?) -> (y: T)",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"activation": "silu", "activation_alpha": 1.0, "trans_weight": 0, "gate_first": 1},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    output_shapes=_output_shapes,
    limits=_limits,
)
