"""What the kernels of several operators need, written in Triton: activations, and the order of blocks of a product.

Needs Triton, and only files named kernel_triton.py import it.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
GROUP = tl.constexpr(8)  # blocks of rows that take the same columns one after another, so that both stay in L2


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(-x * LOG2E))


@triton.jit
def tanh(x):
    """Exact near 0, where the quotient of exponentials loses digits: an odd polynomial takes over."""
    square = x * x
    small = x * (1.0 + square * (-0.33333333 + square * (0.13333333 + square * (-0.053968254 + square * 0.021869488))))
    large = 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)
    return tl.where(square < 0.0625, small, large)


@triton.jit
def relu(x):
    """NaN stays NaN."""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def first_of_block(block, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Row and column at which this block of a matrix begins."""
    row_tiles, column_tiles = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    first = block // (GROUP * column_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = block % (GROUP * column_tiles)
    return (first + within % height) * ROWS, (within // height) * COLUMNS
