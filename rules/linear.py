"""f(alpha x w + bias + residual), or f(alpha x w + bias) + residual -> Linear(x, w, bias, residual): one pass behind the product."""

import math
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.custom_ops.linear.op import LINEAR
from onnxfuse.folding import constant_array
from onnxfuse.graph import Value, constant_value
from onnxfuse.layout import Layout, identity, reshape
from onnxfuse.matmul import held_weights, shown
from onnxfuse.pattern import Call, Pattern, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, NewConstant, Rule, weight

ACTIVATIONS = ("relu", "leaky_relu", "clip", "gelu", "silu", "sigmoid", "tanh", "hard_swish", "squared_relu", "hard_sigmoid")
Weight = Value | NewConstant

x, w, bias, scale = Var("x"), Var("w", constant=True), Var("bias", constant=True), Var("scale", constant=True)
residual, last = Var("residual", computed=True), Var("last", computed=True)
alpha, a, b, top = Scalar("alpha"), Scalar("a"), Scalar("b"), Scalar("top")
approximate, layout = Scalar("approximate"), Scalar("layout")

product = alpha * (x @ w) + optional(bias)
scaled = either(op.View(product, layout=layout), product * optional(scale))


def activated(v: Pattern) -> Pattern:
    """Any of the activations of v, under its name."""
    forms = (
        *(op.Relu(v), op.LeakyRelu(v, alpha=a), op.Clip(v, min=a, max=b), op.Gelu(v, approximate=approximate), op.Swish(v, alpha=a)),
        *(op.Sigmoid(v), op.Tanh(v), op.HardSwish(v), op.Relu(v) ** 2, top * op.HardSigmoid(v, alpha=a, beta=b)),
    )
    return either(*(form.named(name) for name, form in zip(ACTIVATIONS, forms, strict=True)))


def build(match: Match) -> Call:
    held, is_transposed = held_weights(match, w)
    weights: Weight = held
    columns = held.shape[0 if is_transposed else 1] if held.shape else 0
    shift = weight(match, bias, (columns,)) if match.has(bias) else None
    if match.has(scale):
        by = _scales(match, columns)
        weights = _times(match, weights, by[:, None] if is_transposed else by)
        shift = None if shift is None else _times(match, shift, by)
    return LINEAR(
        _rows(match),
        weights,
        shift,
        _residual(match),
        trans_weight=int(is_transposed),
        residual_last=int(match.has(last)),
        **_activation(match),
    )


def _activation(match: Match) -> dict[str, Any]:
    """The attributes that say which activation it is, and the number that the product is multiplied by."""
    name = next((n for n in ACTIVATIONS if match.has(n)), "none")
    if name == "hard_sigmoid" and match.scalar(top) != 1:
        return _clip(match)
    numbers = {f"activation_{n}": match.scalar(hole) for n, hole in (("alpha", a), ("beta", b)) if match.has(hole)}
    kind = "gelu_tanh" if name == "gelu" and match.scalar(approximate) == "tanh" else name
    return {"activation": kind, "alpha": match.scalar(alpha), **numbers}


def _clip(match: Match) -> dict[str, Any]:
    """top hard_sigmoid(v; a, 0) = min(max(top a v, 0), top)."""
    factor = match.scalar(top) * match.scalar(a)
    is_one = math.isclose(factor, 1.0, rel_tol=1e-6)
    if match.scalar(b) != 0 or not (is_one or not (match.has(bias) or match.has(residual))):
        raise Decline(f"what is clipped must be alpha x w + bias + residual itself; it is multiplied by {factor:g} or moved")
    bounds = {"activation_alpha": 0.0, "activation_beta": match.scalar(top)}
    return {"activation": "clip", "alpha": match.scalar(alpha) * (1.0 if is_one else factor), **bounds}


def _residual(match: Match) -> Value | None:
    added = next((match.value(hole) for hole in (residual, last) if match.has(hole)), None)
    if added is not None and (added.shape is None or added.shape != match.root.shape):
        raise Decline(f"residual must have the shape of the result; they are {shown(added)} and {shown(match.root)}")
    return added


def _scales(match: Match, columns: Any) -> Any:
    """One number for each column of w, in float64."""
    array = constant_array(match.view, match.term(scale))
    if array is None or array.shape[-1:] != (columns,) or array.size != columns:
        shape = "unknown" if array is None else list(array.shape)
        raise Decline(f"scale must have a number for each of the {columns} columns of w; its shape is {shape}")
    return array.reshape(-1).astype(np.float64)


def _times(match: Match, constant: Weight, by: Any) -> NewConstant:
    """(x w + bias) scale = x (w scale) + bias scale: the constant with the scale in it."""
    array = constant.array if isinstance(constant, NewConstant) else constant_value(constant)
    if array is None:
        raise Decline(f"the weights must be in the file, to be multiplied now; those of '{constant.name}' are not")
    like = constant.like if isinstance(constant, NewConstant) else constant
    return NewConstant((array.astype(np.float64) * by).astype(tensor_dtype_to_np_dtype(match.root.dtype)), like)


def _rows(match: Match) -> Value:
    """x, of the rank of the result: where exporters merge leading axes before the product and part them behind it, x before that."""
    if not match.has(layout):
        return match.value(x)
    term, parted = match.term(x), match.scalar(layout)
    merged = term.attributes["layout"] if term.op == "View" else None
    if merged is None or not _is_regrouped(parted) or not _is_regrouped(merged) or merged.base[:-1] != parted.shape[:-1]:
        raise Decline("the result must have the leading axes of x, merged before the product and parted behind it")
    return match.holder(term.args[0], "x", shape=merged.base)


