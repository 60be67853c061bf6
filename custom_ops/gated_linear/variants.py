"""The kernels of kernel_triton.py that are built: types, sizes of blocks, and what must hold of a run for each."""

from __future__ import annotations

from itertools import product
from typing import Any

from onnxfuse.triton_kernel import BYTES, FARTHEST, POINTER_TYPES, Condition, Kernel
from onnxfuse.triton_product import UNITS, Blocks, form, lying

TYPES = ("float16", "bfloat16", "float")
POINTERS = ("x", "weight", "bias", "y")
INTEGERS = ("rows", "columns", "depth", "weight_depth", "weight_column", "gate_column", "up_column", "activation", "has_bias")
WIDE = (90, 100, 103)  # architectures whose products are taken from shared memory, which leaves registers for more sums


def kernels(arch: int) -> list[Kernel]:
    """All kernels for one architecture, 80 for sm_80."""
    found = []
    for dtype in TYPES:
        for rank, (unit, (most_rows, blocks)) in enumerate(product(UNITS, _blocks(arch, dtype))):
            found += [_fast(dtype, unit, blocks, most_rows, 2 * rank, even=True), _fast(dtype, unit, blocks, most_rows, 2 * rank + 1)]
        found.append(_kernel(f"gated_linear_{dtype}_any", dtype, Blocks(64, 32, 32, 4, 1), {"EVEN": False, "FAR": True}, (), 100))
    return found


def _fast(dtype: str, unit: str, blocks: Blocks, most_rows: int | None, rank: int, *, even: bool = False) -> Kernel:
    """For weights whose stride named `unit` is 1; most_rows: None for any number. even: for whole steps along depth."""
    lanes = 16 // BYTES[dtype]
    conditions = (
        *lying(dtype, unit, most_rows, POINTERS),
        *(Condition(name, align=lanes) for name in ("gate_column", "up_column")),
        Condition("depth", align=blocks.depth if even else lanes, max=FARTHEST),
    )
    name = f"gated_linear_{dtype}_{form(unit, most_rows)}{'' if even else '_ragged'}"
    constants = {unit: 1, "EVEN": even, "FAR": False}
    return _kernel(name, dtype, blocks, constants, conditions, rank)


def _kernel(name: str, dtype: str, blocks: Blocks, constants: dict[str, Any], conditions: tuple[Condition, ...], rank: int) -> Kernel:
    types = dict.fromkeys(POINTERS, POINTER_TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32") | {"activation_alpha": "fp32"}
    is_busy = dtype != "float" and bool(conditions) and blocks.rows >= 64
    return Kernel(
        name, "GatedLinear", "tile", "gated_linear", {"dtype": dtype}, types, {**constants, **blocks.constants}, blocks.tile, conditions,
        rank, blocks.warps, blocks.stages, is_busy,
    )  # fmt: skip


def _blocks(arch: int, dtype: str) -> list[tuple[int | None, Blocks]]:
    """Blocks for up to so many rows, the fewest first; each has two sums of its size."""
    if dtype == "float":
        return [(32, Blocks(32, 32, 32, 4, 3)), (None, Blocks(64, 32, 32, 4, 3))]
    wide = Blocks(128, 128 if arch in WIDE else 64, 64, 8, 3)
    return [(16, Blocks(16, 64, 64, 4, 4)), (None, wide)]
