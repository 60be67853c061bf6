"""Offers regions to the engine as candidates, which are priced, chosen, written and validated like what rules find."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from onnxfuse.candidate import MIN_OPSET, Candidate, Written
from onnxfuse.canonical import View
from onnxfuse.canonical.view import FLOATS
from onnxfuse.custom_ops.fused_elementwise import op as elementwise
from onnxfuse.custom_ops.fused_reduction import op as reduction
from onnxfuse.decision import Decision, Verdict
from onnxfuse.generated.body import body as spell_body
from onnxfuse.generated.flow import Flow, Merger, flow
from onnxfuse.generated.primitives import is_integer
from onnxfuse.generated.region import Region, body, finish
from onnxfuse.generated.regions import Group, Limits, grow, row_of
from onnxfuse.generated.roles import Role, role_of, type_of
from onnxfuse.generated.sizes import Sizes, find_sizes
from onnxfuse.graph import Graph, Node, Value
from onnxfuse.op import DOMAIN, Op
from onnxfuse.pattern import Call
from onnxfuse.rule import NewConstant, Operand

ALL_HALF = "it is float16 throughout, which the runtime may run in float32 on a CPU"
ROUNDS = 4  # in which nodes are left out that keep a group from being a region
MOST_KINDS = 5  # operators that a name tells


@dataclass(frozen=True)
class Generator:
    """A kind of generated operator, in the place of a rule.

    names: how many different ones the library knows. on_request: made only at level all, or where it is named.
    """

    name: str
    kind: str
    summary: str
    op: Op
    names: int
    on_request: bool = False

    def fits(self, level: str, *, named: bool) -> bool:
        """Whether it may be made at a level. named: by the caller."""
        if level == "elementwise":
            return self.kind == "elementwise"
        return level == "all" or (level == "cost" and (named or not self.on_request))


FUSED_ELEMENTWISE = Generator(
    "fused_elementwise",
    "elementwise",
    "Pointwise operators -> FusedElementwise: one pass over memory for all of them.",
    elementwise.FUSED_ELEMENTWISE,
    elementwise.NAMES,
)
FUSED_REDUCTION = Generator(
    "fused_reduction",
    "elementwise",
    "Reductions of rows with what is pointwise around them -> FusedReduction: a row is read once.",
    reduction.FUSED_REDUCTION,
    reduction.NAMES,
)
# Saves microseconds, and hides from ONNX Runtime what it could tell of shapes: not by itself.
FUSED_SIZES = Generator(
    "fused_sizes",
    "layout",
    "Shape arithmetic -> FusedElementwise: sizes are read off the inputs of the graph, whatever computes them now. At level all.",
    elementwise.FUSED_ELEMENTWISE,
    elementwise.NAMES,
    on_request=True,
)
GENERATORS = {g.name: g for g in (FUSED_ELEMENTWISE, FUSED_REDUCTION, FUSED_SIZES)}


@dataclass
class Regions:
    """What can be generated in one graph beside the candidates that are made. apart: why a node is in no region."""

    found: list[Candidate] = field(default_factory=list)
    apart: dict[Node, str] = field(default_factory=dict)


@dataclass
class Finder:
    """Finds regions in the graphs of one model. generators: the kinds that may be made. most_nodes: in one region.

    on_cpu: the model runs there. On a GPU the runtime keeps what computes shapes on the CPU, and so must we.
    """

    generators: Mapping[str, Generator]
    most_nodes: int
    on_cpu: bool = True
    _roles: dict[Graph, dict[Node, Role | str]] = field(default_factory=dict)

    def find(self, view: View, chosen: Sequence[Candidate], barred: frozenset[Node] = frozenset()) -> Regions:
        """Candidates, which may overlap, in what the chosen ones leave. barred: nodes that stay as they are."""
        regions = Regions()
        reason = _reason_against(view.graph)
        if not self.generators or reason is not None:
            regions.apart.update(dict.fromkeys(view.graph.nodes, reason or "nothing is generated"))
            return regions
        around = flow(view.graph, chosen)
        roles = self._roles_in(view.graph, around, barred, regions.apart)
        for whole in self._grown(around, roles, Limits(self.most_nodes, reduce=FUSED_REDUCTION.name in self.generators), regions.apart):
            if self.on_cpu and _is_half(whole):
                regions.apart.update(dict.fromkeys(whole.nodes, ALL_HALF))
            regions.found += [_candidate(view, region) for region in (whole, *self._parts(around, whole)) if self._is_wanted(region)]
        if FUSED_SIZES.name in self.generators and self.on_cpu and view.graph.inputs:
            sizes = [s for s in find_sizes(around, self.most_nodes) if len(s.region) > 1 and barred.isdisjoint(s.region)]
            regions.found += [_sized(view, s) for s in sizes]
            for node in {node for s in sizes for node in s.region}:
                regions.apart.pop(node, None)
        return regions

    def _parts(self, around: Flow, whole: Region) -> list[Region]:
        """What the region can be cut into: such that nothing is computed more often than it was, and without rows."""
        smaller = any(role.shape not in (whole.shape, row_of(whole.shape, whole.axes)) for role in whole.roles.values())
        ways = [Limits(self.most_nodes, same=True)] * smaller + [Limits(self.most_nodes, reduce=False)] * bool(whole.axes)
        roles = {node: whole.roles[node] for node in whole.nodes}
        found = {region.nodes: region for limits in ways for region in self._grown(around, roles, limits, {})}
        return [region for nodes, region in found.items() if nodes != whole.nodes]

    def _is_wanted(self, region: Region) -> bool:
        is_made = (FUSED_REDUCTION if region.program.is_reduction else FUSED_ELEMENTWISE).name in self.generators
        return is_made and not (self.on_cpu and _is_half(region))

    def _roles_in(self, graph: Graph, around: Flow, barred: frozenset[Node], apart: dict[Node, str]) -> dict[Node, Role]:
        if graph not in self._roles:
            self._roles[graph] = {node: role_of(node) for node in graph.nodes}
        roles: dict[Node, Role] = {}
        for node, role in self._roles[graph].items():
            if node not in around.blocks:
                continue
            if isinstance(role, str):
                apart[node] = role
            elif not self.on_cpu and _is_size(node):
                apart[node] = "whole numbers of rank 0 or 1 may be sizes, which stay on the CPU"
            elif node in barred:
                apart[node] = "a region with it failed validation"
            else:
                roles[node] = role
        return roles

    def _grown(self, around: Flow, roles: Mapping[Node, Role], limits: Limits, apart: dict[Node, str]) -> list[Region]:
        """The regions, once what keeps groups from being one is left out."""
        left = dict(roles)
        for _ in range(ROUNDS):
            regions: list[Region] = []
            out: dict[Node, str] = {}
            for group in grow(around, left, limits):
                if _computes(group) < 2:
                    apart.update({node: _alone(node) for node in group.members})
                    continue
                made = finish(group, around)
                if isinstance(made, Region):
                    regions.append(made)
                else:
                    out |= dict.fromkeys(_at_fault(group), made)
            apart.update(out)
            if not out:
                break
            left = {node: role for node, role in left.items() if node not in out}
        for region in regions:
            for node in region.nodes:
                apart.pop(node, None)
        return regions


def _is_half(region: Region) -> bool:
    """Whether it reads and makes float16 and no other floats.

    ONNX Runtime's CPU provider runs such an operator in float32 where those around it run so: it changes the types of its inputs
    and outputs, which a program has written down.
    """
    values = [*region.inputs, *region.outputs]
    return {v.dtype for v in values if v is not None and v.dtype in FLOATS} == {TensorProto.FLOAT16}


def _candidate(view: View, region: Region) -> Candidate:
    generator = FUSED_REDUCTION if region.program.is_reduction else FUSED_ELEMENTWISE
    attributes: dict[str, object] = {"program": region.program.text}
    if "axes" in generator.op.attributes:
        attributes["axes"] = region.axes
    call = Call(DOMAIN, generator.op.name, region.inputs, attributes, (None, *region.outputs[1:]), generator.op)
    views = frozenset(node for node in region.nodes if region.roles[node].kind == "view")
    written = Written(body(region, DOMAIN, tuple(generator.op.attributes)), region.shape, views)
    return _made(generator, view, call, region.outputs, region.nodes, frozenset(region.nodes), region.ops, written)


def _sized(view: View, sizes: Sizes) -> Candidate:
    op, length = FUSED_SIZES.op, sizes.length
    attributes = {"program": sizes.program.text}
    operands: tuple[Operand, ...] = sizes.inputs
    if len(sizes.program.inputs) > len(operands):
        operands = (*operands, NewConstant(np.array(0) if length is None else np.arange(length), view.graph.inputs[0]))
    call = Call(DOMAIN, op.name, operands, attributes, (None, *sizes.outputs[1:]), op)
    spelled = spell_body(sizes.program, domain=DOMAIN, name="", opset=view.graph.opset, formal=tuple(op.attributes))
    written = Written(spelled, () if length is None else (length,), frozenset(), sizes.free, frozenset(sizes.inputs))
    return _made(FUSED_SIZES, view, call, sizes.outputs, sizes.region, sizes.removed, [n.op for n in sizes.region], written)


def _made(
    generator: Generator,
    view: View,
    call: Call,
    outputs: tuple[Value, ...],
    region: tuple[Node, ...],
    removed: frozenset[Node],
    ops: Sequence[str],
    written: Written,
) -> Candidate:
    root = outputs[0]
    assert root.producer is not None
    decision = Decision(
        generator.name,
        Verdict.DECLINED,
        view.graph.name,
        root.producer.label,
        root.name,
        tuple(node.op for node in region),
        tuple(node.label for node in region),
        f"{generator.op.name}[{shown(ops)}]",
    )
    return Candidate(generator, call, view, outputs, region, removed, {}, decision, written=written)


def apart(regions: Iterable[tuple[View, Regions]]) -> Iterator[Decision]:
    """One decision for each node that is in no region, with the reason."""
    for view, found in regions:
        for node, reason in found.apart.items():
            if node.op != "Constant" and node.outputs and node.outputs[0] is not None:
                place = view.graph.name, node.label, node.outputs[0].name
                numbers = {"apart": True}
                yield Decision(FUSED_ELEMENTWISE.name, Verdict.NEAR_MISS, *place, ops=(node.op,), reason=reason, numbers=numbers)


def acyclic(named: Sequence[Candidate], chosen: Sequence[Candidate]) -> tuple[list[Candidate], list[Decision]]:
    """(the chosen regions that can be made together, how the others ended): those of different ways to grow may wait for each other."""
    kept: list[Candidate] = []
    apart: list[Decision] = []
    mergers: dict[Graph, Merger] = {}
    for candidate in chosen:
        graph = candidate.view.graph
        if graph not in mergers:
            mergers[graph] = Merger(flow(graph, [c for c in named if c.view.graph is graph]))
        if _merged(mergers[graph], candidate):
            kept.append(candidate)
        else:
            apart.append(candidate.decision.ended(Verdict.LOST, "another region would wait for this one, and this one for it"))
    return kept, apart


def _merged(merger: Merger, candidate: Candidate) -> bool:
    """Whether its nodes can be one beside what is merged; if so they are."""
    if all(v.producer is None for v in candidate.inputs):
        return True  # it waits for nothing
    blocks = [merger.of(merger.flow.blocks[node]) for node in candidate.region]
    if merger.waits(blocks):
        return False
    for block in blocks[1:]:
        merger.merge(block, blocks[0])
    return True


def crowded(chosen: Sequence[Candidate], weigh: Callable[[Candidate], float]) -> tuple[list[Candidate], list[Decision]]:
    """(the chosen that the library has names for, how the others ended): equal bodies share a name, those that save most get one."""
    worth: dict[tuple[str, bytes], float] = defaultdict(float)
    keys = [(c.call.name, _key(c)) for c in chosen]
    for candidate, key in zip(chosen, keys, strict=True):
        worth[key] += weigh(candidate)
    ranked = sorted(worth, key=lambda key: -worth[key])
    named: set[tuple[str, bytes]] = set()
    for name, left in _names_left(chosen).items():
        named.update([key for key in ranked if key[0] == name][:left])
    kept = [c for c, key in zip(chosen, keys, strict=True) if key in named]
    reason = "the model has more different regions than the library has names for; others save more"
    return kept, [c.decision.ended(Verdict.LOST, reason) for c, key in zip(chosen, keys, strict=True) if key not in named]


def _names_left(chosen: Sequence[Candidate]) -> dict[str, int]:
    """How many names of each operator the model has no body for yet."""
    taken = Counter(f.name.split("_")[0] for c in chosen[:1] for f in c.view.graph.model.proto.functions if f.domain == DOMAIN)
    return {g.op.name: max(0, g.names - taken[g.op.name]) for g in GENERATORS.values()}


def _key(candidate: Candidate) -> bytes:
    assert candidate.written is not None
    return candidate.written.body.SerializeToString(deterministic=True)


def shown(ops: Sequence[str]) -> str:
    """Operators as a name tells them: `Mul+Add+Tanh`, repeated ones once; past five the rest is counted."""
    kinds = list(Counter(ops))
    more = len(kinds) - MOST_KINDS
    return "+".join(kinds[:MOST_KINDS]) + (f"+{more} more" if more > 0 else "")


def _is_size(node: Node) -> bool:
    """Whether what the node makes may be the size of something."""
    made = node.outputs[0]
    return made is not None and made.rank in (0, 1) and is_integer(type_of(made))


def _alone(node: Node) -> str:
    """Why a node that could take part in a region is in none: what it stands between."""
    made = [v.producer.op for v in node.inputs if v is not None and v.producer is not None and v.producer.op != "Constant"]
    read = [reader.op for v in node.outputs if v is not None for reader in v.users]
    before, behind = (" and ".join(dict.fromkeys(ops)) for ops in (made, read))
    around = f"it reads {before or 'inputs and constants'} and is {f'read by {behind}' if read else 'an output'}"
    return f"nothing that it could be computed with stands next to it, or is of one shape with it: {around}"


def _computes(group: Group) -> int:
    """How many of its nodes compute something."""
    return sum(role.kind != "view" for role in group.members.values())


def _at_fault(group: Group) -> list[Node]:
    """The nodes to leave out of a group that is no region: the views in it, or all where there are none."""
    return [node for node, role in group.members.items() if role.kind == "view"] or list(group.members)


def _reason_against(graph: Graph) -> str | None:
    """Why nothing can be generated in a graph."""
    if graph.opset < MIN_OPSET:
        return f"the model must import opset {MIN_OPSET} or later; it imports {graph.opset}"
    outer = graph
    while outer.outer is not None:
        outer = outer.outer
    return "it stands in a function of the model, where nothing says the types of what is made" if outer.function is not None else None
