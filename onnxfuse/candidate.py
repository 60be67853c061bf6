"""Candidates: a match with all that must be known before the graph may be edited.

A candidate's region is every node between its inputs and its outputs. It is sound by construction: the region must
end at the inputs (or at constants and known sizes) on every path, so the fused op sees all that the outputs
depend on; and what somebody else reads stays, or the candidate is declined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import onnx

from onnxfuse.canonical.view import FLOATS, View
from onnxfuse.decision import Decision, Price, Verdict
from onnxfuse.errors import ShapeError
from onnxfuse.graph import Node, Value
from onnxfuse.matcher import Hit, find
from onnxfuse.op import ONNX_TYPES, TYPE_NAMES, Op
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand, Rule, leaves
from onnxfuse.symbolic import Dim
from onnxfuse.target import Target

MIN_OPSET = 11  # bodies of fused ops are spelled from here on
CHEAP = {"Cast", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Split", "Slice", "Gather", "Concat",
         "Shape", "Constant", "ConstantOfShape", "Not"}  # fmt: skip
T = onnx.TensorProto
WIDENS = {(T.FLOAT16, T.FLOAT), (T.BFLOAT16, T.FLOAT), (T.FLOAT16, T.DOUBLE), (T.BFLOAT16, T.DOUBLE), (T.FLOAT, T.DOUBLE)}


class Origin(Protocol):
    """What finds candidates: a `Rule`, or what generates operators."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def summary(self) -> str: ...


