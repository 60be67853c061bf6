"""GatedLinear on a GPU: two products of the same rows side by side, one of them activated, multiplied before they leave the chip.

Arguments are named as in op.py, but columns counts those of y. x is [rows, depth], y is [rows, columns], both contiguous; weight has
strides along depth and columns, and the columns of the gate begin at gate_column, the others at up_column. Sums are float; float inputs
are multiplied as three products of tf32 parts each, which is as exact as float but for the last bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from onnxfuse.triton_functions import first_of_block, gelu, gelu_tanh, relu, sigmoid


@triton.jit
def _activated(x, activation, alpha):
    """The activation of this number, as the attribute's choices in op.cc."""
    if activation == 0:
        x = x * sigmoid(alpha * x)
    elif activation == 1:
        x = gelu(x)
    elif activation == 2:
        x = gelu_tanh(x)
    elif activation == 3:
        x = sigmoid(x)
    else:
        x = relu(x)
    return x


@triton.jit
def gated_linear(
    x, weight, bias, y, activation_alpha, rows, columns, depth, weight_depth, weight_column, gate_column, up_column, activation, has_bias,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """ROWS rows and COLUMNS columns of y. EVEN: depth is a multiple of DEPTH. FAR: strides of 2^24 or more."""
    first_row, first_column = first_of_block(tl.program_id(0), rows, columns, ROWS, COLUMNS)
    row, column, near = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    if FAR:
        row, column, near = row.to(tl.int64), column.to(tl.int64), near.to(tl.int64)
    near_row = tl.minimum(row, rows - 1 - first_row)  # those past the last do its work again
    x_at = x + first_row.to(tl.int64) * depth + near_row[:, None] * depth + near[None, :]
    within = column[None, :] * weight_column + near[:, None] * weight_depth
    gate_at = weight + (first_column + gate_column).to(tl.int64) * weight_column + within
    up_at = weight + (first_column + up_column).to(tl.int64) * weight_column + within
    wanted = (column < columns - first_column)[None, :]

    gate = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        if EVEN:
            a = tl.load(x_at)
            g = tl.load(gate_at, mask=wanted, other=0.0)
            u = tl.load(up_at, mask=wanted, other=0.0)
        else:
            fits = near < depth - start
            a = tl.load(x_at, mask=fits[None, :], other=0.0)
            g = tl.load(gate_at, mask=fits[:, None] & wanted, other=0.0)
            u = tl.load(up_at, mask=fits[:, None] & wanted, other=0.0)
        gate = tl.dot(a, g, gate, input_precision="tf32x3")
        up = tl.dot(a, u, up, input_precision="tf32x3")
        x_at += DEPTH
        gate_at += tl.cast(DEPTH, tl.int64) * weight_depth
        up_at += tl.cast(DEPTH, tl.int64) * weight_depth

    biased = column < tl.where(has_bias != 0, columns - first_column, 0)
    bias_at = bias + first_column + column
    gate += tl.load(bias_at + gate_column, mask=biased, other=0.0).to(tl.float32)[None, :]
    up += tl.load(bias_at + up_column, mask=biased, other=0.0).to(tl.float32)[None, :]
    inside = (row < rows - first_row)[:, None] & wanted
    place = first_row.to(tl.int64) * columns + first_column + row[:, None] * columns + column[None, :]
    tl.store(y + place, (_activated(gate, activation, activation_alpha) * up).to(y.dtype.element_ty), mask=inside)
