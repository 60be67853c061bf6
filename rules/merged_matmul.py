"""x @ v, x @ w, ... -> Split(x @ [v, w, ...]): x is read once, by one product instead of one for each.

Weights in external files stay there: they are joined by a Concat, which a runtime works out once, when it loads the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxfuse.graph import Node, Value
from onnxfuse.pattern import Call, Var, optional, target
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand, Rule
from onnxfuse.symbolic import Dim

x, w, b = Var("x"), Var("w", constant=True), Var("b", constant=True)


@dataclass(frozen=True)
class Projection:
    """result = x @ weight [+ bias], the weight [k, n], or [n, k] in a Gemm that transposes it."""

    node: Node
    result: Value
    weight: Value
    bias: Value | None
    columns: int

    @property
    def kind(self) -> tuple[str, int, bool]:
        """What must be alike for two to become one."""
        return self.node.op, self.node.attributes.get("transB", 0), self.bias is not None

    @property
    def text(self) -> str:
        """The form, for people."""
        op, turned, biased = self.kind
        return f"{op}{' with transB' if turned else ''} {'with' if biased else 'without'} a bias"


def build(match: Match) -> list[Call]:
    """All products of the same input at the place of the first of them; nothing where there is but one."""
    node = match.root.producer
    biased = node is not None and node.op == "Add"
    product = next((v.producer for v in node.inputs if v is not None and not v.is_constant), None) if node and biased else node
    source = product.input(0) if product is not None else None
    if product is None or source is None or source.shape is None:
        return []
    found = [p for p in _projections(source, biased) if p.node.graph is product.graph]
    own = next((p for p in found if p.result is match.root), None)
    if own is None or own is not found[0] or len(found) == 1:
        return []
    if any(p.kind != own.kind for p in found):
        kinds = " and ".join(dict.fromkeys(p.text for p in found))
        raise Decline(f"the products of '{source.name}' must be alike to become one; they are {kinds}")
    return [_merged(match, source, found)]


def _projections(source: Value, biased: bool) -> Iterator[Projection]:
    """The products of `source` with constant matrices, in graph order: with the bias that is added, or as they are."""
    for node in sorted(set(source.users), key=lambda n: n.index):
        weight, result = node.input(1), node.outputs[0]
        plain = node.op == "MatMul" or (node.op == "Gemm" and not node.domain and _is_plain(node))
        if not plain or node.input(0) is not source or weight is None or result is None or not weight.is_constant or weight.rank != 2:
            continue
        columns = (weight.shape or ())[0 if node.attributes.get("transB", 0) else 1]
        bias = node.input(2)
        if node.op == "MatMul" and biased:
            added = _added(result)
            if added is None:
                continue
            result, bias = added
        if isinstance(columns, int) and (bias is None or (bias.is_constant and bias.shape == (columns,))):
            yield Projection(node, result, weight, bias, columns)


def _is_plain(node: Node) -> bool:
    return not node.attributes.get("transA", 0) and all(node.attributes.get(name, 1.0) == 1 for name in ("alpha", "beta"))


def _added(product: Value) -> tuple[Value, Value] | None:
    """(sum, bias) where all that is done with the product is to add a bias."""
    (reader,) = product.users if len(product.users) == 1 and not product.captured and not product.is_output else (None,)
    if reader is None or reader.op != "Add" or reader.outputs[0] is None:
        return None
    bias = next((v for v in reader.inputs if v is not product), None)
    return (reader.outputs[0], bias) if bias is not None else None


def _merged(match: Match, source: Value, parts: Sequence[Projection]) -> Call:
    first = parts[0]
    rows, columns = _joined([p.weight for p in parts], 0 if first.kind[1] else 1), sum(p.columns for p in parts)
    shape: tuple[Dim, ...] = (*(source.shape or ())[:-1], columns)
    biases = [p.bias for p in parts if p.bias is not None]
    bias = _joined(biases, 0) if biases else None
    if first.node.op == "Gemm":
        attributes = (("transB", first.kind[1]),)
        total = Made("Gemm", (source, rows, bias) if bias else (source, rows), match.root.dtype, shape, attributes)
    else:
        total = Made("MatMul", (source, rows), match.root.dtype, shape)
        total = total if bias is None else Made("Add", (total, bias), match.root.dtype, shape)
    made = _split(match, total, source, [p.columns for p in parts]).giving(*(p.result for p in parts[1:]))
    return replace(made, title=f"{first.node.op} + Split")


def _joined(values: Sequence[Value], axis: int) -> Made:
    first = values[0].shape or ()
    shape = tuple(sum((v.shape or ())[i] for v in values) if i == axis else d for i, d in enumerate(first))
    return Made("Concat", tuple(values), values[0].dtype, shape, (("axis", axis),))


def _split(match: Match, total: Operand, source: Value, sizes: Sequence[int]) -> Call:
    made: Call
    if match.view.graph.opset < 13:
        made = target("").Split(total, axis=-1, split=list(sizes))
    else:
        made = target("").Split(total, NewConstant(np.array(sizes, np.int64), source), axis=-1)
    return made


RULE = Rule(
    before=x @ w + optional(b),
    after=build,
    kind="matmul",
    fires_on=[
        """g (float[b,s,2] x) => (float[b,s,1] q, float[b,s,2] k, float[b,s,3] v)
        <float[2,1] l = {1, 2}, float[2,2] m = {1, 2, 3, 4}, float[2,3] n = {1, 2, 3, 4, 5, 6}> {
            q = MatMul(x, l)  k = MatMul(x, m)  v = MatMul(x, n)
        }""",
        """g (float[2,2] x) => (float[2,2] y, float[2,2] z)
        <float[2,2] l = {1, 2, 3, 5}, float[2,2] m = {1, 2, 3, 4}, float[2] a = {1, 2}, float[2] b = {3, 4}> {
            y = Gemm <transB = 1> (x, l, a)  z = Gemm <transB = 1> (x, m, b)
        }""",
        """<opset_import: ["" : 11]> g (float[2,2] x) => (float[2,2] y, float[2,2] z)
        <float[2,2] l = {1, 2, 3, 5}, float[2,2] m = {1, 2, 3, 4}> {
            y = MatMul(x, l)  p = Relu(x)  z = MatMul(x, m)
        }""",
    ],
    declines={
        "the products of 'x' must be alike to become one; they are Gemm with transB with a bias and Gemm without a bias": """
        g (float[2,2] x) => (float[2,2] y, float[2,2] z)
        <float[2,2] l = {1, 2, 3, 5}, float[2,2] m = {1, 2, 3, 4}, float[2] a = {1, 2}> {
            y = Gemm <transB = 1> (x, l, a)  z = Gemm(x, m)
        }""",
    },
)
