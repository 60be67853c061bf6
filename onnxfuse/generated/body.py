"""What a program means, spelled in standard ONNX operators: a model-local function, at any opset from 11 on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxfuse.generated.primitives import CAST, CONCAT, CONST, DIM, is_reduction
from onnxfuse.generated.program import Number, Program, Step

REDUCE_AXES_SINCE = {"ReduceSum": 13}  # from this opset on axes are an input; 18 for the others
RENAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "Mod": ("Mod", {"fmod": 0}),
    "FMod": ("Mod", {"fmod": 1}),
    "ShiftLeft": ("BitShift", {"direction": "LEFT"}),
    "ShiftRight": ("BitShift", {"direction": "RIGHT"}),
}
GELU_SINCE = 20


def onnx_type(kind: str) -> int:
    """The ONNX number of a type by its name: float16."""
    return int(onnx.TensorProto.DataType.Value(kind.upper()))


def scalar(number: Number, kind: str) -> onnx.TensorProto:
    """A constant of rank 0."""
    with np.errstate(over="ignore"):
        return numpy_helper.from_array(np.array(number).astype(helper.tensor_dtype_to_np_dtype(onnx_type(kind))))


def body(program: Program, *, domain: str, name: str, opset: int, axes: int = 1, formal: Sequence[str] = ()) -> onnx.FunctionProto:
    """The program as a function with inputs x0, x1, ... and outputs y0, y1, ...

    axes: how many trailing axes form a row. formal: names of attributes that the function declares and ignores.
    """
    spelled = _Speller(program, opset, axes)
    inputs = [f"x{i}" for i in range(len(program.inputs))]
    outputs = [f"y{i}" for i in range(len(program.results))]
    made = helper.make_function(domain, name, inputs, outputs, spelled.nodes(), [helper.make_opsetid("", opset)], list(formal))
    assert isinstance(made, onnx.FunctionProto)
    return made


class _Speller:
    """Writes the nodes of one program."""

    def __init__(self, program: Program, opset: int, axes: int) -> None:
        self.program, self.opset, self.axes = program, opset, axes
        self.made: list[onnx.NodeProto] = []

    def nodes(self) -> list[onnx.NodeProto]:
        for i, step in enumerate(self.program.steps):
            self._step(step, f"v{i}")
        self._results()
        return self.made

    def op(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.made)}"
        self.made.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def number(self, number: Number, kind: str, output: str = "") -> str:
        return self.op("Constant", [], output, value=scalar(number, kind))

    def ints(self, *numbers: int) -> str:
        return self.op("Constant", [], value=numpy_helper.from_array(np.array(numbers, np.int64)))

    def reduce(self, kind: str, value: str, output: str = "") -> str:
        """Over the axes of the row, which keep size 1."""
        axes = range(-self.axes, 0)
        if self.opset >= REDUCE_AXES_SINCE.get(kind, 18):
            return self.op(kind, [value, self.ints(*axes)], output, keepdims=1)
        return self.op(kind, [value], output, axes=list(axes), keepdims=1)

    def _step(self, step: Step, output: str) -> None:
        if step.op == CONST:
            assert step.number is not None
            self.number(step.number, step.type, output)
        elif step.op == DIM:
            axis = self.op("Constant", [], value=scalar(int(step.number or 0), "int64"))
            self.op("Gather", [self.op("Shape", step.operands), axis], output)
        elif step.op == CONCAT:
            self.op("Concat", step.operands, output, axis=int(step.number or 0))
        elif step.op == CAST:
            self.op("Cast", step.operands, output, to=onnx_type(step.type))
        elif is_reduction(step.op):
            self.reduce(step.op, step.operands[0], output)
        elif step.op in ("Gelu", "GeluTanh"):
            self._gelu(step, output)
        else:
            kind, attributes = RENAMED.get(step.op, (step.op, {}))
            self.op(kind, step.operands, output, **attributes)

    def _gelu(self, step: Step, output: str) -> None:
        """In one operator, or where there is none yet in those that define it, rounding once."""
        fast, (x,) = step.op == "GeluTanh", step.operands
        if self.opset >= GELU_SINCE:
            self.op("Gelu", [x], output, approximate="tanh" if fast else "none")
            return
        kind = step.type if step.type == "double" else "float"
        wide = x if kind == step.type else self.op("Cast", [x], to=onnx_type(kind))
        if fast:
            cube = self.op("Mul", [self.op("Mul", [wide, wide]), wide])
            inner = self.op("Add", [wide, self.op("Mul", [cube, self.number(0.044715, kind)])])
            curve = self.op("Tanh", [self.op("Mul", [inner, self.number(math.sqrt(2 / math.pi), kind)])])
        else:
            curve = self.op("Erf", [self.op("Mul", [wide, self.number(math.sqrt(0.5), kind)])])
        half = self.op("Mul", [wide, self.number(0.5, kind)])
        made = self.op("Mul", [half, self.op("Add", [curve, self.number(1.0, kind)])], output if kind == step.type else "")
        if kind != step.type:
            self.op("Cast", [made], output, to=onnx_type(step.type))

    # ---- results have the common shape, whatever they depend on

    def _results(self) -> None:
        depends = _dependencies(self.program)
        shaping = shaping_values(self.program)
        shapes: dict[bool, str] = {}
        for i, result in enumerate(self.program.results):
            if set(shaping) <= depends[result]:
                self.op("Identity", [result], f"y{i}")
                continue
            is_row = result in self.program.rows
            if is_row not in shapes:
                shapes[is_row] = self.op("Shape", [self._common(shaping, is_row=is_row)])
            self.op("Expand", [result, shapes[is_row]], f"y{i}")

    def _common(self, shaping: Sequence[str], *, is_row: bool) -> str:
        """A tensor of the common shape, or of a row's."""
        false = helper.make_tensor("false", onnx.TensorProto.BOOL, [1], [False])
        masks = [self.op("ConstantOfShape", [self.op("Shape", [name])], value=false) for name in shaping]
        common = masks[0]
        for mask in masks[1:]:
            common = self.op("Or", [common, mask])
        if not is_row:
            return common
        return self.reduce("ReduceSum", self.op("Cast", [common], to=onnx.TensorProto.FLOAT))


def shaping_values(program: Program) -> list[str]:
    """What takes part in broadcasting: inputs, but for those that only Dim and Concat read; and what is made by a Concat."""
    read = {o for step in program.steps if step.op not in (DIM, CONCAT) for o in step.operands}
    measured = {o for step in program.steps if step.op in (DIM, CONCAT) for o in step.operands}
    inputs = [f"x{i}" for i in range(len(program.inputs))]
    joined = [f"v{i}" for i, step in enumerate(program.steps) if step.op == CONCAT]
    return [*(name for name in inputs if name in read or name not in measured), *joined]


def _dependencies(program: Program) -> dict[str, set[str]]:
    """The shaping values on whose elements each value depends, by name."""
    found = {f"x{i}": {f"x{i}"} for i in range(len(program.inputs))}
    for i, step in enumerate(program.steps):
        name = f"v{i}"
        found[name] = {name} if step.op == CONCAT else set().union(*(found[o] for o in step.operands)) if step.op != DIM else set()
    return found
