"""One ONNX node as the counters see it: shapes as plain ints, types, attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.types import byte_size
from onnxfuse.cost.work import Kind, Work, vector_of
from onnxfuse.errors import ShapeError

Shape = tuple[int, ...]


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
    domain: str = ""

    def has(self, index: int) -> bool:
        """Whether the node is given input `index`."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int) -> Shape:
        """Shape of input `index`. Raises ShapeError when the caller gives none."""
        shape = self.inputs[index] if index < len(self.inputs) else None
        if shape is None:
            raise ShapeError(f"cost of {self.op} '{self.name}': input {index} must have a shape; got none. Pass it in input_shapes")
        return shape

    def axis(self, index: int, axis: int) -> int:
        """Size of one axis of input `index`. Raises ShapeError when its rank is too low."""
        shape = self.shape(index)
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"cost of {self.op} '{self.name}': input {index} must have axis {axis}; got shape {list(shape)}")
        return shape[axis]

    @property
    def out(self) -> Shape:
        """Shape of the first output. Raises ShapeError when the caller gives none."""
        if not self.outputs or self.outputs[0] is None:
            raise ShapeError(f"cost of {self.op} '{self.name}': output 0 must have a shape; got none. Pass it in output_shapes")
        return self.outputs[0]

    @property
    def dtype(self) -> str:
        """Type of the first output."""
        return self.types[len(self.inputs)]

    def bytes_of(self, index: int) -> int:
        """Bytes of operand `index`: inputs, then outputs; 0 when it is absent."""
        shape = (*self.inputs, *self.outputs)[index]
        return 0 if shape is None else byte_size(prod(shape), self.types[index])

    @property
    def bytes_in(self) -> int:
        """Bytes of all inputs."""
        return sum(self.bytes_of(i) for i in range(len(self.inputs)))

    @property
    def bytes_out(self) -> int:
        """Bytes of all outputs."""
        return sum(self.bytes_of(len(self.inputs) + i) for i in range(len(self.outputs)))

    def number(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """A string attribute, whether it is kept as text or as bytes."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


Counter = Callable[[Call], Work]


def table(counter: Counter, ops: str) -> dict[str, Counter]:
    """The same counter for every op that `ops` names."""
    return dict.fromkeys(ops.split(), counter)


def make(
    call: Call,
    kind: Kind,
    scalar_op: str,
    applied: int,
    *,
    part: str = "",
    bytes_read: int | None = None,
    bytes_written: int | None = None,
    elements: int | None = None,
) -> Work:
    """Work that applies `scalar_op` to so many elements ("": it only moves data).

    part: the name under which a CPU's rate is looked up (default: the scalar op, or the node's op).
    """
    cost = scalar(scalar_op) if scalar_op else None
    return Work(
        name=call.name,
        flops=applied * cost.flops if cost else 0,
        special=applied * cost.special if cost else 0,
        bytes_read=call.bytes_in if bytes_read is None else bytes_read,
        bytes_written=call.bytes_out if bytes_written is None else bytes_written,
        kind=kind,
        elements=prod(call.out) if elements is None else elements,
        dtype=call.dtype,
        op=call.op,
        parts=((part or scalar_op or call.op, applied),),
        vector=vector_of(call.dtype),
    )
