"""Counts of one ONNX node: FLOPs, special functions, and the bytes it must move.

Shapes are plain ints: the caller puts sizes in for symbolic dims. Nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import onnx

from onnxfuse.cost.scalar import SCALARS, scalar
from onnxfuse.cost.work import Gemm, Kind, Work
from onnxfuse.errors import ShapeError

Shape = tuple[int, ...]

# Bits of one element, by ONNX type name; all others are found by their trailing number.
BITS = {"float": 32, "double": 64, "bool": 8, "string": 128, "bfloat16": 16, "complex64": 64, "complex128": 128}
TENSOR_TILE = 128  # rows of queries that one attention block takes


@dataclass(frozen=True)
class Call:
    """One node with everything that its counts depend on. Absent optional inputs and outputs have shape None."""

    op: str
    name: str
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    types: tuple[str, ...]  # one per input, then one per output
    attributes: Mapping[str, Any]
    values: Mapping[int, float]  # scalar constants among the inputs, by index

    def shape(self, index: int) -> Shape:
        """Shape of input `index`. Raises ShapeError when the node does not give it."""
        shape = self.inputs[index] if index < len(self.inputs) else None
        if shape is None:
            raise ShapeError(f"cost of {self.op} '{self.name}': input {index} must have a shape; got none. Pass it in input_shapes")
        return shape

    @property
    def out(self) -> Shape:
        """Shape of the first output. Raises ShapeError when there is none."""
        if not self.outputs or self.outputs[0] is None:
            raise ShapeError(f"cost of {self.op} '{self.name}': output 0 must have a shape; got none. Pass it in output_shapes")
        return self.outputs[0]

    def bytes_of(self, index: int, elements: int | None = None) -> int:
        """Bytes of operand `index` (inputs, then outputs), or of `elements` of its elements."""
        shape = (*self.inputs, *self.outputs)[index]
        if shape is None:
            return 0
        return (prod(shape) if elements is None else elements) * bits(self.types[index]) // 8

    @property
    def bytes_in(self) -> int:
        return sum(self.bytes_of(i) for i in range(len(self.inputs)))

    @property
    def bytes_out(self) -> int:
        return sum(self.bytes_of(len(self.inputs) + i) for i in range(len(self.outputs)))

    @property
    def dtype(self) -> str:
        """Type of the first output."""
        return self.types[len(self.inputs)] if self.outputs else self.types[0]


def work(
    op_type: str,
    input_shapes: Sequence[Sequence[int] | None],
    output_shapes: Sequence[Sequence[int] | None],
    dtypes: Sequence[int | str] | int | str,
    attributes: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    values: Mapping[int, float] | None = None,
) -> Work:
    """What one call of the ONNX op costs in FLOPs and bytes.

    dtypes: one ONNX type (number or name) for all operands, or one per input followed by one per output.
    values: scalar constants among the inputs by index, where the cost depends on them (the exponent of Pow).
    Raises ShapeError when a shape that the count needs is absent or negative.
    """
    inputs, outputs = _shapes(op_type, name, input_shapes), _shapes(op_type, name, output_shapes)
    call = Call(
        op_type, name or op_type, inputs, outputs, _types(op_type, dtypes, len(inputs) + len(outputs)), attributes or {}, values or {}
    )
    counter = COUNTERS.get(op_type) or (_pointwise if op_type in SCALARS else _other)
    present = sum(shape is not None for shape in (*inputs, *outputs))
    return replace(counter(call), operands=present, live=max(1, sum(shape is not None for shape in inputs)))


def bits(dtype: str) -> int:
    """Bits of one element of an ONNX type: 16 for float16, 4 for int4."""
    if dtype in BITS:
        return BITS[dtype]
    if dtype.startswith("float8"):
        return 8
    if dtype.startswith("float4"):
        return 4
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdigit() else 32


def type_name(dtype: int | str) -> str:
    """The ONNX name of a type: 1 and "FLOAT" and "float32" are all "float"."""
    text = onnx.TensorProto.DataType.Name(dtype) if isinstance(dtype, int) else dtype
    return {"float32": "float", "float64": "double"}.get(text.lower(), text.lower())


def _types(op: str, dtypes: Sequence[int | str] | int | str, count: int) -> tuple[str, ...]:
    if isinstance(dtypes, (int, str)):
        return (type_name(dtypes),) * count
    if len(dtypes) != count:
        raise ShapeError(f"cost of {op}: dtypes must be one type, or one for each of {count} inputs and outputs; got {len(dtypes)}")
    return tuple(map(type_name, dtypes))


def _shapes(op: str, name: str, shapes: Sequence[Sequence[int] | None]) -> tuple[Shape | None, ...]:
    for shape in shapes:
        if shape is not None and any(not isinstance(d, int) or d < 0 for d in shape):
            raise ShapeError(
                f"cost of {op} '{name}': dims must be integers of at least 0; got {list(shape)}. Put sizes in for symbolic dims"
            )
    return tuple(None if shape is None else tuple(shape) for shape in shapes)


def _make(
    call: Call, kind: Kind, per: str | None, elements: int, *, bytes_read: int | None = None, bytes_written: int | None = None
) -> Work:
    """Work of `elements` applications of the scalar op `per` (None: it only moves data)."""
    cost = scalar(per) if per else None
    return Work(
        name=call.name,
        flops=elements * cost.flops if cost else 0,
        special=elements * cost.special if cost else 0,
        bytes_read=call.bytes_in if bytes_read is None else bytes_read,
        bytes_written=call.bytes_out if bytes_written is None else bytes_written,
        kind=kind,
        elements=prod(call.out),
        dtype=call.dtype,
        parts=((per, elements),) if per else (),
    )


def _pointwise(call: Call) -> Work:
    readers = max(1, len([s for s in call.inputs if s is not None]) - 1) if call.op in ("Sum", "Max", "Min", "Mean") else 1
    return _make(call, "pointwise", call.op, prod(call.out) * readers)


def _gelu(call: Call) -> Work:
    approximate = call.attributes.get("approximate", "none")
    return _make(call, "pointwise", "FastGelu" if approximate in ("tanh", b"tanh") else "Gelu", prod(call.out))


def _pow(call: Call) -> Work:
    """x**2 and x**3 are products, x**0.5 a root; any other power is an exp and a log."""
    per = {2.0: "Mul", 3.0: "Mul", 0.5: "Sqrt", 1.0: "Identity"}.get(call.values.get(1, 0.0), "Pow")
    made = _make(call, "pointwise", per, prod(call.out) * (2 if call.values.get(1) == 3.0 else 1))
    return replace(made, parts=((f"Pow:{call.values[1]:g}", prod(call.out)),)) if per != "Pow" else made


def _rows(call: Call) -> Work:
    return _make(call, "reduction", call.op, prod(call.shape(0)))


def _view(call: Call) -> Work:
    """No byte moves: the output is the input under another shape."""
    return replace(_make(call, "layout", None, 0, bytes_read=0, bytes_written=0), launches=0)


def _copy(call: Call) -> Work:
    """Every output byte is read once and written once; indices and shapes are read beside it."""
    moved = call.bytes_out
    beside = sum(call.bytes_of(i) for i in range(1, len(call.inputs)))
    return replace(_make(call, "layout", None, 0, bytes_read=moved + beside), parts=((call.op, prod(call.out)),))


def _transpose(call: Call) -> Work:
    shape = call.shape(0)
    order = call.attributes.get("perm") or range(len(shape))[::-1]
    moving = [axis for axis in order if shape[axis] != 1]
    if moving == sorted(moving):
        return _view(call)
    inner = 1
    for axis, place in zip(reversed(list(order)), reversed(range(len(shape))), strict=True):
        if axis != place:
            break
        inner *= shape[axis]
    return replace(_copy(call), bytes_read=call.bytes_of(0), run_bytes=max(1, inner * bits(call.types[0]) // 8))


def _concat(call: Call) -> Work:
    return replace(_make(call, "layout", None, 0), parts=((call.op, prod(call.out)),))


def _split(call: Call) -> Work:
    return replace(_make(call, "layout", None, 0, bytes_read=call.bytes_out), parts=((call.op, prod(call.shape(0))),))


def _gemm_work(call: Call, gemm: Gemm, *, extra: int = 0) -> Work:
    made = _make(call, "matmul", "Add" if extra else None, extra)
    return replace(made, flops=gemm.flops + extra, gemm_flops=gemm.flops, gemm=gemm)


def _matmul(call: Call) -> Work:
    a, b = call.shape(0), call.shape(1)
    k, m, n = a[-1], (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    batch = prod(call.out) // (m * n) if m * n else 0
    if len(b) <= 2:  # one weight for all rows: the batch is rows too
        batch, m = 1, m * batch
    return _gemm_work(call, Gemm(batch, m, n, k))


def _gemm(call: Call) -> Work:
    m, n = call.out
    k = call.shape(0)[0 if call.attributes.get("transA") else 1]
    has_bias = len(call.inputs) > 2 and call.inputs[2] is not None
    return _gemm_work(call, Gemm(1, m, n, k), extra=m * n if has_bias else 0)


def _conv(call: Call) -> Work:
    """A product of [out channels, in channels x kernel] with one column per output position."""
    weight, out = call.shape(1), call.out
    group = int(call.attributes.get("group", 1))
    has_bias = len(call.inputs) > 2 and call.inputs[2] is not None
    gemm = Gemm(out[0] * group, weight[0] // group, prod(out[2:]), prod(weight[1:]))
    return _gemm_work(call, gemm, extra=prod(out) if has_bias else 0)


def _einsum(call: Call) -> Work:
    """Every index runs once: a product and a sum for each point of the joint index space."""
    equation = call.attributes["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    left, _, right = text.partition("->")
    sizes: dict[str, int] = {}
    for i, letters in enumerate(left.split(",")):
        shape = call.shape(i)
        before, dots, after = letters.partition("...")
        named = zip((*before, *after), (*shape[: len(before)], *(shape[len(shape) - len(after) :] if dots else ())), strict=True)
        sizes |= {letter: size for letter, size in named}
        if dots:
            middle = prod(shape[len(before) : len(shape) - len(after)])
            sizes["..."] = max(sizes.get("...", 1), middle)
    summed = prod(size for letter, size in sizes.items() if letter != "..." and letter not in right) if right else 1
    gemm = Gemm(1, prod(call.out), 1, summed)
    return _gemm_work(call, gemm)


def _other(call: Call) -> Work:
    """An op without a rule of its own: one operation for each output element, every operand moved once."""
    elements = sum(prod(shape) for shape in call.outputs if shape is not None)
    made = Work(call.name, elements, 0, call.bytes_in, call.bytes_out, "other", elements, call.dtype)
    return replace(made, parts=((call.op, elements),))


def _table(counter: Callable[[Call], Work], ops: str) -> dict[str, Callable[[Call], Work]]:
    return {op: counter for op in ops.split()}


COUNTERS: dict[str, Callable[[Call], Work]] = {
    **_table(_view, "Reshape Flatten Squeeze Unsqueeze Identity Shape Size Constant Dropout Optional OptionalGetElement"),
    **_table(
        _copy, "Slice Gather GatherElements GatherND Expand Tile Pad DepthToSpace SpaceToDepth ConstantOfShape EyeLike Range Trilu Compress"
    ),
    **_table(_rows, " ".join(op for op in SCALARS if op.startswith(("Reduce", "Arg")) or "Normalization" in op)),
    **_table(_rows, "Softmax LogSoftmax Hardmax CumSum CumProd TopK LRN"),
    **_table(_gelu, "Gelu"),
    **_table(_pow, "Pow"),
    **_table(_transpose, "Transpose"),
    **_table(_concat, "Concat"),
    **_table(_split, "Split"),
    **_table(_matmul, "MatMul MatMulInteger"),
    **_table(_gemm, "Gemm"),
    **_table(_conv, "Conv"),
    **_table(_einsum, "Einsum"),
}
