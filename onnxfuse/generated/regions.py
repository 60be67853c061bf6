"""Grows regions: groups of nodes that one generated operator can do, as large as they get.

From the last node of a graph to the first, each joins what reads it. It may join a group if it stands in one line with it:
with the group's own shape, or with a smaller one if nobody outside reads it, since all that an operator computes has its
common shape; and if no way leads from it through other nodes back into the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnxfuse.generated.flow import Flow, Merged, Merger
from onnxfuse.generated.roles import Role, Shape, common_shape, restores
from onnxfuse.graph import Node, Value

MOST_INPUTS, MOST_OUTPUTS = 32, 16  # of one generated operator
FEW = 8  # nodes that are never over these limits
TRIES = 4  # readers that a node tries to join: a mask that every layer reads would look through the whole graph for each


@dataclass(eq=False)
class Group:
    """A region that grows. shape: of the operator's values. axes: how many of the last form the row that it reduces, or 0."""

    shape: Shape
    axes: int
    block: Merged
    members: dict[Node, Role]

    @property
    def row(self) -> Shape:
        """The shape of what is reduced."""
        return row_of(self.shape, self.axes)


def row_of(shape: Shape, axes: int) -> Shape:
    """The shape with its last axes of size 1."""
    return (*shape[: len(shape) - axes], *[1] * axes)


def fits_into(small: Shape, large: Shape) -> bool:
    """Whether the one is broadcast to the other, which is not the same."""
    return small != large and common_shape([small, large]) == large


@dataclass(frozen=True)
class Limits:
    """How far groups grow. same: only what has the group's own shape joins, so that nothing is computed more often than it was.

    reduce: rows may be reduced.
    """

    most_nodes: int
    same: bool = False
    reduce: bool = True


def grow(flow: Flow, roles: Mapping[Node, Role], limits: Limits) -> list[Group]:
    """All groups, those of one node too, in graph order. roles: in graph order, of the nodes that may take part."""
    grower = _Grower(flow, limits)
    for node in reversed(list(roles)):
        if limits.reduce or not roles[node].axes:
            grower.place(node, roles[node])
    grower.unite()
    grower.unite_siblings()
    return grower.in_order()


