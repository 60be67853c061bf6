"""How a library's matrix product cuts its work: tiles, blocks, what is read again, and what padding costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.occupancy import ceil_div, round_up
from onnxfuse.cost.work import Gemm

TILE_ROWS = (16, 32, 64, 128)  # the smallest that holds all rows is taken
TILE_COLUMNS = 128
SHARED_TILE = 256  # rows or columns that are read together: two tiles side by side share what they load
SPLIT = 512  # the shortest part of k that a block takes alone, when there are too few tiles for all SMs
LOCKSTEP = 1024  # steps along k within which the blocks that run together stay: what they share must be held only that long
# major compute capability -> (rows a tile must have for full rate, part of it that smaller ones reach)
FULL_RATE = {8: (16, 0.5), 9: (64, 0.63), 10: (128, 0.5)}


@dataclass(frozen=True)
class GemmPlan:
    """One product on one GPU."""

    blocks: int
    padded_flops: int  # with rows and columns filled up to whole tiles
    rate: float  # part of the large product's rate that this tile reaches
    reread_elements: int  # read again after the first time
    hot_elements: int  # what the blocks that run together read again, which a cache must hold


def plan(gemm: Gemm, gpu: Gpu) -> GemmPlan:
    """How `gemm` runs on `gpu`."""
    tile = next((rows for rows in TILE_ROWS if rows >= gemm.m), TILE_ROWS[-1])
    tiles = max(1, gemm.batch * ceil_div(gemm.m, tile) * ceil_div(gemm.n, TILE_COLUMNS))
    split = max(1, min(ceil_div(gpu.sms, tiles), gemm.k // SPLIT))
    full_rows, derated = FULL_RATE.get(gpu.major, (0, 1.0))
    left = gemm.m * gemm.k * (ceil_div(gemm.n, SHARED_TILE) - 1)
    right = gemm.k * gemm.n * (ceil_div(gemm.m, SHARED_TILE) - 1)
    together = 2 * (isqrt(min(tiles, gpu.sms)) + 1) * TILE_COLUMNS * min(gemm.k, LOCKSTEP)
    return GemmPlan(
        blocks=tiles * split,
        padded_flops=2 * gemm.batch * round_up(gemm.m, tile) * round_up(gemm.n, TILE_COLUMNS) * gemm.k,
        rate=derated if tile < full_rows else 1.0,
        reread_elements=gemm.batch * max(0, left + right),
        hot_elements=min(together, gemm.batch * gemm.k * (gemm.m + gemm.n)),
    )
