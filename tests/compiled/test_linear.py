"""The Triton kernels of Linear against its body in float64, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxfuse.case import Case
from onnxfuse.custom_ops.linear.cases import CASES, make_case
from onnxfuse.custom_ops.linear.op import LINEAR
from onnxfuse.triton_kernel import Kernel
from tests.compiled.client import Array, At, Interpreter, chosen, every_kernel
from tests.ops.harness import NARROW, assert_close, exact, feeds

KERNELS = every_kernel("Linear")
# As the attribute's choices in op.cc.
ACTIVATIONS = ("none", "relu", "leaky_relu", "clip", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "squared_relu",
               "hard_sigmoid")  # fmt: skip


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


def check(interpreter: Interpreter, case: Case, kind: str) -> str:
    """The name of the kernel that ran."""
    fed = feeds(LINEAR, case, kind)
    given = {name: array.astype(np.float16) if kind in NARROW else array for name, array in fed.items()}
    want = exact(LINEAR, case, kind)
    values = values_of(case, given)
    y, name = np.full(want["y"].shape, np.nan, given["x"].dtype), ""
    if y.size:
        kernel = chosen(KERNELS, "tile", {"dtype": kind}, values)
        assert kernel is not None
        grid = -(-values["rows"] // kernel.tile["m"]) * -(-values["columns"] // kernel.tile["n"])
        y, name = interpreter.run(kernel, grid, values, {**given, "y": y})["y"], kernel.name
    assert_close({"y": y}, want, LINEAR.tolerance[kind])
    return name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_use(interpreter: Interpreter, case: Case) -> None:
    check(interpreter, case, "float")


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.variant["dtype"] != "bfloat16"], ids=lambda kernel: kernel.name)
def test_every_kernel(interpreter: Interpreter, kernel: Kernel) -> None:
    """Each where the host takes it: rows more than a block or as few as it is for, and depth of whole steps or not."""
    transposed = kernel.constants.get("weight_depth") == 1
    most = {c.name: c.max for c in kernel.conditions}.get("rows")
    rows = kernel.tile["m"] + 5 if most is None else 3
    depth, columns = (40, 72) if kernel.conditions else (37, 70)
    if kernel.constants["EVEN"]:
        depth = 2 * kernel.tile["k"]
    case = make_case((rows, depth), columns, "bias", "residual", activation="gelu", trans_weight=int(transposed))
    assert check(interpreter, case, kernel.variant["dtype"]) == kernel.name