def _is_regrouped(seen: Layout) -> bool:
    """Whether a view only merges or parts axes before the last."""
    return seen.shape[-1] == seen.base[-1] and seen == reshape(identity(seen.base), seen.shape)


W = "float[3,4] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0}"
B = "float[4] b = {1, 2, 3, 4}"
RULE = Rule(
    before=either(activated(scaled + residual), activated(scaled) + last, activated(scaled)),
    after=build,
    kind="matmul",
    fires_on=[
        f"g (float[n,3] x) => (float[n,4] y) <{W}, {B}> {{ m = Gemm(x, w, b)  y = Relu(m) }}",
        """g (float[n,3] x) => (float[n,4] y) <float[4,3] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0}, float[1,4] b = {1, 2, 3, 4}> {
            m = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, w, b)  y = LeakyRelu <alpha = 0.2> (m)
        }""",
        f"g (float[n,s,3] x) => (float[n,s,4] y) <{W}, {B}> {{ m = MatMul(x, w)  z = Add(b, m)  y = Tanh(z) }}",
        f"""<opset_import: ["" : 20]> g (float[n,s,3] x, float[n,s,4] r) => (float[n,s,4] y) <{W}, {B}> {{
            m = MatMul(x, w)  z = Add(b, m)  g = Gelu <approximate = "tanh"> (z)  y = Add(r, g)
        }}""",
        f"""g (float[n,s,3] x, float[n,s,4] r) => (float[n,s,4] y) <{W}, float half = {{0.5}}> {{
            h = Mul(x, half)  m = MatMul(h, w)  z = Add(r, m)  y = Sigmoid(z)
        }}""",
        f"""g (float[n,3] x) => (float[n,4] y) <{W}, {B}, float[4] g = {{2, 3, 0.5, 1}}> {{
            m = MatMul(x, w)  z = Add(b, m)  v = Mul(z, g)  s = Sigmoid(v)  y = Mul(v, s)
        }}""",
        f"""g (float[n,2,3] x) => (float[n,2,4] y) <{W}, {B}, int64[2] rows = {{-1, 3}}, int64[3] all = {{-1, 2, 4}}, float six = {{6}},
        float zero = {{0}}> {{
            f = Reshape(x, rows)  m = Gemm(f, w, b)  z = Reshape(m, all)  y = Clip(z, zero, six)
        }}""",
        f"g (float[n,3] x) => (float[n,4] y) <{W}> {{ m = MatMul(x, w)  r = Relu(m)  y = Mul(r, r) }}",
        f"""g (float[n,3] x) => (float[n,4] y) <{W}, float half = {{0.5}}, float six = {{6}}, float zero = {{0}}> {{
            h = Mul(x, half)  m = MatMul(h, w)  y = Clip(m, zero, six)
        }}""",
        f"g (float[n,3] x) => (float[n,4] y) <{W}, {B}> {{ m = Gemm(x, w, b)  y = HardSigmoid(m) }}",
    ],
    declines={
        "'m' (Gemm) must be read by nobody else": f"""
        g (float[n,3] x) => (float[n,4] y, float[n,4] m) <{W}, {B}> {{ m = Gemm(x, w, b)  y = Relu(m) }}""",
        "residual must have the shape of the result; they are [4] and [n,4]": f"""
        g (float[n,3] x, float[4] r) => (float[n,4] y) <{W}> {{ m = MatMul(x, w)  z = Add(r, m)  y = Relu(z) }}""",
        "w must have rank 2; 'w' is [1,3,2]": """
        g (float[1,5,3] x) => (float[1,5,2] y) <float[1,3,2] w = {1, 2, 3, 4, 5, 6}> { m = MatMul(x, w)  y = Relu(m) }""",
        "'b' must have shape ['4']; it is [2,1]": f"""
        g (float[2,3] x) => (float[2,4] y) <{W}, float[2,1] b = {{1, 2}}> {{ m = MatMul(x, w)  z = Add(b, m)  y = Relu(z) }}""",
    },
)
RESIDUAL = Rule(
    before=scaled + residual,
    after=build,
    kind="matmul",
    fires_on=[
        f"g (float[n,s,3] x, float[n,s,4] r) => (float[n,s,4] y) <{W}, {B}> {{ m = MatMul(x, w)  z = Add(b, m)  y = Add(r, z) }}",
        f"""g (float[n,3] x, float[n,4] r) => (float[n,4] y) <{W}, {B}, float[4] g = {{2, 3, 0.5, 1}}> {{
            m = Gemm(x, w, b)  v = Mul(g, m)  y = Add(v, r)
        }}""",
        f"""g (float[n,2,3] x, float[n,2,4] r) => (float[n,2,4] y) <{W}, {B}, int64[2] rows = {{-1, 3}}, int64[3] all = {{-1, 2, 4}}> {{
            f = Reshape(x, rows)  m = Gemm(f, w, b)  z = Reshape(m, all)  y = Add(r, z)
        }}""",
    ],
    declines={
        "residual must have the shape of the result; they are [n,1,4] and [n,s,4]": f"""
        g (float[n,s,3] x, float[n,1,4] r) => (float[n,s,4] y) <{W}> {{ m = MatMul(x, w)  y = Add(r, m) }}""",
        "the result must have the leading axes of x": f"""
        g (float[6,3] x, float[3,2,4] r) => (float[3,2,4] y) <{W}, {B}, int64[3] all = {{3, 2, 4}}> {{
            m = Gemm(x, w, b)  z = Reshape(m, all)  y = Add(r, z)
        }}""",
    },
)
