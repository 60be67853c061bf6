"""Writing the reference body of an op, statement by statement, in standard ONNX ops.

What several ops share (GELU, SiLU, normalising) stands at the end.
"""

from __future__ import annotations

import math
import re

from onnxfuse.op import ONNX_TYPES, Instance

END = 2**31 - 1  # past the end of any axis


class Reference:
    """A body under construction. `op` adds a statement and returns the name of its value; `text` is the whole.

    Sums are made in `sum_type`: float, or double where the type variable is double. `wide` brings an input there,
    `give` brings a value back to the variable's own type and names it as an output.
    """

    def __init__(self, instance: Instance, variable: str = "T") -> None:
        self.instance = instance
        self.type = instance.types[variable]
        self.sum_type = "double" if self.type == "double" else "float"
        self._statements: list[tuple[str, str]] = []

    @property
    def text(self) -> str:
        return "{\n" + "".join(f"  {name} = {expression}\n" for name, expression in self._statements) + "}"

    def let(self, expression: str) -> str:
        """Add `name = expression` under a fresh name, which is returned."""
        name = f"v{len(self._statements)}"
        self._statements.append((name, expression))
        return name

    def op(self, kind: str, *operands: str, **attributes: float | str) -> str:
        shown = ", ".join(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value!r}" for key, value in attributes.items())
        return self.let(f"{kind} {f'<{shown}> ' if shown else ''}({', '.join(operands)})")

    def has(self, formal: str) -> bool:
        """Whether an optional input is given, or an optional output wanted."""
        return formal in self.instance.inputs or formal in self.instance.outputs

    def wide(self, formal: str) -> str:
        """The input in `sum_type`."""
        return formal if self.type == self.sum_type else self.cast(formal, self.sum_type)

    def cast(self, value: str, type_name: str) -> str:
        return self.op("Cast", value, to=int(ONNX_TYPES[type_name]))

    def number(self, value: float) -> str:
        """A scalar constant in `sum_type`."""
        return self.let(f"Constant <value = {self.sum_type} {{{value!r}}}> ()")

    def ints(self, *values: int) -> str:
        return self.let(self.instance.ints(*values))

    def mean(self, value: str, first_axis: int = -1) -> str:
        """The mean over axes first_axis (negative) to the last, kept with size 1."""
        return self.reduce("ReduceMean", value, *range(first_axis, 0))

    def reduce(self, kind: str, value: str, *axes: int) -> str:
        """A reduction (any but ReduceSum) over axes, kept with size 1; the axes were an attribute until opset 18."""
        if self.instance.opset >= 18:
            return self.op(kind, value, self.ints(*axes), keepdims=1)
        return self.let(f"{kind} <axes = [{', '.join(map(str, axes))}], keepdims = 1> ({value})")

    def reshape(self, value: str, shape: str) -> str:
        """Under a shape that is written out in full; sizes of 0 need opset 14."""
        return self.op("Reshape", value, shape, **({"allowzero": 1} if self.instance.opset >= 14 else {}))

    def halves(self, value: str, axis: int = -1) -> tuple[str, str]:
        """The two halves of an axis; their number was told by the outputs alone until opset 18."""
        first, second = f"v{len(self._statements)}", f"v{len(self._statements)}b"
        count = ", num_outputs = 2" if self.instance.opset >= 18 else ""
        self._statements.append((f"{first}, {second}", f"Split <axis = {axis}{count}> ({value})"))
        return first, second

    def slice(self, value: str, start: int, end: int, step: int = 1) -> str:
        """Elements start to end (excluded; END for all) of the last axis."""
        steps = [self.ints(step)] if step != 1 else []
        return self.op("Slice", value, self.ints(start), self.ints(end), self.ints(-1), *steps)

    def unsqueeze_last(self, value: str) -> str:
        """A new axis of size 1 after the last; the axes were an attribute until opset 13."""
        if self.instance.opset >= 13:
            return self.op("Unsqueeze", value, self.ints(-1))
        return self.let(f"Unsqueeze <axes = [-1]> ({value})")

    def give(self, output: str, value: str) -> str:
        """Make `value` the output, in the variable's type; returns the name that `value`, unrounded, has from now on."""
        if output not in self.instance.outputs:
            return value
        if self.type != self.sum_type:
            self._statements.append((output, f"Cast <to = {int(ONNX_TYPES[self.type])}> ({value})"))
            return value
        if value not in (name for name, _ in self._statements) or value in self.instance.outputs:
            self._statements.append((output, f"Identity ({value})"))
            return value
        word = re.compile(rf"\b{value}\b")
        self._statements = [(word.sub(output, name), word.sub(output, expression)) for name, expression in self._statements]
        return output


def gelu(r: Reference, x: str, approximate: str) -> str:
    """x / 2 (1 + erf(x / sqrt 2)), or x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    if approximate == "tanh":
        cube = r.op("Mul", r.op("Mul", x, x), x)
        inner = r.op("Mul", r.op("Add", x, r.op("Mul", cube, r.number(0.044715))), r.number(math.sqrt(2 / math.pi)))
        curve = r.op("Tanh", inner)
    else:
        curve = r.op("Erf", r.op("Mul", x, r.number(math.sqrt(0.5))))
    return r.op("Mul", r.op("Mul", x, r.number(0.5)), r.op("Add", curve, r.number(1.0)))


def silu(r: Reference, x: str, alpha: float) -> str:
    """x sigmoid(alpha x)."""
    return r.op("Mul", x, r.op("Sigmoid", x if alpha == 1.0 else r.op("Mul", x, r.number(alpha))))


def unit_root_mean_square(r: Reference, x: str, epsilon: float, first_axis: int = -1) -> str:
    """x / sqrt(mean(x^2) + epsilon) over axes first_axis to the last."""
    root = r.op("Sqrt", r.op("Add", r.mean(r.op("Mul", x, x), first_axis), r.number(epsilon)))
    return r.op("Div", x, root)


def unit_variance(r: Reference, x: str, epsilon: float, first_axis: int = -1) -> str:
    """(x - mean) / sqrt(variance + epsilon) over axes first_axis to the last."""
    return unit_root_mean_square(r, r.op("Sub", x, r.mean(x, first_axis)), epsilon, first_axis)
