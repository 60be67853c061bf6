"""What shape inference knows of a value, and what a rule of an op sees of a node: the words rules are written in.

A rule says one thing of one op: its types, its shapes or its contents. It is entered in the table by decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import graph, symbolic
from onnxfuse.errors import ModelError
from onnxfuse.shape_ratio import Ratio, Unknown, exact_ratio
from onnxfuse.symbolic import Dim

Shape: TypeAlias = tuple[Dim, ...]

CONTENT_LIMIT = 64  # elements; larger tensors are data, not sizes
INTEGERS = frozenset((TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
FLOATS = frozenset((TensorProto.FLOAT, TensorProto.DOUBLE))
MICROSOFT = "com.microsoft"


class Fact(NamedTuple):
    """What is known of a value. Contents are row-major, of any rank, for small tensors with a known shape."""

    dtype: int = TensorProto.UNDEFINED
    shape: Shape | None = None
    elements: tuple[Dim, ...] | None = None  # of an integer tensor
    ratios: tuple[Ratio, ...] | None = None  # of a float tensor


NOTHING = Fact()


def with_unknown(fact: Fact, name: str) -> Fact:
    """The fact of an integer scalar whose value only a run tells, with a symbol for that value."""
    if fact.elements is None and fact.shape in ((), (1,)) and fact.dtype in (TensorProto.INT64, TensorProto.INT32):
        return fact._replace(elements=(symbolic.unknown(name),))
    return fact


Bindings: TypeAlias = Mapping[str, onnx.AttributeProto]  # what the attributes of a function are, in one call of it


class Call:
    """One node with what is known of its inputs. The getters raise Unknown where the node does not say."""

    __slots__ = ("bindings", "inputs", "node", "opset")

    def __init__(self, node: graph.Node, inputs: list[Fact | None], bindings: Bindings) -> None:
        self.node = node
        self.inputs = inputs
        self.bindings = bindings
        self.opset = node.graph.opset

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def fact(self, position: int) -> Fact:
        """The fact of an input; of an absent one that nothing is known."""
        found = self.inputs[position] if position < len(self.inputs) else None
        return NOTHING if found is None else found

    def dtype(self, position: int) -> int:
        return self.fact(position).dtype

    def shape(self, position: int, rank: int | None = None, at_least: int = 0) -> Shape:
        """The shape of an input, of the given rank or of at least that rank; else Unknown."""
        shape = self.fact(position).shape
        if shape is None or len(shape) < at_least or (rank is not None and len(shape) != rank):
            raise Unknown
        return shape

    def elements(self, position: int) -> tuple[Dim, ...]:
        found = self.fact(position).elements
        if found is None:
            raise Unknown
        return found

    def array(self, position: int) -> np.ndarray[Any, Any]:
        """The contents of an integer input as an array of ints and expressions."""
        return objects(self.elements(position)).reshape(whole(self.shape(position)))

    def ratios(self, position: int) -> np.ndarray[Any, Any]:
        """The contents of a float input as an array of ratios."""
        found = self.fact(position).ratios
        if found is None:
            constant = self.constant(position)
            exact: np.ndarray[Any, Any] = objects(map(exact_ratio, constant.reshape(-1).tolist()))
            return exact.reshape(list(constant.shape))
        return objects(found).reshape(whole(self.shape(position)))

    def contents(self, position: int) -> np.ndarray[Any, Any]:
        """The contents of an input: ratios of a float one, else ints and expressions."""
        return self.ratios(position) if self.dtype(position) in FLOATS else self.array(position)

    def integers(self, position: int) -> list[int]:
        """The contents of an input if all are numbers."""
        return whole(self.elements(position))

    def scalar(self, position: int) -> Dim:
        """The only element of an input."""
        found: Dim = only(self.array(position))
        return found

    def constant(self, position: int) -> np.ndarray[Any, Any]:
        """What a small constant input holds, of any type."""
        value = self.node.input(position)
        if value is None or self.dtype(position) == TensorProto.UNDEFINED:
            raise Unknown
        try:
            found = graph.constant_value(value, CONTENT_LIMIT)
        except ModelError:  # its external data is not there: a shape that depends on it is just not known
            raise Unknown from None
        if found is None:
            raise Unknown
        return found

    def attribute(self, name: str) -> Any:
        """A decoded attribute, None when it is not written; one that refers to a function's attribute is looked up."""
        value = self.node.attributes.get(name)
        if not isinstance(value, gs.Node.AttributeRef):
            return value
        bound = self.bindings.get(value.name)
        if bound is None:
            raise Unknown
        return helper.get_attribute_value(bound)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.attribute(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int):
            raise Unknown
        return value

    def ints(self, name: str) -> list[int] | None:
        value = self.attribute(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            raise Unknown
        return list(value)

    def text(self, name: str, default: str) -> str:
        value = self.attribute(name)
        if value is None:
            return default
        return value.decode() if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> onnx.TensorProto | None:
        """A tensor attribute as its proto, not decoded."""
        for attribute in self.node.proto.attribute:
            if attribute.name == name:
                bound = self.bindings.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
                if bound is None:
                    raise Unknown
                return bound.t
        return None

    def axes(self, position: int, name: str = "axes") -> list[int] | None:
        """Numbers that are an attribute in old opsets and an input in new ones; None when not given."""
        written = self.ints(name)
        if written is not None:
            return written
        return self.integers(position) if self.has(position) else None

    def fresh(self, axis: int, output: int = 0) -> Dim:
        """A size of its own for one axis of an output."""
        value = self.node.outputs[output] if output < len(self.node.outputs) else None
        return symbolic.fresh(f"{value.name if value is not None else self.node.label}.{axis}")

    def fresh_shape(self, rank: int) -> Shape:
        return tuple(self.fresh(axis) for axis in range(rank))


TypeRule: TypeAlias = Callable[[Call], "int | Sequence[int]"]  # one type: that of all outputs
ShapeRule: TypeAlias = Callable[[Call], "Shape | list[Shape | None]"]  # a tuple: the shape of the only, or of every output
ContentRule: TypeAlias = Callable[[Call, Shape], "np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]"]

TYPE_RULES: dict[str, TypeRule] = {}
SHAPE_RULES: dict[str, ShapeRule] = {}
CONTENT_RULES: dict[str, ContentRule] = {}


def key(domain: str, op: str) -> str:
    """How an op is called in the tables: `Add`, `com.microsoft.FusedMatMul`."""
    return f"{domain}.{op}" if domain else op


def type_rule(*ops: str, domain: str = "") -> Callable[[TypeRule], TypeRule]:
    """Enter a function as the rule for the types of the outputs of these ops (names apart by spaces, or arguments)."""

    def enter(rule: TypeRule) -> TypeRule:
        TYPE_RULES.update((key(domain, op), rule) for op in " ".join(ops).split())
        return rule

    return enter


def shape_rule(*ops: str, domain: str = "") -> Callable[[ShapeRule], ShapeRule]:
    """Enter a function as the rule for the shapes of the outputs of these ops."""

    def enter(rule: ShapeRule) -> ShapeRule:
        SHAPE_RULES.update((key(domain, op), rule) for op in " ".join(ops).split())
        return rule

    return enter


def content_rule(*ops: str) -> Callable[[ContentRule], ContentRule]:
    """Enter a function as the rule for what small integer outputs of these standard ops hold."""

    def enter(rule: ContentRule) -> ContentRule:
        CONTENT_RULES.update((op, rule) for op in " ".join(ops).split())
        return rule

    return enter


def objects(values: Iterable[Dim | Ratio]) -> np.ndarray[Any, Any]:
    """A vector that holds ints and expressions as they are."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def whole(values: Iterable[Dim]) -> list[int]:
    """The values if all are numbers, else Unknown."""
    found = [v for v in values if isinstance(v, int)]
    if len(found) != len(tuple(values)):
        raise Unknown
    return found


def place(axis: int, rank: int) -> int:
    """An axis counted from the front; Unknown when there is no such axis."""
    if not -rank <= axis < rank:
        raise Unknown
    return axis % rank


def places(axes: Iterable[int], rank: int) -> list[int]:
    return [place(axis, rank) for axis in axes]


def plain_values(tensor: onnx.TensorProto) -> list[Any]:
    """The elements of a small tensor in an attribute, as Python numbers; Unknown where it is no sound tensor."""
    if tensor.data_type == TensorProto.UNDEFINED or tensor.data_location == TensorProto.EXTERNAL:
        raise Unknown
    try:
        return list(numpy_helper.to_array(tensor).reshape(-1).tolist())
    except ValueError:  # its data does not fit its dims
        raise Unknown from None


def only(array: np.ndarray[Any, Any]) -> Any:
    """The only element of an array, else Unknown."""
    if array.size != 1:
        raise Unknown
    return array.reshape(-1)[0]


def replaced(shape: Shape, axis: int, dim: Dim) -> Shape:
    """The shape with one size changed."""
    return (*shape[:axis], dim, *shape[axis + 1 :])


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape of an elementwise result.

    Where one axis fits only if some min(a, n) is a, the other axes are simplified by it: a mask cut out of a
    constant [1024, 1024] by [past : past+seq, : past+seq] against [seq, past+seq] is [seq, past+seq].
    """
    result = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        result = _broadcast_pair(result, shape)
    return result


def _broadcast_pair(a: Shape, b: Shape) -> Shape:
    if a == b:
        return a
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    for whole_dim, cut in [*pairs, *((y, x) for x, y in pairs)]:
        limit = symbolic.clamped(cut)
        if limit is not None and limit[0] == whole_dim and limit[1] > 1:
            pairs = [(symbolic.at_most(x, *limit), symbolic.at_most(y, *limit)) for x, y in pairs]
    return tuple(symbolic.broadcast(x, y) for x, y in pairs)