@dataclass(frozen=True)
class Written:
    """What an operator that was made for one place brings along.

    body: its function. shape: that of all it computes, but for rows. views: nodes of the region that it has no need of.
    free: nodes that the runtime would not run anyway. unread: inputs of which only the sizes are read.
    """

    body: onnx.FunctionProto
    shape: tuple[Dim, ...]
    views: frozenset[Node]
    free: frozenset[Node] = frozenset()
    unread: frozenset[Value] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A rewrite that may be made. `outputs`: the values the new node makes, root first; None for one nobody reads."""

    rule: Origin
    call: Call
    view: View
    outputs: tuple[Value | None, ...]
    region: tuple[Node, ...]  # in graph order
    removed: frozenset[Node]  # those that nobody else needs
    twins: Mapping[Value, Value]  # values the region reads in place of an input that they equal
    decision: Decision
    price: Price | None = None
    retargets: bool = False  # one operator for one
    written: Written | None = None

    @property
    def root(self) -> Value:
        assert self.outputs[0] is not None
        return self.outputs[0]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(leaves(self.call.operands)))

    def priced(self, price: Price) -> Candidate:
        return replace(self, price=price, decision=replace(self.decision, price=price))

    def conflicts(self, other: Candidate) -> bool:
        """Whether both cannot be made: they share a node, or one reads what the other takes away."""
        return bool(self.removed & other.removed) or self._starves(other) or other._starves(self)

    def _starves(self, other: Candidate) -> bool:
        return any(v.producer in self.removed and v not in self.outputs for v in other.inputs)


def candidates(view: View, rules: Sequence[Rule], target: Target = Target()) -> Iterable[Candidate | Decision]:  # noqa: B008  # frozen
    """Everything the rules find in a graph, as the target writes it: candidates, and decisions for matches that are declined.

    A rule that raises is reported as declined, with what it raised; the others go on.
    """
    for hit in find(view, rules):
        for root in view.values[hit.term]:
            if root.producer is not None and root.graph is view.graph and root.producer.op != "Identity":
                yield from _make_all(hit, view, root, target)


def _make_all(hit: Hit, view: View, root: Value, target: Target) -> Iterator[Candidate | Decision]:
    assert root.producer is not None
    blank = Decision(hit.rule.name, Verdict.DECLINED, view.graph.name, root.producer.label, root.name)
    match = Match(view, root, hit.bound)
    try:
        calls = hit.rule.build(match)
    except Decline as reason:
        yield replace(blank, reason=str(reason))
        return
    except Exception as error:  # noqa: BLE001  # a rule is somebody's code: whatever it raises, the other rules go on
        yield replace(blank, reason=f"the rule raised {type(error).__name__}: {error}")
        return
    for call in calls:
        if _is_body_of(view, call):
            continue
        marked = replace(blank, target=call.name)
        try:
            _check_call(call, root, view.graph.opset)
            written = target.write(match, call)
        except Decline as reason:
            yield replace(marked, reason=str(reason))
            continue
        for form in written:
            yield _make(hit, view, root, form, replace(marked, target=form.label))


def _is_body_of(view: View, call: Call) -> bool:
    """Whether the graph is the function body of the very op: fused into itself it would call itself."""
    graph = view.graph
    while graph.outer is not None:
        graph = graph.outer
    return graph.function is not None and (graph.function.domain, graph.function.name) == (call.domain, call.name)


def _make(hit: Hit, view: View, root: Value, call: Call, blank: Decision) -> Candidate | Decision:
    try:
        outputs = _outputs(hit, view, root, call)
        inputs = set(leaves(call.operands))
        twins = _twins(view, inputs, outputs)
        region = _region([o for o in outputs if o is not None], inputs | twins.keys())
        named = [n for n in region if n.op != "Constant"]
        blank = replace(blank, ops=tuple(n.op for n in named), nodes=tuple(n.label for n in named))
        _check_rounding(region, root)
        _check_precision(region, root)
        removed = _removed(region, outputs, inputs)
        later = _later(view, region, removed, inputs, outputs)
        if later is not None:
            return _make(hit, view, root, replace(call, operands=tuple(_swapped(o, *later) for o in call.operands)), blank)
        _check_kept(region, removed, outputs, root)
        outputs = _needed(outputs, removed, inputs)
        _check_cycle(outputs, inputs)
    except Decline as reason:
        return replace(blank, reason=str(reason))
    return Candidate(hit.rule, call, view, outputs, region, removed, twins, blank, retargets=hit.rule.retargets)


def _twins(view: View, inputs: set[Value], outputs: Sequence[Value | None]) -> dict[Value, Value]:
    """Values that hold the same numbers as an input that is computed, to that input."""
    computed = [value for value in inputs if not value.is_constant]
    return {twin: value for value in computed for twin in view.twins(value) if twin not in outputs and twin not in inputs}


def _outputs(hit: Hit, view: View, root: Value, call: Call) -> tuple[Value | None, ...]:
    """Values that the op's outputs stand for: a further one only if somebody outside needs it."""
    outputs: list[Value | None] = [root]
    for name in call.outputs[1:]:
        outputs.append(name if name is None or isinstance(name, Value) else _holder(view, hit, name, root))
    while outputs[-1] is None:
        outputs.pop()
    return tuple(outputs)


def _holder(view: View, hit: Hit, name: str, root: Value) -> Value | None:
    term = hit.bound.get(name)
    held = [v for v in view.values.get(term, ()) if v.dtype == root.dtype and v.producer is not None] if term is not None else []
    return next((v for v in held if v.is_output or v.captured or len(v.users) > 0), None)


def _check_call(call: Call, root: Value, opset: int) -> None:
    """The op takes these types and shapes, and its result is what the root is. Raises Decline."""
    if opset < MIN_OPSET:
        raise Decline(f"the model must import opset {MIN_OPSET} or later; it imports {opset}")
    if not isinstance(call.op, Op):
        return
    shapes = {p.name: _operand_shape(o, p.name) for p, o in zip(call.op.inputs, call.operands, strict=False) if o is not None}
    _check_types(call.op, call.operands, root)
    try:
        made = call.op.infer(shapes, {**call.op.attributes, **call.attributes})[call.op.outputs[0].name]
    except ShapeError as error:
        raise Decline(str(error)) from None
    for step in call.then:
        made = tuple(made[i] for i in dict(step.attributes)["perm"]) if step.op == "Transpose" else step.shape
    if root.shape is None or made != root.shape:
        raise Decline(f"the result must keep its shape {_dims(root.shape)}; {call.name} gives {_dims(made)}")


