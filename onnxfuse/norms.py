"""Norms that are more than a product: of groups of channels seen through Reshapes, and bounded away from 0.

group_norm(x)       what layer_norm gives for [batch, groups, the rest of a group], seen as x again
bounded_norm(x)     x / max(mean(x^2)^1/2, epsilon)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxfuse.layout import Layout, identity, reshape
from onnxfuse.symbolic import divide, product
from onnxfuse.term import NUMBER, Algebra, Term, product_of

Parts = Mapping[Term, float]


def group_norm(algebra: Algebra, norm: Term, outer: Layout) -> Term | None:
    """The view of a norm as a norm of groups of channels, if both views only regroup [batch, channels, ...]."""
    if norm.op != "LayerNormalization" or norm.args[0].op != "View":
        return None
    axes, inner = norm.attributes["axes"], norm.args[0].attributes["layout"]
    if not isinstance(inner, Layout) or not isinstance(axes, tuple) or axes != tuple(range(-len(axes), 0)):
        return None
    if (outer.base, outer.shape) != (inner.shape, inner.base) or not (_regroups(inner) and _regroups(outer)):
        return None
    batch, channels = inner.base[:2] if len(inner.base) > 1 else (0, 0)
    groups = divide(product(inner.shape[: -len(axes)]), batch)
    if not isinstance(groups, int) or not isinstance(channels, int) or channels % groups:
        return None
    attributes = {"num_groups": groups, "epsilon": norm.attributes["epsilon"]}
    return algebra.plain("GroupNormalization", norm.args[0].args, attributes)


def _regroups(layout: Layout) -> bool:
    """Whether a view has the elements of its base in their order."""
    return reshape(identity(layout.base), layout.shape) == layout


def bounded_norm(algebra: Algebra, part: Term, exponent: float, parts: Parts) -> tuple[Parts, Term] | None:
    """(used, replacement) for x / max(c mean(x^2)^1/2, b) = bounded_norm(x, b / c) / c; the square of the max may stand under the root."""
    bound, below = _bounded_below(part)
    if bound <= 0 or below is None or exponent not in (-1, -0.5):
        return None
    factor, inner = product_of(below)
    ((mean, power),) = inner if len(inner) == 1 else ((below, 0.0),)
    if mean.op != "Mean" or power != -0.5 / exponent or not mean.attributes["keepdims"] or factor <= 0:
        return None
    _, squares = product_of(mean.args[0])
    x = {t: e / 2 for t, e in squares}
    if not x or not all(parts.get(t, 0.0) >= e > 0 for t, e in x.items()):
        return None
    c, b = (factor, bound) if exponent == -1 else (math.sqrt(factor), math.sqrt(bound))
    attributes = {"axes": mean.attributes["axes"], "epsilon": b / c}
    norm = algebra.plain("BoundedNormalization", (algebra.product(1.0, x.items()),), attributes)
    return {part: exponent, **x}, algebra.scale(norm, 1 / c)


def _bounded_below(term: Term) -> tuple[float, Term | None]:
    """(bound, x) of max(x, bound), however it is spelled; (0, None) of anything else."""
    if term.op == "Clip" and term.attributes.get("max") == math.inf:  # where the bounds are known, they are attributes
        return term.attributes["min"], term.args[0]
    if term.op == "Max" and len(term.args) == 2:
        numbers = [a.coefficient for a in term.args if a.op == NUMBER]
        others = [a for a in term.args if a.op != NUMBER]
        return (numbers[0], others[0]) if len(numbers) == len(others) == 1 else (0.0, None)
    return 0.0, None
