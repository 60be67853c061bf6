"""A fused op: its signature, the types it takes, and what it computes in standard ONNX ops.

The reference is the op's meaning. It travels in every written model as a FunctionProto, is the oracle of the
op's tests, and is what the cost room counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx
import onnx.parser

from onnxfuse.errors import RuleError, ShapeError
from onnxfuse.pattern import Call
from onnxfuse.symbolic import Dim

DOMAIN = "ai.onnxfuse"
VERSION = 1
Attribute = int | float | str
Shape = tuple[Dim, ...]
ONNX_TYPES: dict[str, int] = {
    "float": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "double": onnx.TensorProto.DOUBLE,
    "int64": onnx.TensorProto.INT64,
    "int32": onnx.TensorProto.INT32,
    "int16": onnx.TensorProto.INT16,
    "int8": onnx.TensorProto.INT8,
    "uint64": onnx.TensorProto.UINT64,
    "uint32": onnx.TensorProto.UINT32,
    "uint16": onnx.TensorProto.UINT16,
    "uint8": onnx.TensorProto.UINT8,
    "bool": onnx.TensorProto.BOOL,
}
TYPE_NAMES: dict[int, str] = {number: name for name, number in ONNX_TYPES.items()}


@dataclass(frozen=True)
class Param:
    """One formal input or output: `scale: T[n]?` has name scale, type T, dims ("n",), and may be absent.

    dims: names unify over the op (`...` stands for any leading dims, the same everywhere); None means any shape.
    A type that is no key of `Op.types` is an ONNX type itself (`int64`).
    """

    name: str
    type: str
    dims: tuple[str, ...] | None
    optional: bool


@dataclass(frozen=True)
class Instance:
    """One use of an op, as far as its body may depend on it."""

    attributes: Mapping[str, Attribute]
    inputs: frozenset[str]  # names of the formal inputs that are given
    outputs: frozenset[str]
    types: Mapping[str, str]  # type variable -> ONNX type name
    opset: int

    def mean(self, x: str, axis: int = -1) -> str:
        """Text of a mean over one axis, kept with size 1: the axes were an attribute until opset 18."""
        if self.opset >= 18:
            return f"ReduceMean <keepdims = 1> ({x}, {self.ints(axis)})"
        return f"ReduceMean <axes = [{axis}], keepdims = 1> ({x})"

    @staticmethod
    def ints(*values: int) -> str:
        """Text of an int64 vector constant."""
        return f"Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()"

    @staticmethod
    def scalar(value: float) -> str:
        """Text of a float32 scalar constant; every finite value survives exactly."""
        return f"Constant <value = float {{{value!r}}}> ()"


@dataclass(frozen=True)
class Op:
    """A custom op of `domain`. Calling it in a rule names its arguments: `GELU(x, bias, approximate="none")`.

    signature: `Name(x: T[..., n], bias: T[n]?) -> (y: T[..., n])`; `x: any...` stands for any number of any types.
    attributes: name -> default; the default's type is the attribute's type.
    reference: the function body as ONNX text (`{ ... }`), or a function from the instance to it.
    tolerance: per type of T, the largest error allowed against the body in float64, relative to max(1, |y|).
    output_shapes: for ops whose outputs the signature's dims cannot say; gets shapes by input name.
    limits: returns why a given use cannot run, or None: shapes by input name, attributes.
    formals: for an op that takes any number of inputs, those of one use and its outputs, by its attributes.
    function: the body of one use, in place of the reference.
    """

    signature: str
    types: Mapping[str, tuple[str, ...]]
    reference: str | Callable[[Instance], str]
    tolerance: Mapping[str, float]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    output_shapes: Callable[[Mapping[str, Shape], Mapping[str, Attribute]], Mapping[str, Shape]] | None = None
    limits: Callable[[Mapping[str, Shape], Mapping[str, Attribute]], str | None] | None = None
    domain: str = DOMAIN
    formals: Callable[[Mapping[str, Attribute]], tuple[tuple[Param, ...], tuple[Param, ...]]] | None = None
    function: Callable[[Instance], onnx.FunctionProto] | None = None

    def __call__(self, *operands: Any, **attributes: Any) -> Call:
        """A use of the op, for the `after` of a rule: operands by position, None for an absent one."""
        unknown = set(attributes) - set(self.attributes)
        if unknown or len(operands) > len(self.inputs):
            takes = f"{len(self.inputs)} inputs and attributes {sorted(self.attributes)}"
            raise RuleError(f"{self.name} takes {takes}; got {len(operands)} and {sorted(attributes)}")
        return Call(self.domain, self.name, operands, attributes, op=self)

    @property
    def name(self) -> str:
        return self.signature.split("(", 1)[0].strip()

    @property
    def inputs(self) -> tuple[Param, ...]:
        return _params(self.signature.split("->")[0])

    @property
    def outputs(self) -> tuple[Param, ...]:
        return _params(self.signature.split("->")[1])

    def params(self, attributes: Mapping[str, Attribute]) -> tuple[tuple[Param, ...], tuple[Param, ...]]:
        """The formal inputs and outputs of a use with these attributes."""
        return (self.inputs, self.outputs) if self.formals is None else self.formals({**self.attributes, **attributes})

    def body(self, instance: Instance) -> onnx.FunctionProto:
        """The op's meaning as a model-local function, spelled at `instance.opset`."""
        if self.function is not None:
            return self.function(instance)
        text = self.reference if isinstance(self.reference, str) else self.reference(instance)
        inputs = ", ".join(p.name for p in self.inputs)
        outputs = ", ".join(p.name for p in self.outputs if p.name in instance.outputs)
        attributes = f"<{', '.join(self.attributes)}>" if self.attributes else ""
        head = f'<domain: "{self.domain}", opset_import: ["" : {instance.opset}]>'
        return onnx.parser.parse_function(f"{head}\n{self.name} {attributes} ({inputs}) => ({outputs})\n{text}")

    def infer(self, shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> dict[str, Shape]:
        """Shapes of all outputs from the shapes of the inputs that are given.

        Raises ShapeError when the inputs do not satisfy the signature or the op's limits.
        """
        bound: dict[str, Shape] = {}
        for param in self.inputs:
            if param.name in shapes and param.dims is not None:
                self._unify(param, shapes[param.name], bound)
        problem = self.limits(shapes, attributes) if self.limits else None
        if problem:
            raise ShapeError(f"{self.name}: {problem}")
        if self.output_shapes:
            return dict(self.output_shapes(shapes, attributes))
        return {p.name: tuple(d for name in p.dims or () for d in bound[name]) for p in self.outputs}

    def _unify(self, param: Param, shape: Shape, bound: dict[str, Shape]) -> None:
        assert param.dims is not None
        fixed = [d for d in param.dims if d != "..."]
        leading = len(shape) - len(fixed)
        if leading < 0 or (leading > 0 and "..." not in param.dims):
            more = " or more" if "..." in param.dims else ""
            raise ShapeError(f"{self.name}: {param.name} must have rank {len(fixed)}{more}; got {show(shape)}")
        position = 0
        for name in param.dims:
            size = leading if name == "..." else 1
            part = shape[position : position + size]
            position += size
            if name not in bound:
                bound[name] = (int(name),) if name.isdigit() else part
            if bound[name] != part:
                raise ShapeError(f"{self.name}: {param.name} must have {name} = {show(bound[name])}; got {show(part)} in {show(shape)}")


def variant_name(name: str, number: int) -> str:
    """The name an op goes by where its body is the number-th different one of a model, from 1 on.

    ONNX tells such bodies apart by `overload`, but ONNX Runtime before 1.24 takes any of them for all: wrong numbers
    without our library. The library knows several names for each op (`variants` in its op.cc); one beyond them has no
    kernel and runs by its body.
    """
    return name if number == 1 else f"{name}_{number}"


def show(shape: Sequence[Dim]) -> str:
    """A shape as people write it: [2,seq,64]."""
    return "[" + ",".join(map(str, shape)) + "]"


_PARAM = re.compile(r"(\w+)\s*:\s*(\w+)\s*(?:\[([^\]]*)\])?\s*(\?)?")


@cache
def _params(text: str) -> tuple[Param, ...]:
    inside = text[text.index("(") + 1 : text.rindex(")")]
    return tuple(
        Param(name, kind, None if dims is None else tuple(d.strip() for d in dims.split(",") if d.strip()), bool(optional))
        for name, kind, dims, optional in ((m[1], m[2], m[3], m[4]) for m in _PARAM.finditer(inside))
    )
