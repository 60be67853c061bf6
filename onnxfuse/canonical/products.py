"""Canonical forms of matrix products: MatMul, Gemm, Einsum of two operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxfuse.canonical.view import View, handles, is_float
from onnxfuse.graph import Node, Value
from onnxfuse.layout import Layout, identity, reshape, transpose
from onnxfuse.symbolic import Dim, product
from onnxfuse.term import Term, product_of

Terms = list[Term | None] | None
PROBABILITIES = ("Softmax", "NanToZero")


@handles("MatMul")
def _matmul(view: View, node: Node) -> Terms:
    if not is_float(node.outputs[0]):
        return None
    return _unmerged(view, node) or _turned(view, node) or [view.algebra.operation("MatMul", view.args(node))]


def _unmerged(view: View, node: Node) -> Terms:
    """A product of [batch*heads, m, k] views as the product with batch and heads apart, merged afterwards."""
    sides = [view.layout(v) for v in node.inputs]
    if any(s is None or len(s[2].axes) != 3 for s in sides):
        return None
    (fa, a, la), (fb, b, lb) = (s for s in sides if s is not None)
    batch = max((la.axes[0], lb.axes[0]), key=len)
    if len(batch) < 2:
        return None
    sizes = [p.size for p in batch]
    split = [reshape(layout, (*sizes, *layout.shape[1:])) for layout in (la, lb)]
    if split[0] is None or split[1] is None:
        return None
    terms = [view.algebra.operation("View", (t,), {"layout": layout}) for t, layout in zip((a, b), split, strict=True)]
    apart = view.algebra.operation("MatMul", terms)
    merged = reshape(identity((*sizes, la.shape[1], lb.shape[2])), (la.shape[0], la.shape[1], lb.shape[2]))
    return view.view((fa * fb, apart, merged), lambda layout: layout) if merged is not None else None


def _turned(view: View, node: Node) -> Terms:
    """v' p' for probabilities p, as convolution-like attention spells it, as (p v)'."""
    a, b = (view.layout(v) for v in node.inputs[:2])
    if a is None or b is None or b[1].op not in PROBABILITIES or b[2] != _turn(identity(b[2].base)):
        return None
    left = view.view(a, _turn)
    if left is None or left[0] is None:
        return None
    p = view.algebra.scale(b[1], b[0])
    return _viewed(view, view.algebra.operation("MatMul", (p, left[0])), (*b[2].base[:-1], a[2].shape[-2]), _turn)


def _turn(layout: Layout) -> Layout:
    """The last two axes change places."""
    order = list(range(len(layout.axes)))
    return transpose(layout, (*order[:-2], order[-1], order[-2]))


def _viewed(view: View, term: Term, shape: Sequence[Dim], change: Callable[[Layout], Layout | None]) -> Terms:
    """A view of a term that has that shape."""
    factor, parts = product_of(term)
    return view.view((factor, view.algebra.product(1.0, parts), identity(shape)), change)


@handles("Einsum")
def _einsum(view: View, node: Node) -> Terms:
    """Of two operands whose labels are those of a batched product: views of them, multiplied, and a view of the result."""
    labels = _labels(node)
    sides = [view.layout(v) for v in node.inputs[:2]]
    if labels is None or not is_float(node.outputs[0]) or sides[0] is None or sides[1] is None:
        return None
    a, b, out = labels
    if len(a) != len(sides[0][2].axes) or len(b) != len(sides[1][2].axes):
        return None
    swapped = sides[1][1].op in PROBABILITIES or (_is_behind(a, b, out) and sides[0][1].op not in PROBABILITIES)
    if swapped:  # probabilities stand on the left, else what comes first in the result
        a, b, sides = b, a, sides[::-1]
    batch = [n for n in out if n in a and n in b]
    rows, columns = [n for n in out if n not in b], [n for n in out if n not in a]
    summed = [n for n in a if n in b and n not in out]
    if not rows or not columns or not summed or set(a) != {*batch, *rows, *summed} or set(b) != {*batch, *columns, *summed}:
        return None
    sizes = {n: d for side, names in zip(sides, (a, b), strict=True) if side for n, d in zip(names, side[2].shape, strict=True)}
    kept = [[n] for n in rows] if not batch else [rows]  # without a batch, rows may have several axes
    left = _arranged(view, sides[0], a, [*([n] for n in batch), *kept, summed], sizes)
    right = _arranged(view, sides[1], b, [*([n] for n in batch), summed, columns], sizes)
    if left is None or right is None:
        return None
    shape = [product([sizes[n] for n in names]) for names in (*([n] for n in batch), *kept, columns)]
    made = [*batch, *rows, *columns]

    def back(layout: Layout) -> Layout | None:
        apart = reshape(layout, [sizes[n] for n in made])
        return None if apart is None else transpose(apart, [made.index(n) for n in out])

    return _viewed(view, view.algebra.operation("MatMul", (left, right)), shape, back)


def _labels(node: Node) -> tuple[str, str, str] | None:
    """(left, right, result) of an equation that says all three, each label once in each."""
    equation = node.attributes.get("equation", "")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    operands, arrow, out = text.partition("->")
    names = operands.split(",")
    if not arrow or len(names) != 2 or len(node.inputs) != 2 or any(len(set(n)) < len(n) or not n.isalpha() for n in (*names, out)):
        return None
    return names[0], names[1], out


def _is_behind(a: str, b: str, out: str) -> bool:
    """Whether what only `a` has comes last in the result."""
    return bool(out) and out[-1] in a and out[-1] not in b


def _arranged(
    view: View, side: tuple[float, Term, Layout] | None, names: str, groups: list[list[str]], sizes: dict[str, Dim]
) -> Term | None:
    """The operand with its axes in this order, those of a group merged."""
    order = [names.index(n) for group in groups for n in group]
    shape = [product([sizes[n] for n in group]) for group in groups]
    terms = view.view(side, lambda layout: reshape(transpose(layout, order), shape))
    return terms[0] if terms else None


@handles("Gemm")
def _gemm(view: View, node: Node) -> Terms:
    """alpha * A' B' + beta * C"""
    operands = [_transposed(view, value, node.attributes.get(f"trans{name}", 0)) for name, value in zip("AB", node.inputs[:2], strict=True)]
    if None in operands or not is_float(node.outputs[0]):
        return None
    a, b = (t for t in operands if t is not None)
    result = view.algebra.scale(view.algebra.operation("MatMul", (a, b)), float(node.attributes.get("alpha", 1.0)) or 1.0)
    bias, beta = view.term(node.input(2)), float(node.attributes.get("beta", 1.0))
    if node.attributes.get("alpha", 1.0) == 0 or (bias is not None and beta == 0):
        return None
    return [result if bias is None else view.algebra.add(result, view.algebra.scale(bias, beta), flatten=(True, False))]


def _transposed(view: View, value: Value | None, flag: int) -> Term | None:
    if not flag:
        return view.term(value)
    terms = view.view(view.layout(value), lambda layout: transpose(layout, (1, 0)))
    return terms[0] if terms else None
