"""f(x wg + bg) (x wu + bu) -> GatedLinear(x, [wg, wu], [bg, bu]): one product, of which neither half travels to memory.

The weights lie side by side already where both halves are cut from one product. Where its columns take turns, or where there are two
products, the weights are brought side by side by standard operators, which a runtime works out once, when it loads the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnxfuse.custom_ops.gated_linear.op import GATED_LINEAR
from onnxfuse.graph import Node, Value
from onnxfuse.op import Attribute
from onnxfuse.pattern import Call, Pattern, Scalar, Var, either, op
from onnxfuse.rotations import joined_pairs
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand, Rule, gated

ACTIVATIONS = ("silu", "gelu", "sigmoid", "relu")
gate, up = Var("gate"), Var("up")
alpha, approximate = Scalar("alpha"), Scalar("approximate")


@dataclass(frozen=True)
class Product:
    """x weight + bias, the weight [k, columns], or [columns, k] where is_transposed."""

    x: Value
    weight: Value
    bias: Value | None
    is_transposed: bool
    columns: int


def activated(v: Pattern) -> Pattern:
    """Any of the activations of v, under its name."""
    forms = (op.Swish(v, alpha=alpha), op.Gelu(v, approximate=approximate), op.Sigmoid(v), op.Relu(v))
    return either(*(form.named(name) for name, form in zip(ACTIVATIONS, forms, strict=True)))


def build(match: Match) -> Call:
    weight: Operand
    bias: Operand
    if (pairs := _in_turns(match)) is not None:
        one, order = _product(pairs[0]), pairs[1]
        weight, bias = _parted(one)
    else:
        first, second, order = gated(match, gate, up)
        one = _product(first)
        weight, bias = (one.weight, one.bias) if second is None else _joined(one, _product(second))
    return GATED_LINEAR(one.x, weight, bias, trans_weight=int(one.is_transposed), gate_first=order, **_activation(match))


def _in_turns(match: Match) -> tuple[Value, int] | None:
    """The value whose columns are gate and up in turn, and whether the gate comes first."""
    for order, (even, odd) in ((1, (gate, up)), (0, (up, gate))):
        whole = joined_pairs(match.term(even), match.term(odd))
        if whole is not None and whole[1].is_identity:
            return match.holder(whole[0], "gate", shape=whole[1].shape), order
    return None


def _activation(match: Match) -> Mapping[str, Attribute]:
    name = next(n for n in ACTIVATIONS if match.has(n))
    if name == "silu":
        return {"activation": name, "activation_alpha": match.scalar(alpha)}
    return {"activation": "gelu_tanh" if name == "gelu" and match.scalar(approximate) == "tanh" else name}


def _product(value: Value) -> Product:
    """The product that makes a value. Raises Decline where none with a matrix as its right side does."""
    node, bias = value.producer, None
    if node is not None and node.op == "Add":
        bias = next((v for v in node.inputs if v is not None and v.is_constant), None)
        node = next((v.producer for v in node.inputs if v is not None and v is not bias), None)
    x, weight = (node.input(0), node.input(1)) if node is not None and _is_plain(node) else (None, None)
    if node is None or x is None or weight is None or weight.rank != 2:
        raise Decline(f"'{value.name}' must be the product of x and a matrix, with or without a bias")
    if node.op == "Gemm" and node.input(2) is not None:
        bias = node.input(2) if bias is None else None
    is_transposed = bool(node.attributes.get("transB", 0))
    columns = (weight.shape or ())[0 if is_transposed else 1]
    if not isinstance(columns, int) or (bias is not None and bias.shape != (columns,)):
        raise Decline(f"the product '{value.name}' must have a known number of columns, and a bias one number for each")
    return Product(x, weight, bias, is_transposed, columns)


def _is_plain(node: Node) -> bool:
    gemm = node.op == "Gemm" and not node.attributes.get("transA", 0)
    return not node.domain and (node.op == "MatMul" or (gemm and all(node.attributes.get(n, 1.0) == 1 for n in ("alpha", "beta"))))


def _parted(one: Product) -> tuple[Made, Made | None]:
    """Weights and bias with the even columns first, and then the odd ones."""
    if not one.weight.is_constant or not all(isinstance(size, int) for size in one.weight.shape or ()):
        raise Decline("weights whose columns take turns must be constants, to be brought side by side once")
    return _even_first(one.weight, 0 if one.is_transposed else 1), None if one.bias is None else _even_first(one.bias, 0)


def _even_first(value: Value, axis: int) -> Made:
    """The even indices of an axis, and then the odd ones."""
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    pairs = [*sizes[:axis], sizes[axis] // 2, 2, *sizes[axis + 1 :]]
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(pairs))]
    turned = [pairs[i] for i in order]
    split = Made("Reshape", (value, NewConstant(np.array(pairs, np.int64), value)), value.dtype, tuple(pairs))
    moved = Made("Transpose", (split,), value.dtype, tuple(turned), (("perm", tuple(order)),))
    return Made("Reshape", (moved, NewConstant(np.array(sizes, np.int64), value)), value.dtype, tuple(sizes))


def _joined(one: Product, other: Product) -> tuple[Made, Made | None]:
    """Weights and biases of both, side by side."""
    if one.x is not other.x:
        raise Decline(f"both products must have the same x; they have '{one.x.name}' and '{other.x.name}'")
    if (one.is_transposed, one.bias is None) != (other.is_transposed, other.bias is None):
        raise Decline("both products must have a bias or none, and weights of one order")
    if not all(p.weight.is_constant for p in (one, other)):
        raise Decline("weights that do not lie side by side must be constants, to be joined once")
    weight = _beside(one.weight, other.weight, 0 if one.is_transposed else 1)
    return weight, None if one.bias is None or other.bias is None else _beside(one.bias, other.bias, 0)


def _beside(a: Value, b: Value, axis: int) -> Made:
    shape = tuple(2 * size if i == axis else size for i, size in enumerate(a.shape or ()))
    return Made("Concat", (a, b), a.dtype, shape, (("axis", axis),))


W = "float[3,2] v = {1, -2, 3, -4, 5, -6}, float[3,2] w = {7, -8, 9, 0.5, 0.25, 0}"
P = "float[3,4] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0}"
RULE = Rule(
    before=activated(gate) * up,
    after=build,
    kind="matmul",
    fires_on=[
        f"g (float[n,3] x) => (float[n,2] y) <{W}> {{ a = MatMul(x, v)  b = MatMul(x, w)  s = Sigmoid(a)  m = Mul(a, s)  y = Mul(m, b) }}",
        f"""g (float[n,s,3] x) => (float[n,s,2] y) <{P}, float[4] c = {{1, 2, 3, 4}}> {{
            m = MatMul(x, w)  z = Add(c, m)  up, gate = Split <axis = -1> (z)  s = Sigmoid(gate)  y = Mul(up, s)
        }}""",
        f"""<opset_import: ["" : 20]> g (float[n,3] x) => (float[n,2] y) <{P}> {{
            m = MatMul(x, w)  gate, up = Split <axis = -1, num_outputs = 2> (m)  a = Gelu <approximate = "tanh"> (gate)  y = Mul(a, up)
        }}""",
        """g (float[n,3] x) => (float[n,2] y) <float[2,3] v = {1, -2, 3, -4, 5, -6}, float[2,3] w = {7, -8, 9, 0.5, 0.25, 0},
        float[2] c = {1, 2}, float[2] d = {3, 4}> {
            a = Gemm <transB = 1> (x, v, c)  b = Gemm <transB = 1> (x, w, d)  r = Relu(a)  y = Mul(r, b)
        }""",
        f"""g (float[n,3] x) => (float[n,2] y) <{P}, float[4] c = {{1, 2, 3, 4}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
        int64[1] end = {{9223372036854775807}}, int64[1] two = {{2}}> {{
            m = MatMul(x, w)  z = Add(m, c)  up = Slice(z, zero, end, one, two)  gate = Slice(z, one, end, one, two)
            s = Sigmoid(gate)  a = Mul(gate, s)  y = Mul(a, up)
        }}""",
        """g (float[n,3] x) => (float[n,2] y) <float[4,3] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0}, float[4] c = {1, 2, 3, 4},
        int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[1] two = {2}> {
            z = Gemm <transB = 1> (x, w, c)  gate = Slice(z, zero, end, one, two)  up = Slice(z, one, end, one, two)
            r = Relu(gate)  y = Mul(r, up)
        }""",
    ],
    declines={
        "'gate' must be the product of x and a matrix, with or without a bias": """
        g (float[2,4] gate, float[2,4] up) => (float[2,4] y) { s = Sigmoid(gate)  y = Mul(s, up) }""",
        "both products must have the same x; they have 'x' and 'z'": f"""
        g (float[n,3] x, float[n,3] z) => (float[n,2] y) <{W}> {{ a = MatMul(x, v)  b = MatMul(z, w)  s = Sigmoid(a)  y = Mul(s, b) }}""",
        "both products must have a bias or none, and weights of one order": f"""
        g (float[n,3] x) => (float[n,2] y) <{W}, float[2] c = {{1, 2}}> {{
            a = MatMul(x, v)  m = MatMul(x, w)  b = Add(m, c)  s = Sigmoid(a)  y = Mul(s, b)
        }}""",
        "weights that do not lie side by side must be constants, to be joined once": """
        g (float[n,3] x, float[3,2] v, float[3,2] w) => (float[n,2] y) {
            a = MatMul(x, v)  b = MatMul(x, w)  s = Sigmoid(a)  y = Mul(s, b)
        }""",
        "'s' (Sigmoid) must be read by nobody else; the graph's output reads it too": f"""
        g (float[n,3] x) => (float[n,2] y, float[n,2] s) <{W}> {{ a = MatMul(x, v)  b = MatMul(x, w)  s = Sigmoid(a)  y = Mul(s, b) }}""",
    },
)
