"""Linear on a GPU: a product whose bias, residual and activation are applied before it leaves the chip.

Arguments are named as in op.py. x is [rows, depth], y and residual are [rows, columns], all contiguous; weight has strides along
depth and columns. Sums are float; float inputs are multiplied as three products of tf32 parts each, which is as exact as float
but for the last bits. The activation is a number at run time, as the attribute's in op.cc: the product is what takes the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import triton
import triton.language as tl

from onnxfuse.triton_kernel import BYTES, POINTER_TYPES, Condition, Kernel

LOG2E = tl.constexpr(1.4426950408889634)
GROUP = tl.constexpr(8)  # blocks of rows that take the same columns one after another, so that both stay in L2


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(-x * LOG2E))


@triton.jit
def _tanh(x):
    """Exact near 0, where the quotient of exponentials loses digits: an odd polynomial takes over."""
    square = x * x
    small = x * (1.0 + square * (-0.33333333 + square * (0.13333333 + square * (-0.053968254 + square * 0.021869488))))
    large = 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)
    return tl.where(square < 0.0625, small, large)


@triton.jit
def _activated(x, activation, a, b):
    """The activation of this number; those with parameters take a and b."""
    if activation == 1:
        x = tl.where(x < 0.0, 0.0, x)
    elif activation == 2:
        x = tl.where(x < 0.0, a * x, x)
    elif activation == 3:
        x = tl.where(x < a, a, x)
        x = tl.where(x > b, b, x)
    elif activation == 4:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif activation == 5:
        x = 0.5 * x * (1.0 + _tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif activation == 6:
        x = x * _sigmoid(a * x)
    elif activation == 7:
        x = _sigmoid(x)
    elif activation == 8:
        x = _tanh(x)
    elif activation == 9:
        x = x * _hard_sigmoid(x, 1.0 / 6.0, 0.5)
    elif activation == 10:
        x = tl.where(x < 0.0, 0.0, x)
        x = x * x
    elif activation == 11:
        x = _hard_sigmoid(x, a, b)
    return x


@triton.jit
def _hard_sigmoid(x, slope, offset):
    """Comparisons that a NaN passes."""
    x = x * slope + offset
    x = tl.where(x < 0.0, 0.0, x)
    return tl.where(x > 1.0, 1.0, x)


@triton.jit
def linear(
    x, weight, bias, residual, y, alpha, activation_alpha, activation_beta,
    rows, columns, depth, weight_depth, weight_column, activation, has_bias, has_residual, residual_last,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """ROWS rows and COLUMNS columns of y. EVEN: depth is a multiple of DEPTH. FAR: strides of 2^24 or more."""
    row_tiles, column_tiles = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    block = tl.program_id(0)
    first = block // (GROUP * column_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = block % (GROUP * column_tiles)
    first_row = (first + within % height) * ROWS
    first_column = (within // height) * COLUMNS
    row, column, near = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    if FAR:
        row, column, near = row.to(tl.int64), column.to(tl.int64), near.to(tl.int64)
    near_row = tl.minimum(row, rows - 1 - first_row)  # those past the last do its work again
    x_at = x + first_row.to(tl.int64) * depth + near_row[:, None] * depth + near[None, :]
    weight_at = weight + first_column.to(tl.int64) * weight_column + column[None, :] * weight_column + near[:, None] * weight_depth
    wanted = (column < columns - first_column)[None, :]

    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        if EVEN:
            a = tl.load(x_at)
            b = tl.load(weight_at, mask=wanted, other=0.0)
        else:
            a = tl.load(x_at, mask=(near < depth - start)[None, :], other=0.0)
            b = tl.load(weight_at, mask=(near < depth - start)[:, None] & wanted, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
        x_at += DEPTH
        weight_at += tl.cast(DEPTH, tl.int64) * weight_depth

    inside = (row < rows - first_row)[:, None] & (column < columns - first_column)[None, :]
    place = first_row.to(tl.int64) * columns + first_column + row[:, None] * columns + column[None, :]
    acc = acc * alpha
    if has_bias != 0:
        acc += tl.load(bias + first_column + column, mask=column < columns - first_column, other=0.0).to(tl.float32)[None, :]
    if (has_residual != 0) & (residual_last == 0):
        acc += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    acc = _activated(acc, activation, activation_alpha, activation_beta)
    if (has_residual != 0) & (residual_last != 0):
        acc += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + place, acc.to(y.dtype.element_ty), mask=inside)


TYPES = ("float16", "bfloat16", "float")
POINTERS = ("x", "weight", "bias", "residual", "y")
INTEGERS = (
    "rows", "columns", "depth", "weight_depth", "weight_column", "activation", "has_bias", "has_residual", "residual_last",
)  # fmt: skip
FARTHEST = (1 << 24) - 1  # elements from row to row, so that offsets within a block have 32 bits
UNITS = {"weight_column": "weight_depth", "weight_depth": "weight_column"}  # the stride that is 1, and the other


@dataclass(frozen=True)
class Blocks:
    """rows and columns of y that a block makes; depth: taken at a time; warps of a block; stages: steps on their way."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def kernels(arch: int) -> list[Kernel]:
    """All kernels for one architecture, 80 for sm_80."""
    found = []
    for dtype in TYPES:
        for rank, (unit, (most_rows, blocks)) in enumerate(product(UNITS, _blocks(arch, dtype))):
            found += [_fast(dtype, unit, blocks, most_rows, 2 * rank, even=True), _fast(dtype, unit, blocks, most_rows, 2 * rank + 1)]
        found.append(_any(dtype))
    return found