def _operand_shape(operand: Value | NewConstant | Made, name: str) -> tuple[Dim, ...]:
    if operand.shape is None:
        raise Decline(f"the shape of {name} must be known; '{operand.name}' has unknown rank")
    return operand.shape


def _dims(shape: tuple[Dim, ...] | None) -> str:
    return "of unknown rank" if shape is None else "[" + ",".join(map(str, shape)) + "]"


def _check_types(op: Op, operands: Sequence[Operand], root: Value) -> None:
    bound: dict[str, int] = {op.outputs[0].type: root.dtype}
    for param, operand in zip(op.inputs, operands, strict=False):
        if operand is None:
            continue
        have, types = operand.dtype, op.types.get(param.type, (param.type,))
        if have not in [ONNX_TYPES[t] for t in types]:
            raise Decline(f"{param.name} must be of type {' or '.join(types)}; it is {type_name(have)}")
        if bound.setdefault(param.type, have) != have:
            raise Decline(f"{param.name} must be of type {type_name(bound[param.type])}, as others are; it is {type_name(have)}")
    result = op.types[op.outputs[0].type]
    if root.dtype not in [ONNX_TYPES[t] for t in result]:
        raise Decline(f"the type must be one of {', '.join(result)}; it is {type_name(root.dtype)}")


def type_name(dtype: int) -> str:
    """What ONNX calls an element type: float16."""
    return TYPE_NAMES.get(dtype) or str(T.DataType.Name(dtype)).lower()


def _region(outputs: Sequence[Value], stops: set[Value]) -> tuple[Node, ...]:
    """All nodes between `stops` and `outputs`. Raises Decline when a path leads past the stops."""
    found: set[Node] = set()
    todo = [o.producer for o in outputs if o.producer is not None]
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found.add(node)
        if node.subgraphs:
            raise Decline(f"no control flow may stand inside; {node.op} '{node.label}' does")
        for value in node.inputs:
            if value is None or value in stops or value.elements is not None or value.is_constant:
                continue
            if value.producer is None or value.producer.graph is not node.graph:
                raise Decline(f"all that is computed must come from the op's inputs; '{node.label}' ({node.op}) also reads '{value.name}'")
            todo.append(value.producer)
    return tuple(sorted(found, key=lambda n: n.index))


def _check_rounding(region: Sequence[Node], root: Value) -> None:
    """A Cast that rounds may vanish only when the op rounds to that type itself."""
    for node in region:
        source, target = node.input(0), node.outputs[0] if node.outputs else None
        if node.op not in ("Cast", "CastLike") or source is None or target is None or source.is_constant:
            continue
        rounds = source.dtype in FLOATS and source.dtype != target.dtype and (source.dtype, target.dtype) not in WIDENS
        if rounds and target.dtype != root.dtype:
            raise Decline(f"'{node.label}' rounds to {TYPE_NAMES.get(target.dtype, 'another type')} in the middle; that must be kept")


def _check_precision(region: Sequence[Node], root: Value) -> None:
    """What is computed in double stays so: ops sum in float32. Scalars may be anything: they are folded in double."""
    for node in region if root.dtype != T.DOUBLE else ():
        for value in node.outputs:
            if value is not None and value.dtype == T.DOUBLE and value.rank != 0 and value.shape != (1,):
                raise Decline(f"'{node.label}' ({node.op}) computes in double; that must be kept")


def _removed(region: Sequence[Node], outputs: Sequence[Value | None], inputs: set[Value]) -> frozenset[Node]:
    """The nodes of a region that nobody outside it reads, once the op gives `outputs`."""
    removed: set[Node] = set()
    given = {o for o in outputs if o is not None}
    for node in reversed(region):
        made = [o for o in node.outputs if o is not None and o not in given]
        if all(_is_free(o, removed, given, inputs) for o in made):
            removed.add(node)
    return frozenset(removed)


def _is_free(value: Value, removed: set[Node], given: set[Value], inputs: set[Value], depth: int = 12) -> bool:
    """Whether nobody will read `value`: only nodes that vanish, or that only serve such nodes (a Shape for a Reshape)."""
    if value.is_output or value.captured or value in inputs:
        return False
    return all(u in removed or (depth > 0 and _only_serves(u, removed, given, inputs, depth - 1)) for u in value.users)


