"""A finished region: what the operator reads and gives, its program, and its body, which is the nodes themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxfuse.errors import UsageError
from onnxfuse.generated.body import REDUCE_AXES_SINCE
from onnxfuse.generated.flow import Flow
from onnxfuse.generated.primitives import CONCAT
from onnxfuse.generated.program import Program
from onnxfuse.generated.regions import Group, is_held, is_scalar_constant, restored, row_of
from onnxfuse.generated.roles import Role, Shape, common_shape, type_of
from onnxfuse.generated.writer import Draft, Use, spell
from onnxfuse.graph import Node, Value, constant_value


@dataclass(frozen=True)
class Region:
    """Nodes that become one operator, in graph order, with their roles.

    shape: of what it computes; axes: how many of the last form a row that it reduces, or 0. inputs: what the nodes read
    from outside, without the numbers that the program holds. outputs: what is read outside, what is made last first.
    """

    nodes: tuple[Node, ...]
    roles: Mapping[Node, Role]
    shape: Shape
    axes: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    program: Program

    @property
    def ops(self) -> tuple[str, ...]:
        """The operators that compute, in order."""
        return tuple(node.op for node in self.nodes if self.roles[node].kind != "view")


def finish(group: Group, flow: Flow) -> Region | str:
    """The region of a group that has grown, or why it can be none."""
    nodes = sorted(group.members, key=lambda node: node.index)
    if not restored(nodes):
        return "what puts back the axes that a reduction lost must stand with that reduction"
    read = [v for node in nodes for v in group.members[node].operands if v is not None]
    made = {v for node in nodes for v in node.outputs}
    outside = [v for v in dict.fromkeys(read) if v not in made]
    pieces = _pieces(group)
    inputs = [v for v in outside if v in pieces or not is_scalar_constant(v)]
    if _shape(group, inputs) != group.shape:
        inputs = outside
    if not inputs or _shape(group, inputs) != group.shape:
        return "an operand must have the shape that is computed at; an Expand gives it here"
    outputs = _given(nodes, flow)
    region = _Draft(group, nodes, inputs)
    try:
        program = region.program(outputs)
    except UsageError as error:
        return str(error)
    rows = row_of(group.shape, group.axes)
    if any(o.shape != (rows if n in program.rows else group.shape) for o, n in zip(outputs, program.results, strict=True)):
        return "what is given must be whole or one number for each row, and be computed as such"
    return Region(tuple(nodes), group.members, group.shape, group.axes, tuple(inputs), tuple(outputs), program)


def _shape(group: Group, inputs: Sequence[Value]) -> Shape:
    """What the inputs are broadcast to, those that are joined as one."""
    joined = [role.shape for role in group.members.values() if role.kind == "join"]
    return common_shape([*(v.shape or () for v in inputs if _is_read(group, v)), *joined])


def _is_read(group: Group, value: Value) -> bool:
    """Whether something reads the value itself, not only what it is a piece of."""
    return any(role.kind != "join" and value in role.operands for role in group.members.values())


def _pieces(group: Group) -> set[Value | None]:
    """What is joined."""
    return {v for role in group.members.values() if role.kind == "join" for v in role.operands}


def _given(nodes: Sequence[Node], flow: Flow) -> list[Value]:
    """The values that somebody outside reads, the last first."""
    inside = {flow.blocks[node] for node in nodes}
    made = [v for node in nodes for v in node.outputs if v is not None]
    return [v for v in reversed(made) if is_held(v) or not inside.issuperset(flow.readers.get(v, ()))]


@dataclass
class _Draft:
    """The program of a group under construction."""

    group: Group
    nodes: Sequence[Node]
    inputs: Sequence[Value]
    draft: Draft = field(default_factory=Draft)
    names: dict[Value, str] = field(default_factory=dict)

    def program(self, outputs: Sequence[Value]) -> Program:
        """Raises UsageError when what is computed is no program."""
        for value in self.inputs:
            self.names[value] = self.draft.input(type_of(value), row=self._is_row(value))
        for node in self.nodes:
            role, made = self.group.members[node], node.outputs[0]
            assert made is not None
            operands = tuple(None if v is None else self._operand(v) for v in role.operands)
            if role.kind == "view":
                assert operands[0] is not None
                self.names[made] = operands[0]
            elif role.kind == "join":
                axis = int(node.attributes["axis"])
                pieces = [o for o in operands if o is not None]
                self.names[made] = self.draft.step(CONCAT, type_of(made), *pieces, number=axis - len(role.shape) if axis >= 0 else axis)
            else:
                self.names[made] = spell(Use(self.draft, node.op, operands, node.attributes, type_of(made)))
        return self.draft.finish([self.names[o] for o in outputs])

    def _operand(self, value: Value) -> str:
        if value not in self.names:
            held = constant_value(value)
            assert held is not None, f"'{value.name}' is neither made nor read by its region"
            number = held.reshape(()).astype(np.float64) if held.dtype.kind not in "iub" else held.reshape(())
            self.names[value] = self.draft.number(number.item(), type_of(value))
        return self.names[value]

    def _is_row(self, value: Value) -> bool:
        """Whether an input has size 1 over the axes of a row that has more, and is no piece of what is joined."""
        axes, shape = self.group.axes, value.shape or ()
        return (
            bool(axes)
            and value not in _pieces(self.group)
            and self.group.row != self.group.shape
            and all(d == 1 for d in shape[max(0, len(shape) - axes) :])
        )


# ---- the body


def body(region: Region, domain: str, formal: Sequence[str]) -> onnx.FunctionProto:
    """The region's nodes as a function with inputs x0, x1, ... and outputs y0, y1, ...

    Views are left out: broadcasting does what they do.
    """
    return _Body(region).function(domain, formal)


class _Body:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.names = {value: f"x{i}" for i, value in enumerate(region.inputs)}
        self.nodes: list[onnx.NodeProto] = []
        self.made = 0

    def fresh(self) -> str:
        self.made += 1
        return f"v{self.made - 1}"

    def function(self, domain: str, formal: Sequence[str]) -> onnx.FunctionProto:
        outputs = {value: f"y{i}" for i, value in enumerate(self.region.outputs)}
        for node in self.region.nodes:
            self._node(node, outputs)
        self.nodes += [helper.make_node("Identity", [self.names[v]], [y]) for v, y in outputs.items() if self.names[v] != y]
        opset = self.region.nodes[0].graph.opset
        inputs = [f"x{i}" for i in range(len(self.region.inputs))]
        made = helper.make_function(domain, "", inputs, list(outputs.values()), self.nodes, [helper.make_opsetid("", opset)], list(formal))
        assert isinstance(made, onnx.FunctionProto)
        return made

    def _node(self, node: Node, outputs: Mapping[Value, str]) -> None:
        role, value = self.region.roles[node], node.outputs[0]
        assert value is not None
        if role.kind == "view":
            assert role.operands[0] is not None
            self.names[value] = self._name(role.operands[0])
            return
        copy = onnx.NodeProto(op_type=node.op)
        copy.attribute.extend(node.proto.attribute)
        copy.input.extend("" if v is None else self._name(v) for v in role.operands)
        self.names[value] = outputs.get(value) or self.fresh()
        copy.output.append(self.names[value])
        _settle(copy, role, value.dtype, node.graph.opset, self._constant)
        self.nodes.append(copy)

    def _name(self, value: Value) -> str:
        if value not in self.names:
            held = constant_value(value)
            assert held is not None
            self.names[value] = self._constant(held)
        return self.names[value]

    def _constant(self, array: np.ndarray) -> str:
        name = self.fresh()
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))  # which makes a row of a single number
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name


def _settle(node: onnx.NodeProto, role: Role, dtype: int, opset: int, constant: Callable[[np.ndarray], str]) -> None:
    """Axes from the end, so that they hold at any rank; axes that are reduced are kept; a type that was another value's is written out."""
    if node.op_type == "CastLike":
        node.op_type = "Cast"
        _set(node, to=dtype)
    if role.kind == "row":
        _set(node, axis=-role.axes)
    if role.kind != "reduce":
        return
    axes = list(range(-role.axes, 0))
    if opset >= REDUCE_AXES_SINCE.get(node.op_type, 18):
        node.input.append(constant(np.array(axes, np.int64)))
        _set(node, keepdims=1)
    else:
        _set(node, keepdims=1, axes=axes)


def _set(node: onnx.NodeProto, **attributes: object) -> None:
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