def _fast(dtype: str, unit: str, blocks: Blocks, most_rows: int | None, rank: int, *, even: bool = False) -> Kernel:
    """For weights whose stride named `unit` is 1; most_rows: None for any number. even: of whole steps along depth."""
    lanes = 16 // BYTES[dtype]
    conditions = [
        *(Condition(name, align=16) for name in POINTERS),
        *(Condition(name, align=lanes, max=FARTHEST) for name in ("columns", UNITS[unit])),
        Condition("depth", align=blocks.depth if even else lanes, max=FARTHEST),
        Condition(unit, equals=1),
    ]
    if most_rows is not None:
        conditions.append(Condition("rows", max=most_rows))
    kind = f"{'transposed' if unit == 'weight_depth' else 'plain'}{'' if most_rows is None else f'_{most_rows}'}{'' if even else '_ragged'}"
    return _kernel(f"linear_{dtype}_{kind}", dtype, blocks, {unit: 1, "EVEN": even, "FAR": False}, tuple(conditions), rank)


def _any(dtype: str) -> Kernel:
    """Takes everything, however it lies."""
    return _kernel(f"linear_{dtype}_any", dtype, Blocks(64, 64, 32, 4, 1), {"EVEN": False, "FAR": True}, (), rank=100)


def _kernel(name: str, dtype: str, blocks: Blocks, constants: dict[str, object], conditions: tuple[Condition, ...], rank: int) -> Kernel:
    types = dict.fromkeys(POINTERS, POINTER_TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32")
    types |= dict.fromkeys(("alpha", "activation_alpha", "activation_beta"), "fp32")
    sizes = {"ROWS": blocks.rows, "COLUMNS": blocks.columns, "DEPTH": blocks.depth}
    return Kernel(
        name,
        "Linear",
        "tile",
        "linear",
        {"dtype": dtype},
        types,
        {**constants, **sizes},
        {"m": blocks.rows, "n": blocks.columns, "k": blocks.depth},
        conditions,
        rank,
        blocks.warps,
        blocks.stages,
        busy=dtype != "float" and bool(conditions) and blocks.rows >= 64,
    )


def _blocks(arch: int, dtype: str) -> list[tuple[int | None, Blocks]]:
    """Blocks for up to so many rows, the fewest first."""
    if dtype == "float":
        return [(32, Blocks(32, 64, 32, 4, 3)), (None, Blocks(64, 64, 32, 4, 3))]
    return [(16, Blocks(16, 64, 128, 4, 4)), (None, Blocks(128, 128, 64, 8, 3))]
