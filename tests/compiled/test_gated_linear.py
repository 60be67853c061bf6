"""The Triton kernels of GatedLinear against its body in float64, on the CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxfuse.case import Case
from onnxfuse.cost.occupancy import ceil_div
from onnxfuse.custom_ops.gated_linear.cases import CASES, make_case
from onnxfuse.custom_ops.gated_linear.op import GATED_LINEAR
from onnxfuse.triton_kernel import Kernel
from tests.compiled.client import At, Interpreter, choices, chosen, every_kernel
from tests.ops.harness import NARROW, assert_close, exact, feeds

KERNELS = every_kernel("GatedLinear")
ACTIVATIONS = choices("gated_linear", "activation")


def check(interpreter: Interpreter, case: Case, kind: str) -> str:
    """The name of the kernel that ran."""
    fed = feeds(GATED_LINEAR, case, kind)
    given = {name: array.astype(np.float16) if kind in NARROW else array for name, array in fed.items()}
    want = exact(GATED_LINEAR, case, kind)
    attributes = {**GATED_LINEAR.attributes, **case.attributes}
    depth, columns, width = given["x"].shape[-1], want["y"].shape[-1], given["x"].itemsize
    along = (1, depth) if attributes["trans_weight"] else (2 * columns, 1)
    starts = (0, columns) if attributes["gate_first"] else (columns, 0)
    values = {
        **{name: At(name, 0, width) if name in given else None for name in ("x", "weight", "bias")},
        "y": At("y", 0, width),
        "activation": ACTIVATIONS.index(str(attributes["activation"])),
        "activation_alpha": float(attributes["activation_alpha"]),
        "rows": math.prod(want["y"].shape[:-1]),
        "columns": columns,
        "depth": depth,
        **dict(zip(("weight_depth", "weight_column"), along, strict=True)),
        **dict(zip(("gate_column", "up_column"), starts, strict=True)),
        "has_bias": int("bias" in given),
    }
    y, name = np.full(want["y"].shape, np.nan, given["x"].dtype), ""
    if y.size:
        kernel = chosen(KERNELS, "tile", {"dtype": kind}, values)
        assert kernel is not None
        grid = ceil_div(values["rows"], kernel.tile["m"]) * ceil_div(columns, kernel.tile["n"])
        y, name = interpreter.run(kernel, grid, values, {**given, "y": y})["y"], kernel.name
    assert_close({"y": y}, want, GATED_LINEAR.tolerance[kind])
    return name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_use(interpreter: Interpreter, case: Case) -> None:
    check(interpreter, case, "float")


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.variant["dtype"] != "bfloat16"], ids=lambda kernel: kernel.name)
def test_every_kernel(interpreter: Interpreter, kernel: Kernel) -> None:
    """Each where the host takes it: rows more than a block or as few as it is for, and depth of whole steps or not."""
    transposed = int(kernel.constants.get("weight_depth") == 1)
    most = {c.name: c.max for c in kernel.conditions}.get("rows")
    rows = kernel.tile["m"] + 5 if most is None else 3
    depth, columns = (40, 72) if kernel.conditions else (37, 35)
    if kernel.constants["EVEN"]:
        depth = 2 * kernel.tile["k"]
    case = make_case((rows, depth), columns, bias=True, trans_weight=transposed, gate_first=transposed)
    assert check(interpreter, case, kernel.variant["dtype"]) == kernel.name
