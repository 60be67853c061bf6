"""What ONNX Runtime makes of nodes before it runs them: a few spellings become one kernel without our doing.

A fusion competes with these, not with the nodes as they are written. The table is what ONNX Runtime 1.32 did on a CPU
with each of some thirty spellings: a norm that squares by Mul, one without a scale, stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import TypeAlias

from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.work import Work


@dataclass(frozen=True)
class Builtin:
    """One of the runtime's own fusions: `anchors` must all be there, `absorbs` go with them as far as they are.

    with_bias: the kernel instead, when one more Add is there. full: an op that must be applied to the whole tensor, not
    to one number a row. starts: ops that the first of the nodes must be one of, where that matters: a sum right before a norm is
    not the norm's shift.
    """

    op: str
    operands: int
    anchors: Counter[str]
    absorbs: Counter[str] = field(default_factory=Counter)
    with_bias: str = ""
    full: str = ""
    starts: tuple[str, ...] = ()


NORM_PARTS = Counter(ReduceMean=2, Pow=1, Sqrt=1, Div=1, Mul=1, Add=2)
BUILTINS: tuple[Builtin, ...] = (
    Builtin("QuickGelu", 2, Counter(Sigmoid=1, Mul=1)),
    Builtin("Gelu", 2, Counter(Erf=1, Div=1, Add=1, Mul=2), with_bias="BiasGelu"),
    Builtin("FastGelu", 2, Counter(Tanh=1, Pow=1, Add=2, Mul=4), with_bias="FastGelu"),
    Builtin(
        "LayerNormalization", 4, Counter(ReduceMean=2, Pow=1, Sqrt=1, Div=1, Mul=1, Add=2), Counter(Sub=2), starts=("ReduceMean", "Sub")
    ),
    Builtin("SimplifiedLayerNormalization", 3, Counter(ReduceMean=1, Pow=1, Add=1, Sqrt=1, Div=1, Mul=2), starts=("Pow",)),
    Builtin("SimplifiedLayerNormalization", 3, Counter(ReduceMean=1, Pow=1, Add=1, Sqrt=1, Div=1, Mul=1), full="Div", starts=("Pow",)),
)


PRODUCT, SCALED = "MatMul", "FusedMatMul"
MATRIX, ACTIVATED = "Gemm", "FusedGemm"
ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "HardSigmoid", "Softplus", "Softsign")  # that a FusedGemm can have
SKIPPED = "LayerNormalization"
SKIP = Builtin("SkipLayerNormalization", 5, Counter(LayerNormalization=1, Add=1))
VOCABULARY = {op for builtin in (*BUILTINS, SKIP) for op in (*builtin.anchors, *builtin.absorbs)} | {"Add"}
Kernel: TypeAlias = "tuple[Work, tuple[int, ...]]"


def as_run(works: Sequence[Work]) -> list[Work]:
    """The kernels that the runtime starts for nodes written as `works`, in their order."""
    return [work for work, _ in merged(works)]


def merged(works: Sequence[Work]) -> list[tuple[Work, tuple[int, ...]]]:
    """The kernels that the runtime starts for nodes written as `works`, each with the places of those that it stands for."""
    return _with_activations(_with_scales([kernel for stretch in _stretches(works) for kernel in _merged(stretch)]))


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
    return _with_sums(left, {place: work for work, (place,) in stretch})


def _with_sums(left: list[Kernel], written: Mapping[int, Work]) -> list[Kernel]:
    """A norm and the sum right before it as one kernel, where nobody else reads that sum. written: the nodes, by place."""
    made: list[Kernel] = []
    for work, places in left:
        source = next((i for i in reversed(range(len(made))) if made[i][0].launches), None)
        inside = 1 + sum(written[place].op == "Sub" for place in places)  # nodes of the norm that read what it is given
        if work.op == SKIPPED and not work.fused and source is not None and _is_lone_sum(made[source][0], inside):
            total, before = made.pop(source)
            kernel = _kernel([total, work], SKIP)
            made.append((replace(kernel, bytes_read=total.bytes_read, nodes=total.nodes + work.nodes), (*before, *places)))
        else:
            made.append((work, places))
    return made


def _with_scales(kernels: Sequence[Kernel]) -> list[Kernel]:
    """A product with the number that its result is multiplied by, and with the transpose of what it reads, as one kernel."""
    made: list[Kernel] = []
    for work, places in kernels:
        last = next((i for i in reversed(range(len(made))) if made[i][0].launches), None)
        source = made[last][0] if last is not None else None
        if source is not None and last is not None and (_scales(work, source) or _turns(source, work)):
            product = replace(work if work.op == PRODUCT else source, op=SCALED, name=SCALED, nodes=work.nodes + source.nodes)
            made.append((product, (*made.pop(last)[1], *places)))
        else:
            made.append((work, places))
    return made


def _with_activations(kernels: Sequence[Kernel]) -> list[Kernel]:
    """A Gemm and the activation behind it as one kernel."""
    made: list[Kernel] = []
    for work, places in kernels:
        source = made[-1][0] if made else None
        if source is not None and _activates(work, source):
            made.append((_activated(source, work), (*made.pop()[1], *places)))
        else:
            made.append((work, places))
    return made


def _activates(work: Work, source: Work) -> bool:
    """Whether it is an activation right behind a Gemm that nobody else reads."""
    is_product = source.op == MATRIX and _is_plain(source) and source.readers == 1
    return is_product and work.op in ACTIVATIONS and _is_plain(work)


def _activated(product: Work, work: Work) -> Work:
    return replace(
        product,
        op=ACTIVATED,
        name=ACTIVATED,
        flops=product.flops + work.flops,
        special=product.special + work.special,
        parts=(*product.parts, *work.parts),
        nodes=2,
    )


def _scales(work: Work, source: Work) -> bool:
    """Whether it multiplies the product before it, which nobody else reads, by one number."""
    one_number = work.bytes_read <= work.bytes_written + 8
    return work.op in ("Mul", "Div") and _is_plain(work) and one_number and source.op in (PRODUCT, SCALED) and source.readers == 1


def _turns(source: Work, work: Work) -> bool:
    """Whether the product reads the transpose right before it, which changes the last axis."""
    return work.op == PRODUCT and _is_plain(work) and _is_plain(source) and any(op == "Transpose:last" for op, _ in source.parts)


def _is_lone_sum(work: Work, readers: int) -> bool:
    """Whether it adds two tensors of one shape, for no more than so many readers."""
    return work.op == "Add" and _is_plain(work) and work.readers <= readers and work.bytes_read >= 2 * work.bytes_written


def _match(builtin: Builtin, works: Sequence[Work]) -> list[int] | None:
    """Indices of the nodes that the fusion takes: an unbroken run around an anchor. None when an anchor is missing."""
    seed_op = next(iter(builtin.anchors))
    for seed in (i for i, work in enumerate(works) if _is_plain(work) and work.op == seed_op):
        wanted = builtin.anchors + builtin.absorbs + Counter(Add=1 if builtin.with_bias else 0) - Counter({seed_op: 1})
        taken = [seed, *_run(works, range(seed + 1, len(works)), wanted), *_run(works, range(seed - 1, -1, -1), wanted)]
        taken = _from_start(builtin, works, taken)
        found = Counter(works[i].op for i in taken)
        whole = max((works[i].elements for i in taken), default=0)
        full = all(works[i].elements == whole for i in taken if works[i].op == builtin.full)
        if full and all(found[op] >= count for op, count in builtin.anchors.items()):
            return taken
    return None


def _from_start(builtin: Builtin, works: Sequence[Work], taken: Sequence[int]) -> list[int]:
    """What is taken, from the first node on that the fusion may start with."""
    ordered = sorted(taken)
    return ordered if not builtin.starts else list(dropwhile(lambda i: works[i].op not in builtin.starts, ordered))


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
