"""The Triton kernels of Linear against its body in float64, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from onnxfuse.case import Case
from onnxfuse.cost.occupancy import ceil_div
from onnxfuse.custom_ops.linear.cases import CASES, make_case
from onnxfuse.custom_ops.linear.op import LINEAR
from onnxfuse.triton_kernel import Kernel
from tests.compiled.client import Array, At, Interpreter, choices, chosen, every_kernel
from tests.ops.harness import NARROW, assert_close, exact, feeds

KERNELS = every_kernel("Linear")
NEWER = every_kernel("Linear", 90)
ACTIVATIONS = choices("linear", "activation")


def values_of(case: Case, given: Mapping[str, Array]) -> dict[str, Any]:
    attributes = {**LINEAR.attributes, **case.attributes}
    shape, width = given["x"].shape, given["x"].itemsize
    depth, columns = shape[-1], given["weight"].shape[0 if attributes["trans_weight"] else 1]
    along = (1, depth) if attributes["trans_weight"] else (columns, 1)
    return {
        **{name: At(name, 0, width) if name in given else None for name in ("x", "weight", "bias", "residual")},
        "y": At("y", 0, width),
        "alpha": float(attributes["alpha"]),
        "activation": ACTIVATIONS.index(str(attributes["activation"])),
        "activation_alpha": float(attributes["activation_alpha"]),
        "activation_beta": float(attributes["activation_beta"]),
        "rows": math.prod(shape[:-1]),
        "columns": columns,
        "depth": depth,
        **dict(zip(("weight_depth", "weight_column"), along, strict=True)),
        "has_bias": int("bias" in given),
        "has_residual": int("residual" in given),
        "residual_last": int(attributes["residual_last"]),
    }


def check(interpreter: Interpreter, case: Case, kind: str, *, splits: int = 1, kernels: Sequence[Kernel] = KERNELS) -> list[str]:
    """The names of the kernels that ran. splits: into how many parts the depth is split."""
    fed = feeds(LINEAR, case, kind)
    given = {name: array.astype(np.float16) if kind in NARROW else array for name, array in fed.items()}
    want = exact(LINEAR, case, kind)
    values = values_of(case, given)
    buffers = {**given, "y": np.full(want["y"].shape, np.nan, given["x"].dtype)}
    started = []
    for role in ("tile",) if splits == 1 else ("split", "combine"):
        kernel = chosen(kernels, role, {"dtype": kind}, values)
        assert kernel is not None
        if role == "split":
            values |= {"splits": splits, "split_depth": kernel.tile["k"] * ceil_div(ceil_div(values["depth"], splits), kernel.tile["k"])}
            buffers["partial"] = np.full((splits, values["rows"], values["columns"]), np.nan, np.float32)
            values["partial"] = At("partial")
        elements = values["rows"] * values["columns"]
        blocks = ceil_div(values["rows"], kernel.tile.get("m", 1)) * ceil_div(values["columns"], kernel.tile.get("n", 1)) * splits
        if elements:
            grid = ceil_div(elements, kernel.tile["size"]) if role == "combine" else blocks
            buffers = interpreter.run(kernel, grid, values, buffers)
            started.append(kernel.name)
    assert_close({"y": buffers["y"]}, want, LINEAR.tolerance[kind])
    return started


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_use(interpreter: Interpreter, case: Case) -> None:
    check(interpreter, case, "float")


def of_role(role: str, function: str, kernels: Sequence[Kernel] = KERNELS) -> list[Kernel]:
    """Not of bfloat16, which Triton's interpreter gets wrong."""
    return [k for k in kernels if k.variant["dtype"] != "bfloat16" and (k.role, k.function) == (role, function)]


def is_transposed(kernel: Kernel) -> int:
    return int(kernel.constants.get("weight_depth") == 1)


def most_rows(kernel: Kernel) -> int | None:
    return {c.name: c.max for c in kernel.conditions}.get("rows")


@pytest.mark.parametrize("kernel", of_role("tile", "linear"), ids=lambda kernel: kernel.name)
def test_every_kernel(interpreter: Interpreter, kernel: Kernel) -> None:
    """Each where the host takes it: rows more than a block or as few as it is for, and depth of whole steps or not."""
    rows = kernel.tile["m"] + 5 if most_rows(kernel) is None else 3
    depth, columns = (40, 72) if kernel.conditions else (37, 70)
    if kernel.constants["EVEN"]:
        depth = 2 * kernel.tile["k"]
    case = make_case((rows, depth), columns, "bias", "residual", activation="gelu", trans_weight=is_transposed(kernel))
    assert check(interpreter, case, kernel.variant["dtype"]) == [kernel.name]


@pytest.mark.parametrize("kernel", of_role("split", "split"), ids=lambda kernel: kernel.name)
def test_every_kernel_for_a_part_of_the_depth(interpreter: Interpreter, kernel: Kernel) -> None:
    """The last part is smaller than the others."""
    rows = kernel.tile["m"] + 5 if most_rows(kernel) is None else 3
    case = make_case((rows, 5 * kernel.tile["k"]), 72, "bias", "residual", activation="silu", trans_weight=is_transposed(kernel))
    dtype = kernel.variant["dtype"]
    assert check(interpreter, case, dtype, splits=3) == [kernel.name, f"linear_{dtype}_combine"]


@pytest.mark.parametrize("kernel", of_role("tile", "linear_blocks", NEWER), ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("depth", [2048, 2056])
def test_every_kernel_by_blocks(interpreter: Interpreter, kernel: Kernel, depth: int) -> None:
    case = make_case((kernel.tile["m"] + 5, depth), 136, "bias", "residual", activation="tanh", trans_weight=is_transposed(kernel))
    assert check(interpreter, case, kernel.variant["dtype"], kernels=NEWER) == [kernel.name]
