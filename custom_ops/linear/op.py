"""Linear: f(alpha x w + bias + residual), or f(alpha x w + bias) + residual where residual_last is 1; f is an activation.

w is `weight`, or its transpose where trans_weight is 1. activation_alpha is the slope of leaky_relu, the least of clip,
and the alpha of silu, v sigmoid(alpha v); activation_beta is the most of clip. Both are those of hard_sigmoid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.products import depth_and_columns, weight_problem
from onnxfuse.reference import Reference, gelu, silu


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    weight = r.wide("weight")
    if instance.attributes["trans_weight"]:
        weight = r.let(f"Transpose <perm = [1, 0]> ({weight})")
    y = r.op("MatMul", r.wide("x"), weight)
    if instance.attributes["alpha"] != 1.0:
        y = r.op("Mul", y, r.number(float(instance.attributes["alpha"])))
    if r.has("bias"):
        y = r.op("Add", y, r.wide("bias"))
    is_last = instance.attributes["residual_last"]
    if r.has("residual") and not is_last:
        y = r.op("Add", y, r.wide("residual"))
    y = _activated(r, y)
    if r.has("residual") and is_last:
        y = r.op("Add", y, r.wide("residual"))
    r.give("y", y)
    return r.text


def _activated(r: Reference, x: str) -> str:
    kind = str(r.instance.attributes["activation"])
    a, b = (float(r.instance.attributes[name]) for name in ("activation_alpha", "activation_beta"))
    if kind in ("gelu", "gelu_tanh"):
        return gelu(r, x, "tanh" if kind == "gelu_tanh" else "none")
    if kind == "silu":
        return silu(r, x, a)
    if kind == "clip":
        return _bounded(r, x, a, b)
    if kind == "leaky_relu":
        return r.op("LeakyRelu", x, alpha=a)
    if kind == "hard_sigmoid":
        return _hard_sigmoid(r, x, a, b)
    if kind == "hard_swish":
        return r.op("Mul", x, _hard_sigmoid(r, x, 1 / 6, 0.5))
    if kind == "squared_relu":
        x = r.op("Relu", x)
        return r.op("Mul", x, x)
    return x if kind == "none" else r.op({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[kind], x)


def _hard_sigmoid(r: Reference, x: str, slope: float, offset: float) -> str:
    return _bounded(r, r.op("Add", r.op("Mul", x, r.number(slope)), r.number(offset)), 0.0, 1.0)


def _bounded(r: Reference, x: str, least: float, most: float) -> str:
    """min(max(x, least), most); an infinite bound is none."""
    if math.isfinite(least):
        x = r.op("Max", x, r.number(least))
    return r.op("Min", x, r.number(most)) if math.isfinite(most) else x


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    if (problem := weight_problem(shapes, attributes)) is not None:
        return problem
    _, columns = depth_and_columns(shapes["weight"], attributes)
    for name in ("bias", "residual"):
        if name in shapes and shapes[name][-1] != columns:
            return f"{name} must have n = {columns}; got {show(shapes[name])}"
    return None


def _output_shapes(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> Mapping[str, Shape]:
    return {"y": (*shapes["x"][:-1], depth_and_columns(shapes["weight"], attributes)[1])}


LINEAR = Op(
    signature="Linear(x: T[..., k], weight: T, bias: T[n]?, residual: T[..., n]?) -> (y: T)",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={
        "activation": "none",
        "activation_alpha": 1.0,
        "activation_beta": 0.0,
        "alpha": 1.0,
        "trans_weight": 0,
        "residual_last": 0,
    },
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    output_shapes=_output_shapes,
    limits=_limits,
)
