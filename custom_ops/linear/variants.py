"""The kernels of kernel_triton.py that are built: types, sizes of blocks, and what must hold of a run for each."""

from __future__ import annotations

from itertools import product
from typing import Any

from onnxfuse.triton_kernel import BYTES, FARTHEST, POINTER_TYPES, Condition, Kernel, Role
from onnxfuse.triton_product import UNITS, Blocks, form, lying

TYPES = ("float16", "bfloat16", "float")
POINTERS = ("x", "weight", "bias", "residual", "y")
INTEGERS = (
    "rows", "columns", "depth", "weight_depth", "weight_column", "activation", "has_bias", "has_residual", "residual_last",
    "splits", "split_depth",
)  # fmt: skip
MUCH_DEPTH = 2048  # with less, a block is done before its descriptors have paid
COMBINED = 1024  # elements of a block of `combine`


def kernels(arch: int) -> list[Kernel]:
    """All kernels for one architecture, 80 for sm_80."""
    found = []
    for dtype in TYPES:
        for rank, (unit, (most_rows, blocks)) in enumerate(product(UNITS, _blocks(dtype))):
            found += [_fast(dtype, unit, blocks, most_rows, 3 * rank, even=True), _fast(dtype, unit, blocks, most_rows, 3 * rank + 1)]
            found.append(_split(dtype, unit, most_rows, rank))
            if most_rows is None and dtype != "float" and arch == 90:
                found.append(_blockwise(dtype, unit, 3 * rank - 1))
        found += [_any(dtype), _combine(dtype)]
    return found


def _fast(dtype: str, unit: str, blocks: Blocks, most_rows: int | None, rank: int, *, even: bool = False) -> Kernel:
    """even: for whole steps along depth."""
    name = f"linear_{dtype}_{form(unit, most_rows)}{'' if even else '_ragged'}"
    conditions = (
        *lying(dtype, unit, most_rows, POINTERS),
        Condition("depth", align=blocks.depth if even else 16 // BYTES[dtype], max=FARTHEST),
    )
    constants = {unit: 1, "EVEN": even, "FAR": False}
    return _kernel(name, "tile", "linear", dtype, blocks, constants, conditions, rank, busy=dtype != "float" and blocks.rows >= 64)


def _blockwise(dtype: str, unit: str, rank: int) -> Kernel:
    """Many rows and much depth by tensor descriptors."""
    conditions = (*lying(dtype, unit, None, POINTERS), Condition("depth", align=16 // BYTES[dtype], min=MUCH_DEPTH, max=FARTHEST))
    constants = {unit: 1, "TRANSPOSED": unit == "weight_depth"}
    name, blocks = f"linear_{dtype}_{form(unit, None)}_blocks", dict(_blocks(dtype))[None]
    return _kernel(name, "tile", "linear_blocks", dtype, blocks, constants, conditions, rank, busy=True)


def _any(dtype: str) -> Kernel:
    """Takes everything, however it lies."""
    return _kernel(f"linear_{dtype}_any", "tile", "linear", dtype, Blocks(64, 64, 32, 4, 1), {"EVEN": False, "FAR": True}, (), 100)


def _split(dtype: str, unit: str, most_rows: int | None, rank: int) -> Kernel:
    """Sums over whole steps of a part of the depth. With many rows in smaller blocks: there are not enough of the others."""
    blocks = dict(_blocks(dtype))[most_rows] if most_rows is not None else Blocks(64, 64, 64 if dtype != "float" else 32, 4, 3)
    conditions = (*lying(dtype, unit, most_rows, ("x", "weight")), Condition("depth", align=blocks.depth, max=FARTHEST))
    return _kernel(f"linear_{dtype}_{form(unit, most_rows)}_split", "split", "split", dtype, blocks, {unit: 1}, conditions, rank)


def _combine(dtype: str) -> Kernel:
    types = _types(dtype)
    return Kernel(
        f"linear_{dtype}_combine", "Linear", "combine", "combine", {"dtype": dtype}, types, {"SIZE": COMBINED}, {"size": COMBINED}
    )


def _kernel(
    name: str,
    role: Role,
    function: str,
    dtype: str,
    blocks: Blocks,
    constants: dict[str, Any],
    conditions: tuple[Condition, ...],
    rank: int,
    *,
    busy: bool = False,
) -> Kernel:
    return Kernel(
        name, "Linear", role, function, {"dtype": dtype}, _types(dtype), {**constants, **blocks.constants}, blocks.tile, conditions, rank,
        blocks.warps, blocks.stages, busy,
    )  # fmt: skip


def _types(dtype: str) -> dict[str, str]:
    """Those of all arguments that a kernel may have."""
    types = dict.fromkeys(POINTERS, POINTER_TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32") | {"partial": "*fp32"}
    return types | dict.fromkeys(("alpha", "activation_alpha", "activation_beta"), "fp32")


def _blocks(dtype: str) -> list[tuple[int | None, Blocks]]:
    """Blocks for up to so many rows, the fewest first."""
    if dtype == "float":
        return [(32, Blocks(32, 64, 32, 4, 3)), (None, Blocks(64, 64, 32, 4, 3))]
    return [(16, Blocks(16, 64, 128, 4, 4)), (None, Blocks(128, 128, 64, 8, 3))]
