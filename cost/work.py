"""One kernel call as the model sees it: how much it computes and how much it moves, with no device in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from onnxfuse.cost.types import BITS
from onnxfuse.errors import UsageError

Kind = Literal["pointwise", "reduction", "matmul", "attention", "layout", "other"]

ATTENTION_ROWS = 128  # queries that one block of an attention kernel takes
VECTOR_BYTES = 16  # what one thread loads of an operand at a time


@dataclass(frozen=True)
class Gemm:
    """The matrix product inside a kernel: `batch` products of [m, k] with [k, n]."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every product."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Compiled:
    """What the compiler said of a real kernel; replaces the estimates."""

    registers: int
    smem: int = 0  # bytes a block, static and dynamic
    threads: int = 256  # per block
    spill_bytes: int = 0  # local memory of one thread
    barriers: int = 1  # named barriers


@dataclass(frozen=True)
class Work:
    """One kernel call. Bytes are what the kernel must move at least once; all counts are exact integers."""

    name: str
    flops: int  # scalar operations of every kind, as the op's definition spells them
    special: int  # exp, log, tanh, erf and the like, evaluated once each
    bytes_read: int
    bytes_written: int
    kind: Kind
    elements: int  # what threads are laid over: outputs, or a reduction's inputs
    dtype: str  # ONNX type name of what is computed: float, float16, ...
    op: str = ""  # ONNX op type of a single node
    parts: tuple[tuple[str, int], ...] = ()  # scalar work: (ONNX op, elements it is applied to)
    gemm_flops: int = 0  # the part of `flops` that matrix units do
    gemm: Gemm | None = None  # its shape, where it is a single product
    nodes: int = 1  # ONNX nodes inside
    launches: int = 1  # kernels a GPU starts: 0 for a view
    operands: int = 2  # tensors read and written
    readers: int = 1  # who reads its result; the caller counts as one
    fused: bool = False  # runs in our kernel, not in the runtime's own
    blocks: int = 0  # thread blocks of the grid; 0: derived
    rows: int = 0  # of an attention: queries of all its heads
    reread_bytes: int = 0  # read again after the first time, beside what a product's tiles do
    sharers: int = 0  # blocks that read the same `shared_bytes` again; 0: all of them read all
    shared_bytes: int = 0
    resident_bytes: int = 0  # the part of bytes_read that a cache still holds, as just produced
    run_bytes: int = 0  # contiguous bytes of one access; 0: whole rows
    vector: int = 4  # elements a thread holds of each live operand
    live: int = 1  # operands whose values a thread holds at the same time
    compiled: Compiled | None = None

    @property
    def bytes(self) -> int:
        """What is read and written once."""
        return self.bytes_read + self.bytes_written


def vector_of(dtype: str) -> int:
    """Elements of a type in one 16-byte load: 8 of float16."""
    return max(1, VECTOR_BYTES * 8 // BITS[dtype])


def fuse(
    name: str,
    parts: Sequence[Work],
    *,
    bytes_read: int,
    bytes_written: int,
    operands: int = 0,
    nodes: int = 0,
    kind: Kind | None = None,
    compiled: Compiled | None = None,
) -> Work:
    """One fused kernel that computes all of `parts` but moves only its own inputs and outputs.

    operands: tensors read and written; 0 stands for what a chain of the parts has from outside.
    nodes: ONNX nodes inside; 0 stands for the sum over the parts.
    Raises UsageError when there is nothing to fuse.
    """
    if not parts:
        raise UsageError(f"cost of '{name}': a fusion must have at least one part; got none")
    heaviest = max(parts, key=lambda part: (_WEIGHT[part.kind], part.gemm_flops, part.elements))
    total = operands or sum(part.operands for part in parts) - 2 * (len(parts) - 1)
    products = [part.gemm for part in parts if part.gemm]
    wide = heaviest.vector if heaviest.kind == "reduction" else vector_of(heaviest.dtype)
    made = replace(
        heaviest,
        name=name,
        op="",
        flops=sum(part.flops for part in parts),
        special=sum(part.special for part in parts),
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        kind=kind or heaviest.kind,
        elements=max(part.elements for part in parts),
        parts=tuple(scalar for part in parts for scalar in part.parts),
        gemm_flops=sum(part.gemm_flops for part in parts),
        gemm=_side_by_side(products) if kind != "attention" else products[0] if len(products) == 1 else None,
        nodes=nodes or sum(part.nodes for part in parts),
        launches=1,
        operands=total,
        fused=True,
        live=max(1, total - 1),
        vector=wide,
        resident_bytes=0,
        run_bytes=0,
        compiled=compiled,
    )
    if kind != "attention" or not products:
        return made
    return replace(made, rows=products[0].batch * products[0].m, **attention_layout(products[0], heaviest.dtype))


def _side_by_side(products: Sequence[Gemm]) -> Gemm | None:
    """The one product that all of these are, if they multiply the same rows; None where there is none, or they differ."""
    if not products or any((p.batch, p.m, p.k) != (products[0].batch, products[0].m, products[0].k) for p in products):
        return None
    return replace(products[0], n=sum(p.n for p in products))


class AttentionLayout(TypedDict):
    """How attention is laid over blocks: those of one head share its keys and values."""

    blocks: int
    sharers: int
    shared_bytes: int
    reread_bytes: int


def attention_layout(scores: Gemm, dtype: str) -> AttentionLayout:
    """The layout of an attention whose scores are `scores`: a block takes 128 queries, and reads all keys and values."""
    sharers = -(-scores.m // ATTENTION_ROWS)
    head = 2 * scores.n * scores.k * BITS[dtype] // 8
    return {
        "blocks": scores.batch * sharers,
        "sharers": sharers,
        "shared_bytes": head,
        "reread_bytes": scores.batch * max(0, sharers - 1) * head,
    }


def repeat(work: Work, times: int) -> Work:
    """`work` computed `times` over, as when a producer is recomputed in each of its readers; bytes are as before."""
    return replace(
        work,
        flops=work.flops * times,
        special=work.special * times,
        gemm_flops=work.gemm_flops * times,
        parts=tuple((op, elements * times) for op, elements in work.parts),
    )


_WEIGHT = {"other": 0, "layout": 0, "pointwise": 1, "reduction": 2, "matmul": 3, "attention": 4}
