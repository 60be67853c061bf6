"""What ONNX Runtime makes of nodes before it runs them: a few spellings become one kernel without our doing.

A fusion competes with these, not with the nodes as they are written. The table is what ONNX Runtime 1.32 did on a CPU
with each of some thirty spellings: GELU by tanh, a norm that squares by Mul, one without a scale, stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.work import Work


@dataclass(frozen=True)
class Builtin:
    """One of the runtime's own fusions: `anchors` must all be there, `absorbs` go with them as far as they are.

    with_bias: the kernel instead, when one more Add is there.
    """

    op: str
    operands: int
    anchors: Counter[str]
    absorbs: Counter[str] = field(default_factory=Counter)
    with_bias: str = ""


BUILTINS: tuple[Builtin, ...] = (
    Builtin("QuickGelu", 2, Counter(Sigmoid=1, Mul=1)),
    Builtin("Gelu", 2, Counter(Erf=1, Div=1, Add=1, Mul=2), with_bias="BiasGelu"),
    Builtin("LayerNormalization", 4, Counter(ReduceMean=2, Pow=1, Sqrt=1, Div=1, Mul=1, Add=2), Counter(Sub=2)),
    Builtin("SimplifiedLayerNormalization", 3, Counter(ReduceMean=1, Pow=1, Add=1, Sqrt=1, Div=1, Mul=1), Counter(Mul=1)),
)


VOCABULARY = {op for builtin in BUILTINS for op in (*builtin.anchors, *builtin.absorbs)} | {"Add"}
Kernel: TypeAlias = "tuple[Work, tuple[int, ...]]"


def as_run(works: Sequence[Work]) -> list[Work]:
    """The kernels that the runtime starts for nodes written as `works`, in their order."""
    return [work for work, _ in merged(works)]


def merged(works: Sequence[Work]) -> list[tuple[Work, tuple[int, ...]]]:
    """The kernels that the runtime starts for nodes written as `works`, each with the places of those that it stands for."""
    return [kernel for stretch in _stretches(works) for kernel in _merged(stretch)]


def _stretches(works: Sequence[Work]) -> Iterator[list[Kernel]]:
    """The works cut at those that no fusion of the runtime takes or passes over, each of which stands alone."""
    stretch: list[Kernel] = []
    for place, work in enumerate(works):
        if work.launches and work.op != "Cast" and not (_is_plain(work) and work.op in VOCABULARY):
            yield stretch
            yield [(work, (place,))]
            stretch = []
        else:
            stretch.append((work, (place,)))
    yield stretch


def _merged(stretch: list[Kernel]) -> list[Kernel]:
    left = stretch
    for builtin in BUILTINS:
        while (taken := _match(builtin, [work for work, _ in left])) is not None:
            kernel = _kernel([left[i][0] for i in taken], builtin), tuple(place for i in taken for place in left[i][1])
            left = [kernel if i == taken[-1] else own for i, own in enumerate(left) if i == taken[-1] or i not in taken]
    return left


def _match(builtin: Builtin, works: Sequence[Work]) -> list[int] | None:
    """Indices of the nodes that the fusion takes: an unbroken run around an anchor. None when an anchor is missing."""
    seed_op = next(iter(builtin.anchors))
    for seed in (i for i, work in enumerate(works) if _is_plain(work) and work.op == seed_op):
        wanted = builtin.anchors + builtin.absorbs + Counter(Add=1 if builtin.with_bias else 0) - Counter({seed_op: 1})
        taken = [seed, *_run(works, range(seed + 1, len(works)), wanted), *_run(works, range(seed - 1, -1, -1), wanted)]
        found = Counter(works[i].op for i in taken)
        if all(found[op] >= count for op, count in builtin.anchors.items()):
            return sorted(taken)
    return None


def _run(works: Sequence[Work], way: Iterable[int], wanted: Counter[str]) -> Iterator[int]:
    """Nodes along the way that are still wanted, up to the first that is not; what moves no data is passed over."""
    for i in way:
        if works[i].launches == 0 or works[i].op == "Cast":
            continue
        if not _is_plain(works[i]) or wanted[works[i].op] <= 0:
            return
        wanted[works[i].op] -= 1
        yield i


def _is_plain(work: Work) -> bool:
    return not work.fused and work.nodes == 1


def _kernel(parts: Sequence[Work], builtin: Builtin) -> Work:
    """The one kernel that the parts become: it reads and writes the largest tensor once."""
    has_bias = sum(part.op == "Add" for part in parts) > builtin.anchors["Add"]
    op = builtin.with_bias if has_bias else builtin.op
    largest = max(parts, key=lambda part: part.elements)
    tensor = max(part.bytes_written for part in parts)
    cost = scalar(op)
    return replace(
        largest,
        name=op,
        op=op,
        flops=largest.elements * cost.flops,
        special=largest.elements * cost.special,
        bytes_read=tensor,
        bytes_written=tensor,
        kind="reduction" if "Norm" in op else "pointwise",
        parts=((op, largest.elements),),
        nodes=len(parts),
        operands=builtin.operands + has_bias,
    )
