"""What operators that multiply with a weight check of it: [k, n], or [n, k] where trans_weight is 1."""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Shape, show


def depth_and_columns(weight: Shape, attributes: Mapping[str, Attribute]) -> Shape:
    """(k, n) of a weight of rank 2."""
    return weight[::-1] if attributes["trans_weight"] else weight


def weight_problem(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    """What keeps `weight` from being multiplied with rows of `x`, if anything does."""
    x, weight = shapes["x"], shapes["weight"]
    if len(weight) != 2:
        return f"weight must have rank 2; got {show(weight)}"
    if depth_and_columns(weight, attributes)[0] != x[-1]:
        return f"weight must have k = {x[-1]}, the last axis of x; got {show(weight)}"
    return None
