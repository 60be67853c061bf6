"""Tile and fuse: the tile fits, is as large as halving allows, and producers join it while there is room."""

from __future__ import annotations

import random
from math import prod

import pytest

from onnxfuse.cost.devices import find, generic_cpu
from onnxfuse.cost.tiles import Buffer, choose_tile, onchip_bytes, tile_and_fuse
from onnxfuse.errors import UsageError

A, B, C = (Buffer(name, axes, 2) for name, axes in (("a", (0, 2)), ("b", (1, 2)), ("c", (0, 1))))


def test_space_that_fits_is_one_tile() -> None:
    tile = choose_tile((64, 64, 64), [A, B, C], 3 * 64 * 64 * 2)
    assert tile is not None
    assert (tile.sizes, tile.bytes, tile.utilisation) == ((64, 64, 64), 24576, 1.0)


def test_tile_of_a_product_is_cut_to_the_memory() -> None:
    a100 = onchip_bytes(find("a100"))
    tile = choose_tile((4096, 4096, 4096), [Buffer("a", (0, 2), 2, stages=3), Buffer("b", (1, 2), 2, stages=3), C], a100)
    assert tile is not None
    assert a100 / 4 < tile.bytes <= a100


def test_axis_that_is_whole_is_not_cut() -> None:
    tile = choose_tile((1000, 3000), [Buffer("x", (0, 1), 4)], 65536, whole=(1,))
    assert tile is not None
    assert tile.sizes == (4, 3000)
    assert choose_tile((1000, 30000), [Buffer("x", (0, 1), 4)], 65536, whole=(1,)) is None


def test_every_tile_fits_and_its_double_does_not() -> None:
    rng = random.Random(1)
    for _ in range(300):
        extent = [rng.randint(1, 3000) for _ in range(3)]
        buffers = [
            Buffer(str(i), tuple(rng.sample(range(3), rng.randint(1, 3))), rng.choice((1, 2, 4)), stages=rng.randint(1, 3))
            for i in range(3)
        ]
        capacity = rng.randint(64, 300000)
        tile = choose_tile(extent, buffers, capacity)
        assert tile is not None
        assert tile.bytes == sum(b.stages * b.element_bytes * prod(tile.sizes[a] for a in b.axes) for b in buffers) <= capacity
        assert all(1 <= size <= full for size, full in zip(tile.sizes, extent, strict=True))
        if tile.sizes != tuple(extent):
            wider = [min(2 * size, full) for size, full in zip(tile.sizes, extent, strict=True)]
            assert sum(b.bytes(wider) for b in buffers) > capacity


def test_producers_join_while_there_is_room() -> None:
    small, large = [Buffer("mask", (0, 1), 1)], [Buffer("wide", (0, 1), 64)]
    fusion = tile_and_fuse((128, 128), [C], {"mask": small, "wide": large, "bias": [Buffer("bias", (1,), 2)]}, 65536)
    assert fusion is not None
    assert fusion.fused == ("mask", "bias")
    assert fusion.refused == {"wide": "wide needs 1048576 bytes beside 49152 of 65536"}
    assert fusion.tile.bytes == 128 * 128 * 3 + 256
    assert fusion.recompute == 1.0


def test_halo_is_held_and_computed_again() -> None:
    halo = Buffer("window", (0, 1), 4, halo={0: 2, 1: 2})
    assert halo.bytes((8, 8)) == 4 * 100
    assert halo.recompute((8, 8)) == pytest.approx(100 / 64)
    fusion = tile_and_fuse((8, 8), [Buffer("y", (0, 1), 4)], {"conv": [halo]}, 10**6)
    assert fusion is not None
    assert "computed 1.56 times, more than 1.5" in fusion.refused["conv"]
    wide = tile_and_fuse((64, 64), [Buffer("y", (0, 1), 4)], {"conv": [halo]}, 10**6)
    assert wide is not None
    assert (wide.fused, wide.refused) == (("conv",), {})
    assert wide.recompute == pytest.approx(66**2 / 64**2)


def test_consumer_that_does_not_fit_fuses_nothing() -> None:
    assert tile_and_fuse((4, 4096), [Buffer("x", (1,), 4)], {}, 1024, whole=(1,)) is None


def test_level_is_shared_memory_or_a_cores_own_cache() -> None:
    assert onchip_bytes(find("h100")) == 227 * 1024
    assert onchip_bytes(generic_cpu()) == 2**19


def test_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"axes must lie in 0..1; got \[2\]"):
        choose_tile((4, 4), [A], 100)
