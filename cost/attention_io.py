"""What attention moves and computes: the standard form, which writes its scores, and the tiled form, which does not.

With N queries and keys of d elements and M elements of on-chip memory, the standard form moves Theta(N d + N^2)
elements, the tiled one O(N^2 d^2 / M + N d). The functions here count exactly, for causal masks, sliding windows, and
query heads that share keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxfuse.errors import ShapeError, UsageError


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of one attention. Query i stands at key position i + offset; `offset` None aligns the last ones.

    causal: a query sees no later key. left, right: how many keys before and after its own a query sees (None: all).
    """

    queries: int
    keys: int
    head_dim: int
    batch: int = 1
    heads: int = 1
    kv_heads: int = 0  # 0: as many as heads
    value_dim: int = 0  # 0: as head_dim
    causal: bool = False
    left: int | None = None
    right: int | None = None
    offset: int | None = None
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("queries", "keys", "head_dim", "batch", "heads", "element_bytes"):
            least = 0 if name in ("queries", "keys", "batch") else 1
            if getattr(self, name) < least:
                raise ShapeError(f"attention: {name} must be at least {least}; got {getattr(self, name)}")
        if self.heads % self.shared_heads:
            raise ShapeError(f"attention: heads must be a multiple of kv_heads, {self.kv_heads}; got {self.heads}")

    @property
    def shared_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def values(self) -> int:
        """Elements of one value vector."""
        return self.value_dim or self.head_dim

    @property
    def shift(self) -> int:
        """The key position at which query 0 stands."""
        return self.keys - self.queries if self.offset is None else self.offset

    def visible(self, query: int) -> tuple[int, int]:
        """The keys [first, end) that one query sees."""
        at = query + self.shift
        first = 0 if self.left is None else min(self.keys, max(0, at - self.left))
        end = min(self.keys, at + 1) if self.causal else self.keys
        if self.right is not None:
            end = min(end, at + self.right + 1)
        return first, max(first, end)


@dataclass(frozen=True)
class StandardIo:
    """The eight terms of unfused attention, in bytes: products and softmax are three kernels."""

    read_q: int
    read_k: int
    write_scores: int
    read_scores: int
    write_probabilities: int
    read_probabilities: int
    read_v: int
    write_o: int

    @property
    def scores(self) -> int:
        """The four terms that grow with the square of the length."""
        return self.write_scores + self.read_scores + self.write_probabilities + self.read_probabilities

    @property
    def total(self) -> int:
        """All eight."""
        return self.read_q + self.read_k + self.read_v + self.write_o + self.scores


@dataclass(frozen=True)
class Blocks:
    """Rows of queries and columns of keys that are on chip at a time."""

    rows: int
    columns: int


@dataclass(frozen=True)
class TiledIo:
    """Bytes of tiled attention. `reread` is what keys and values cost after the first time: it meets a cache if they fit."""

    read_q: int
    read_k: int
    read_v: int
    write_o: int
    reread: int
    blocks: Blocks

    @property
    def first(self) -> int:
        """Every tensor once: what DRAM sees while the cache holds keys and values."""
        return self.read_q + self.read_k + self.read_v + self.write_o

    @property
    def total(self) -> int:
        """Every read that the kernel issues."""
        return self.first + self.reread


def standard_io(shape: AttentionShape) -> StandardIo:
    """Traffic of unfused attention: it computes and stores all scores, masked ones too."""
    size = shape.element_bytes * shape.batch
    scores = size * shape.heads * shape.queries * shape.keys
    return StandardIo(
        read_q=size * shape.heads * shape.queries * shape.head_dim,
        read_k=size * shape.shared_heads * shape.keys * shape.head_dim,
        write_scores=scores,
        read_scores=scores,
        write_probabilities=scores,
        read_probabilities=scores,
        read_v=size * shape.shared_heads * shape.keys * shape.values,
        write_o=size * shape.heads * shape.queries * shape.values,
    )


def tiled_io(shape: AttentionShape, blocks: Blocks) -> TiledIo:
    """Traffic of tiled attention: each block of queries reads every block of keys and values that one of its rows sees."""
    size = shape.element_bytes * shape.batch
    row_bytes = shape.head_dim + shape.values
    visits = size * shape.heads * row_bytes * sum(end - first for first, end in key_ranges(shape, blocks))
    read_k = size * shape.shared_heads * shape.head_dim * seen_keys(shape)
    read_v = size * shape.shared_heads * shape.values * seen_keys(shape)
    return TiledIo(
        read_q=size * shape.heads * shape.queries * shape.head_dim,
        read_k=read_k,
        read_v=read_v,
        write_o=size * shape.heads * shape.queries * shape.values,
        reread=visits - read_k - read_v,
        blocks=blocks,
    )


def key_ranges(shape: AttentionShape, blocks: Blocks) -> Iterator[tuple[int, int]]:
    """For each block of queries, the keys [first, end) it loads: what its rows see, in whole blocks of columns."""
    for start in range(0, shape.queries, blocks.rows):
        first, _ = shape.visible(start)
        _, end = shape.visible(min(start + blocks.rows, shape.queries) - 1)
        if end > first:
            yield first // blocks.columns * blocks.columns, min(shape.keys, -(-end // blocks.columns) * blocks.columns)


def seen_keys(shape: AttentionShape) -> int:
    """How many keys any query sees: the ranges of successive queries start and end no earlier."""
    if not shape.queries:
        return 0
    first, _ = shape.visible(0)
    _, end = shape.visible(shape.queries - 1)
    return end - first


def visible_pairs(shape: AttentionShape) -> int:
    """Pairs of query and key that are not masked, in one head."""
    at = np.arange(shape.queries, dtype=np.int64) + shape.shift
    first = np.clip(at - shape.left, 0, shape.keys) if shape.left is not None else np.zeros_like(at)
    ahead = min(0 if shape.causal else shape.keys, shape.keys if shape.right is None else shape.right)
    end = np.minimum(at + ahead + 1, shape.keys) if shape.causal or shape.right is not None else np.full_like(at, shape.keys)
    return int(np.maximum(end - first, 0).sum())


def attention_flops(shape: AttentionShape) -> int:
    """Matrix-product FLOPs over the pairs that are not masked."""
    return 2 * shape.batch * shape.heads * visible_pairs(shape) * (shape.head_dim + shape.values)


def block_sizes(head_dim: int, sram_bytes: int, *, element_bytes: int = 2, limit: int = 0) -> Blocks:
    """Block sizes for which a block each of Q, K, V and O fits: floor(M / 4d) columns, at most d rows.

    limit: the most rows or columns (0: none). Raises UsageError when not even one row fits.
    """
    columns = sram_bytes // (4 * head_dim * element_bytes) if head_dim > 0 and element_bytes > 0 else 0
    if columns < 1:
        raise UsageError(
            f"block_sizes: sram_bytes must hold four rows of head_dim {head_dim} x {element_bytes} bytes; got {sram_bytes}. "
            "Take a smaller head_dim or a larger memory"
        )
    columns = min(columns, limit) if limit else columns
    return Blocks(rows=min(columns, head_dim), columns=columns)
