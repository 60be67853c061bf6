"""The Triton kernels of Attention against its body in float64, on the CPU. bfloat16 is wrong in Triton's interpreter: not here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfuse.case import Case
from onnxfuse.custom_ops.attention.cases import CASES
from onnxfuse.custom_ops.attention.op import ATTENTION
from tests.compiled.attention import Host
from tests.compiled.client import Interpreter, every_kernel
from tests.ops.harness import NARROW, assert_close, exact, feeds

KINDS = ("float", "float16")
KERNELS = every_kernel("Attention")


@pytest.fixture(scope="module")
def host(interpreter: Interpreter) -> Host:
    return Host(interpreter, KERNELS)


def check(host: Host, case: Case, kind: str, *, is_split: bool = False) -> None:
    types = {"T": kind, **case.types}
    given = {name: _stored(array, types["M"] if name == "mask" else kind) for name, array in feeds(ATTENTION, case, kind).items()}
    want = exact(ATTENTION, case, kind)
    got = host.run(given, case.attributes, types, is_split=is_split)
    assert_close({name: got[name] for name in want}, want, ATTENTION.tolerance[kind])


def _stored(array: Any, kind: str) -> Any:
    """As the device holds it: a bool is a byte."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    return array.astype(np.float16) if kind in NARROW else array


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_use(host: Host, case: Case, kind: str) -> None:
    check(host, case, kind)
