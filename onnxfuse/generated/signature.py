"""The formal inputs and outputs of a generated operator, and the shapes of what it gives: all follow from its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import TypeAlias

import onnx

from onnxfuse.errors import ShapeError
from onnxfuse.generated.body import body, shaping_values
from onnxfuse.generated.primitives import CONCAT
from onnxfuse.generated.program import Program, parse
from onnxfuse.op import DOMAIN, Attribute, Instance, Param, Shape, show
from onnxfuse.shape_rules_layout import agreed
from onnxfuse.symbolic import Dim, broadcast

Attributes: TypeAlias = Mapping[str, Attribute]
parsed = cache(parse)


def program_of(attributes: Attributes) -> Program:
    """The program of a use. Raises UsageError where it is none."""
    return parsed(str(attributes["program"]))


def formals(attributes: Attributes) -> tuple[tuple[Param, ...], tuple[Param, ...]]:
    """Inputs x0, x1, ... and outputs y0, y1, ... with their types."""
    program = program_of(attributes)
    inputs = tuple(Param(f"x{i}", given.type, None, False) for i, given in enumerate(program.inputs))
    return inputs, tuple(Param(f"y{i}", program.types[name], None, False) for i, name in enumerate(program.results))


def output_shapes(shapes: Mapping[str, Shape], attributes: Attributes) -> dict[str, Shape]:
    """The common shape of the inputs, or for what is reduced that with rows of size 1."""
    program, axes = program_of(attributes), int(attributes.get("axes", 0))
    common = common_of(program, [shapes[f"x{i}"] for i in range(len(program.inputs))])
    row = (*common[: len(common) - axes], *[1] * axes)
    return {f"y{i}": row if name in program.rows else common for i, name in enumerate(program.results)}


def limits(shapes: Mapping[str, Shape], attributes: Attributes) -> str | None:
    """Why inputs of these shapes cannot be taken, if they cannot."""
    program, axes = program_of(attributes), int(attributes.get("axes", 0))
    if axes < 0 or (axes == 0 and program.is_reduction):
        return f"attribute 'axes' must be at least 1; got {axes}"
    for name in (f"x{i}" for i, given in enumerate(program.inputs) if given.row):
        if any(d != 1 for d in shapes[name][max(0, len(shapes[name]) - axes) :]):
            return f"{name} must have size 1 over the row; got {show(shapes[name])}"
    try:
        common = common_of(program, [shapes[f"x{i}"] for i in range(len(program.inputs))])
    except ShapeError as error:
        return str(error)
    return f"the row must have {axes} axes; the inputs have {show(common)}" if len(common) < axes else None


def function(name: str, formal: Sequence[str], instance: Instance) -> onnx.FunctionProto:
    """The body of one use."""
    axes = int(instance.attributes.get("axes", 1))
    return body(program_of(instance.attributes), domain=DOMAIN, name=name, opset=instance.opset, axes=axes, formal=formal)


def common_of(program: Program, inputs: Sequence[Shape]) -> Shape:
    """The shape that inputs of these shapes are broadcast to. Raises ShapeError where they do not fit each other."""
    shapes = {f"x{i}": shape for i, shape in enumerate(inputs)}
    for i, step in enumerate(program.steps):
        if step.op == CONCAT:
            shapes[f"v{i}"] = _joined([shapes[o] for o in step.operands], int(step.number or 0))
    return _common([shapes[name] for name in shaping_values(program)])


def _joined(pieces: Sequence[Shape], axis: int) -> Shape:
    """The shape of pieces one behind the other along an axis, counted from the end."""
    rank = len(pieces[0])
    at = rank + axis
    others = [[p[i] for p in pieces] for i in range(rank) if i != at] if all(len(p) == rank for p in pieces) else []
    if at < 0 or len(others) != rank - 1 or any(len({d for d in dims if isinstance(d, int)}) > 1 for dims in others):
        raise ShapeError(f"the inputs of a Concat must be alike but for axis {axis}; got {' and '.join(map(show, pieces))}")
    alike = [agreed(dims) for dims in others]
    return (*alike[:at], sum((p[at] for p in pieces), start=0), *alike[at:])


def _common(shapes: Sequence[Shape]) -> Shape:
    """What the shapes are broadcast to. Raises ShapeError where they do not fit each other."""
    rank = max(map(len, shapes), default=0)
    return tuple(reduce(_fitting, dims) for dims in zip(*((*[1] * (rank - len(s)), *s) for s in shapes), strict=True))


def _fitting(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int) and one != other and 1 not in (one, other):
        raise ShapeError(f"inputs must be broadcast to one shape; sizes {one} and {other} meet")
    return broadcast(one, other)