def _only_serves(node: Node, removed: set[Node], given: set[Value], inputs: set[Value], depth: int) -> bool:
    outputs = [o for o in node.outputs if o is not None]
    if node.op not in CHEAP and any(o.elements is None for o in outputs):
        return False
    return all(o not in given and o.users and _is_free(o, removed, given, inputs, depth) for o in outputs)


def _needed(outputs: tuple[Value | None, ...], removed: frozenset[Node], inputs: set[Value]) -> tuple[Value | None, ...]:
    """The outputs without those further ones that only vanishing nodes read."""
    root, *further = outputs
    given = {o for o in outputs if o is not None}
    kept = [root, *(None if o is None or _is_free(o, set(removed), given, inputs) else o for o in further)]
    while kept[-1] is None:
        kept.pop()
    return tuple(kept)


def _check_kept(region: Sequence[Node], removed: frozenset[Node], outputs: Sequence[Value | None], root: Value) -> None:
    """Raise Decline when something that costs would be computed twice, or when nothing is gained."""
    twice = [n for n in region if n not in removed and n.op not in CHEAP]
    for value, reader in (*_read_outside(twice, outputs, region), *_read_outside(region, outputs, region)) if twice else ():
        raise Decline(f"'{value.name}' ({value.producer.op if value.producer else ''}) must be read by nobody else; {reader} reads it too")
    if twice:
        raise Decline(f"'{twice[0].label}' ({twice[0].op}) must be read by nobody else")
    if root.producer not in removed:
        raise Decline(f"the node '{root.producer.label if root.producer else root.name}' must vanish")


def _read_outside(nodes: Sequence[Node], outputs: Sequence[Value | None], region: Sequence[Node]) -> Iterator[tuple[Value, str]]:
    """Values that these nodes of the region make, less its outputs, that somebody outside of it reads, and who."""
    for value in [v for n in nodes for v in n.outputs if v is not None and v not in outputs]:
        if value.is_output:
            yield value, "the graph's output"
        for reader in (*value.users, *value.captured):
            if reader not in region:
                yield value, f"{reader.op} '{reader.label}'"


def _later(
    view: View, region: Sequence[Node], removed: frozenset[Node], inputs: set[Value], outputs: Sequence[Value | None]
) -> tuple[Value, Value] | None:
    """(input, value) where the value is no more than the input (x / 1) but is read outside, so that it stays: better start from it."""
    for node in (n for n in region if n not in removed and n.op not in CHEAP):
        for value in (v for v in node.outputs if v is not None and v not in outputs and v not in inputs):
            same = (v for v in inputs if view.term(v) is view.term(value) and (v.dtype, v.shape) == (value.dtype, value.shape))
            source = next(same, None)
            if source is not None:
                return source, value
    return None


def _swapped(operand: Operand, old: Value, new: Value) -> Operand:
    if isinstance(operand, Made):
        return replace(operand, operands=tuple(_swapped(o, old, new) for o in operand.operands))
    return new if operand is old else operand


def _check_cycle(outputs: Sequence[Value | None], stops: set[Value]) -> None:
    """No input may depend on a further output: the op would wait for itself."""
    for output in outputs[1:]:
        if output is None or output.producer is None:
            continue
        todo, seen = [v for v in stops if v.graph is output.graph], set()
        while todo:
            value = todo.pop()
            if value is output:
                raise Decline(f"no input may depend on '{output.name}', which the op makes itself")
            if value in seen or value.producer is None or value.producer.index < output.producer.index:
                continue
            seen.add(value)
            todo += [v for v in value.producer.inputs if v is not None and v.graph is output.graph]


def replaces_enough(candidate: Candidate) -> bool:
    """Whether a candidate does more than give one operator another name, or means to do no more than that."""
    return candidate.retargets or len([n for n in candidate.removed if n.op not in ("Constant", "Identity", "Cast")]) > 1
