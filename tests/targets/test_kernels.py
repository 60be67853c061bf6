"""The table of ONNX Runtime's kernels against what is installed, and of opsets against ONNX."""

from __future__ import annotations

import re
from typing import Any

import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnxfuse.kernels import CONTRIB, KERNELS, OWN_OF_RUNTIME, SINCE, WIDE, label, types_of

LATEST = max(SINCE.values())


def registered(domain: str, name: str) -> set[str]:
    """The types that the installed runtime has a CPU kernel of the operator for, at the newest opset."""
    found: set[str] = set()
    for kernel in state.get_all_opkernel_def():
        if (kernel.domain, kernel.op_name, kernel.provider) != (domain, name, "CPUExecutionProvider"):
            continue
        if domain or kernel.version_range[0] <= LATEST <= kernel.version_range[1]:
            found |= types_in(kernel.type_constraints)
    return found & set(WIDE)


def types_in(constraints: dict[str, Any]) -> set[str]:
    first = constraints.get("T", constraints.get("T1", ()))
    return {m[1] for t in first if (m := re.fullmatch(r"tensor\((\w+)\)", str(t)))}


@pytest.mark.parametrize("key", KERNELS)
def test_cpu_kernels_are_those_of_the_runtime(key: str) -> None:
    domain, _, name = key.rpartition(".")
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    have = registered(domain, name)
    assert set(types_of(domain, name, "cpu")) == have or version < (1, 32) and have < set(types_of(domain, name, "cpu"))


@pytest.mark.parametrize("key", KERNELS)
def test_an_entry_is_a_contrib_or_a_standard_operator(key: str) -> None:
    domain, _, name = key.rpartition(".")
    assert domain in ("", CONTRIB)
    assert domain == CONTRIB or name in OWN_OF_RUNTIME or name in SINCE
    assert label(domain, name) == key


@pytest.mark.parametrize("name", SINCE)
def test_an_operator_is_standard_since_its_opset(name: str) -> None:
    assert min(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == "") == SINCE[name]


def test_what_is_not_listed_has_no_kernel() -> None:
    assert types_of(CONTRIB, "GroupNorm", "cpu") == ()
    assert types_of(CONTRIB, "Gelu", "npu") == ()
