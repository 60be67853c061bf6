"""Attention traffic: the textbook's figures, and every count against one made by walking over all pairs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from onnxfuse.cost.attention_io import (
    AttentionShape,
    Blocks,
    attention_flops,
    block_sizes,
    standard_io,
    tiled_io,
    visible_pairs,
)
from onnxfuse.errors import ShapeError, UsageError

TEXTBOOK = AttentionShape(queries=4096, keys=4096, head_dim=64)


def sees(shape: AttentionShape, query: int, key: int) -> bool:
    at = query + (shape.keys - shape.queries if shape.offset is None else shape.offset)
    return not (
        (shape.causal and key > at)
        or (shape.left is not None and key < at - shape.left)
        or (shape.right is not None and key > at + shape.right)
    )


SHAPES = [
    AttentionShape(queries, keys, 8, heads=4, kv_heads=kv_heads, value_dim=value_dim, causal=causal, left=left, right=right, offset=offset)
    for queries, keys in ((1, 1), (7, 7), (1, 13), (16, 16), (5, 17), (17, 5), (33, 31))
    for kv_heads, value_dim in ((4, 0), (1, 24))
    for causal, left, right in ((False, None, None), (True, None, None), (True, 3, None), (False, 2, 4), (False, 0, 0))
    for offset in (None, 0)
]


def test_scores_at_4096_are_33_554_432_bytes() -> None:
    assert standard_io(TEXTBOOK).write_scores == 33_554_432


def test_standard_attention_at_4096_moves_130_mib_of_which_128_are_scores() -> None:
    io = standard_io(TEXTBOOK)
    assert io.scores == 128 * 2**20
    assert io.total == 130 * 2**20
    assert io.total == 2 * (4 * 4096 * 64 + 4 * 4096**2)


def test_standard_grows_with_n_d_and_n_squared() -> None:
    for n, d in itertools.product((1, 128, 4096), (32, 64, 256)):
        io = standard_io(AttentionShape(n, n, d, element_bytes=1))
        assert io.total == 4 * n * d + 4 * n * n


def test_tiled_is_within_the_bound_n2_d2_over_m_plus_n_d() -> None:
    for n, d, sram in itertools.product((512, 4096, 16384), (64, 128), (49152, 101376, 166912, 232448)):
        blocks = block_sizes(d, sram)
        elements = tiled_io(AttentionShape(n, n, d), Blocks(blocks.columns, blocks.rows)).total / 2
        assert elements <= 10 * (n * n * d * d / (sram / 2) + n * d)


def test_tiled_moves_each_tensor_once_when_all_queries_are_one_block() -> None:
    io = tiled_io(TEXTBOOK, Blocks(4096, 64))
    assert (io.reread, io.total) == (0, 4 * 4096 * 64 * 2)


def test_tiled_reads_keys_and_values_once_for_each_block_of_queries() -> None:
    io = tiled_io(TEXTBOOK, Blocks(128, 64))
    assert io.total == 2 * (2 * 4096 * 64 + 32 * 2 * 4096 * 64)
    assert io.first == 2 * 4 * 4096 * 64


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs_and_flops_equal_a_count_over_all_pairs(shape: AttentionShape) -> None:
    pairs = sum(sees(shape, q, k) for q in range(shape.queries) for k in range(shape.keys))
    assert visible_pairs(shape) == pairs
    assert attention_flops(shape) == 2 * pairs * shape.heads * (shape.head_dim + shape.values)


@pytest.mark.parametrize("blocks", [Blocks(1, 1), Blocks(4, 3), Blocks(16, 16)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiled_bytes_equal_a_count_over_all_blocks(shape: AttentionShape, blocks: Blocks) -> None:
    visited = 0
    for start in range(0, shape.queries, blocks.rows):
        rows = range(start, min(start + blocks.rows, shape.queries))
        for first in range(0, shape.keys, blocks.columns):
            columns = range(first, min(first + blocks.columns, shape.keys))
            visited += len(columns) * any(sees(shape, q, k) for q in rows for k in columns)
    seen = sum(any(sees(shape, q, k) for q in range(shape.queries)) for k in range(shape.keys))
    row = 2 * (shape.head_dim + shape.values)
    io = tiled_io(shape, blocks)
    assert io.read_k + io.read_v == shape.shared_heads * seen * row
    assert io.read_k + io.read_v + io.reread == shape.heads * visited * row


def test_causal_halves_the_work_and_a_window_makes_it_linear() -> None:
    n = 4096
    assert visible_pairs(replace(TEXTBOOK, causal=True)) == n * (n + 1) // 2
    window = AttentionShape(n, n, 64, causal=True, left=255)
    assert visible_pairs(window) == 256 * n - 255 * 256 // 2


def test_grouped_heads_share_keys_and_values() -> None:
    many = AttentionShape(128, 128, 64, heads=32)
    few = replace(many, kv_heads=8)
    for io in (standard_io, lambda s: tiled_io(s, Blocks(128, 64))):
        assert 4 * io(few).read_k == io(many).read_k
        assert io(few).read_q == io(many).read_q
    assert attention_flops(few) == attention_flops(many)


def test_decoding_sees_all_past_keys() -> None:
    assert visible_pairs(AttentionShape(1, 1000, 64, causal=True)) == 1000
    assert visible_pairs(AttentionShape(1, 1000, 64, causal=True, offset=0)) == 1


@pytest.mark.parametrize("empty", [AttentionShape(0, 5, 8), AttentionShape(5, 0, 8), AttentionShape(5, 5, 8, batch=0)], ids=str)
def test_empty_attention_moves_and_computes_nothing(empty: AttentionShape) -> None:
    assert visible_pairs(empty) * empty.batch == 0
    assert tiled_io(empty, Blocks(16, 16)).reread == 0
    assert standard_io(empty).scores == 0


@pytest.mark.parametrize(
    ("head_dim", "sram", "expected"), [(64, 49152, Blocks(64, 96)), (128, 101376, Blocks(99, 99)), (64, 166912, Blocks(64, 326))]
)
def test_block_sizes_follow_from_the_memory(head_dim: int, sram: int, expected: Blocks) -> None:
    blocks = block_sizes(head_dim, sram)
    assert blocks == expected
    assert 4 * blocks.columns * head_dim * 2 <= sram < 4 * (blocks.columns + 1) * head_dim * 2


def test_block_sizes_keep_to_a_limit() -> None:
    assert block_sizes(64, 10**6, limit=128) == Blocks(64, 128)


def test_memory_that_holds_no_row_is_refused() -> None:
    with pytest.raises(UsageError, match="sram_bytes must hold four rows of head_dim 128 x 2 bytes; got 1000"):
        block_sizes(128, 1000)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"queries": -1}, "queries must be at least 0; got -1"),
        ({"head_dim": 0}, "head_dim must be at least 1"),
        ({"heads": 6, "kv_heads": 4}, "heads must be a multiple of kv_heads, 4; got 6"),
    ],
)
def test_impossible_shapes_are_refused(sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        AttentionShape(**{"queries": 4, "keys": 4, "head_dim": 8, **sizes})