class _Grower:
    def __init__(self, flow: Flow, limits: Limits) -> None:
        self.flow, self.limits, self.merger = flow, limits, Merger(flow)
        self.groups: dict[Merged, Group] = {}

    def place(self, node: Node, role: Role) -> None:
        """Let the node join the groups that read it, or start one."""
        block = self.merger.of(self.flow.blocks[node])
        made = self._start(node, role, block)
        for group in [g for g in map(self.groups.get, self._readers(node)) if g is not None][:TRIES]:
            if group is not made and self._may_join(node, role, made, group):
                made = self._join(made, group)
        self.groups[made.block] = made

    def unite(self) -> None:
        """Let groups join that read each other: one may have become a reduction after the other was left alone for want of it."""
        for group in sorted(self.groups.values(), key=lambda group: -group.block.first):
            for node in list(group.members) if self.groups.get(group.block) is group else ():
                for other in [g for g in map(self.groups.get, self._readers(node)) if g is not None][:TRIES]:
                    if other is not group and self._may_unite(group, other):
                        group = self._join(group, other)
                        self.groups[group.block] = group

    def unite_siblings(self) -> None:
        """Let groups join that read the same large value, so that it is read once."""
        last: dict[Value, Merged] = {}
        for node in [n for group in self.in_order() for n in group.members]:
            for value in [v for v in node.inputs if v is not None and not v.is_constant]:
                group = self.groups[self.merger.of(self.flow.blocks[node])]
                if value.shape != group.shape:
                    continue
                other = self.groups.get(self.merger.now(last[value])) if value in last else None
                if other is not None and other is not group and self._may_unite(group, other):
                    group = self._join(group, other)
                    self.groups[group.block] = group
                last[value] = group.block

    def in_order(self) -> list[Group]:
        """The groups by the first of their nodes."""
        return sorted(self.groups.values(), key=lambda group: group.block.first)

    def _may_unite(self, one: Group, other: Group) -> bool:
        if len(one.members) + len(other.members) > self.limits.most_nodes:
            return False
        in_line = one.shape == other.shape and (one.axes == other.axes or 0 in (one.axes, other.axes))
        of_rows = (other.axes and not one.axes and one.shape == other.row) or (one.axes and not other.axes and other.shape == one.row)
        if not (in_line or of_rows) or not self._is_bounded([*one.members, *other.members]):
            return False
        return fit({**one.members, **other.members}) and not self.merger.waits([one.block, other.block])

    def _readers(self, node: Node) -> list[Merged]:
        return [reader for value in node.outputs if value is not None for reader in self.merger.readers(value)]

    def _start(self, node: Node, role: Role, block: Merged) -> Group:
        source = role.operands[0]
        shape = source.shape if role.kind == "reduce" and source is not None and source.shape is not None else role.shape
        return Group(shape, role.axes, block, {node: role})

    def _join(self, one: Group, other: Group) -> Group:
        """The two as one group, of the larger shape."""
        shape = other.shape if one.shape == other.shape or fits_into(one.shape, other.shape) else one.shape
        self.groups.pop(other.block, None)
        self.groups.pop(one.block, None)
        self.merger.merge(one.block, other.block)
        return Group(shape, max(one.axes, other.axes), other.block, {**one.members, **other.members})

    def _may_join(self, node: Node, role: Role, made: Group, group: Group) -> bool:
        """made: what the node is in by now."""
        if len(made.members) + len(group.members) > self.limits.most_nodes:
            return False
        if not self._is_in_line(node, role, made, group) or not self._is_bounded([*made.members, *group.members]):
            return False
        return fit({**made.members, **group.members}) and not self.merger.waits([made.block, group.block])

    def _is_in_line(self, node: Node, role: Role, made: Group, group: Group) -> bool:
        """Whether all that either makes can be computed at one shape, and what others read has that shape or a row's."""
        if made.axes and group.axes and made.axes != group.axes:
            return False
        if made.shape == group.shape:
            return not role.dropped or self._is_inside(node, group)
        if group.axes and not made.axes and made.shape == group.row:
            return True
        if made.axes and not group.axes and group.shape == made.row:
            return not role.dropped or self._is_inside(node, group)
        alone = len(made.members) == 1 and not made.axes
        return alone and not self.limits.same and self._is_inside(node, group) and fits_into(made.shape, group.shape)

    def _is_inside(self, node: Node, group: Group) -> bool:
        """Whether nobody but the group reads the node."""
        value = node.outputs[0]
        return value is not None and not is_held(value) and self.merger.readers(value) == [group.block]

    def _is_bounded(self, members: list[Node]) -> bool:
        if len(members) <= FEW:
            return True
        made = {v for node in members for v in node.outputs}
        read = {v for node in members for v in node.inputs if v is not None and v not in made and not is_scalar_constant(v)}
        inside = {self.flow.blocks[node] for node in members}
        given = sum(is_held(v) or not inside.issuperset(self.flow.readers.get(v, ())) for v in made if v is not None)
        return len(read) <= MOST_INPUTS and given <= MOST_OUTPUTS


def is_held(value: Value) -> bool:
    """Whether the value is read from elsewhere than by nodes: by the caller, or by the body of a node."""
    return value.is_output or bool(value.captured)


def is_scalar_constant(value: Value) -> bool:
    """Whether the value is one number, the same in every run."""
    return value.shape is not None and all(d == 1 for d in value.shape) and value.is_constant


def fit(members: Mapping[Node, Role]) -> bool:
    """Whether nodes can stand in one region, as far as their own reads go."""
    joined = (v.producer for role in members.values() if role.kind == "join" for v in role.operands if v is not None)
    return all(made not in members for made in joined) and _are_put_back(members)


def _are_put_back(members: Mapping[Node, Role]) -> bool:
    """Whether only what puts back lost axes reads a reduction that lost them: for others it lies along other axes than its rows."""
    lost = (node for node, role in members.items() if role.dropped)
    return all(restores(user) is node for node in lost for v in node.outputs if v is not None for user in v.users if user in members)


def restored(members: Iterable[Node]) -> bool:
    """Whether what puts back lost axes stands together with the reduction that lost them."""
    known = set(members)
    return all(made is None or made in known for made in map(restores, known))
