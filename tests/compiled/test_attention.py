"""The Triton kernels of Attention against its body in float64, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxfuse.case import Case
from onnxfuse.custom_ops.attention.cases import CASES, LOWEST, nothing_seen
from onnxfuse.custom_ops.attention.op import ATTENTION
from onnxfuse.op import Attribute
from onnxfuse.triton_kernel import Kernel
from tests.compiled.attention import Host
from tests.compiled.client import Interpreter, every_kernel
from tests.ops.harness import NARROW, assert_close, exact, feeds

KERNELS = every_kernel("Attention")
NEWER = every_kernel("Attention", 90)


def is_interpreted(kernel: Kernel) -> bool:
    """Not of bfloat16, which Triton's interpreter gets wrong."""
    return not {"bfloat16"} & set(kernel.variant.values())


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


def case_of(kernel: Kernel) -> Case:
    """One for which the host must take this kernel: ragged, fewer kv heads than heads, rows that see nothing."""
    size, value = _sizes(kernel)
    keys = 48 if kernel.name.endswith("_rows") else 53
    shapes = {"q": (1, 2, 5, size), "k": (1, 1, keys, size), "v": (1, 1, keys, value)}
    mask = kernel.variant["mask"]
    by_rows = kernel.constants["MASK_ROWS"]
    if mask != "none":
        shapes["mask"] = (1, 2, 5, keys) if by_rows else (1, 1, 1, keys)
    attributes: dict[str, Attribute] = {"causal": 2, "scale": -2.0 / size**0.5}
    if kernel.constants["GENERAL"]:
        attributes |= {"softcap": 3.0, "window_left": 20, "mask_value": -1e4}
    types = {} if mask == "none" else {"M": mask}
    values = nothing_seen if mask == "bool" and by_rows else None
    sink = {"sink": (2,)} if kernel.constants["SINK"] else {}
    return Case(shapes | sink, attributes, types, ("y",), values)


def _sizes(kernel: Kernel) -> tuple[int, int]:
    if kernel.constants["CHUNKED"]:
        return (264, 272) if kernel.conditions else (37, 131)
    head = int(kernel.tile["v"])
    return (head - 24 if head > 32 else 24, head - 48 if head > 64 else 16) if kernel.constants["PADDED"] else (head, head)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.role == "tile" and is_interpreted(k)], ids=lambda kernel: kernel.name)
def test_every_kernel_for_whole_rows(host: Host, kernel: Kernel) -> None:
    check(host, case_of(kernel), kernel.variant["dtype"])
    assert host.started == [kernel.name]


@pytest.mark.parametrize(
    "kernel", [k for k in NEWER if k.function == "attention_blocks" and is_interpreted(k)], ids=lambda kernel: kernel.name
)
@pytest.mark.parametrize("attributes", [{"causal": 2, "scale": -0.3}, {"zero_masked_rows": 1, "causal": 1}, {"scale": 0.0}], ids=str)
def test_every_kernel_by_blocks(interpreter: Interpreter, kernel: Kernel, attributes: dict[str, Attribute]) -> None:
    """More rows than a block, heads smaller than blocks."""
    host, head = Host(interpreter, NEWER), int(kernel.tile["v"])
    host.specialised = bool(kernel.constants["SPECIALISED"])
    for keys, size in ((1037, head), (1024, head - 24)):
        case = Case({"q": (1, 2, 131, size), "k": (1, 1, keys, size), "v": (1, 1, keys, head - 16)}, attributes)
        check(host, case, kernel.variant["dtype"])
        assert host.started == [kernel.name]


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.role == "split" and is_interpreted(k)], ids=lambda kernel: kernel.name)
def test_every_kernel_for_split_keys(host: Host, kernel: Kernel) -> None:
    mask, head = kernel.variant["mask"], int(kernel.tile["v"])
    shapes = {"q": (1, 4, 2, head - 8), "k": (1, 2, 90, head - 8), "v": (1, 2, 90, head - 16), "sink": (4,)}
    if mask != "none":
        shapes["mask"] = (1, 4, 2, 90)
    case = Case(shapes, {"causal": 2, "window_left": 70, "softcap": 2.0}, {} if mask == "none" else {"M": mask}, ("y",))
    check(host, case, kernel.variant["dtype"], is_split=True)
    assert host.started == [kernel.name, f"attention_{kernel.variant['dtype']}_combine"]


def test_split_rows_that_see_nothing_are_what_the_body_gives(host: Host) -> None:
    shapes = {"q": (1, 1, 3, 40), "k": (1, 1, 200, 40), "v": (1, 1, 200, 80), "mask": (1, 1, 3, 200)}
    for attributes in ({}, {"zero_masked_rows": 1}, {"mask_value": LOWEST}):
        check(host, Case(shapes, attributes, {"M": "bool"}, ("y",), nothing_seen), "float", is_split=True)


@pytest.mark.parametrize("layout", ["BHSD", "BSHD", "BSE", "packed"])
def test_new_keys_are_joined_from_any_layout_with_vectors(host: Host, layout: str) -> None:
    past = {"past_key": (2, 2, 5, 40), "past_value": (2, 2, 5, 40)}
    if layout == "packed":
        case = Case({"q": (2, 7, 240), **past}, {"packed": "qkv", "q_num_heads": 2, "kv_num_heads": 2, "causal": 2})
    else:
        shape = {"BHSD": (2, 2, 7, 40), "BSHD": (2, 7, 2, 40), "BSE": (2, 7, 80)}[layout]
        layouts = {f"{name}_layout": layout for name in "qkvy"}
        case = Case({**dict.fromkeys("qkv", shape), **past}, {**layouts, "q_num_heads": 2, "causal": 2})
    check(host, case, "float16")
    assert host.started == ["attention_float16_join", "attention_float16_join", "attention_float16_64_padded"]


@pytest.mark.parametrize(("shape", "kernel"), [((1, 2, 40, 37), "join_turned"), ((1, 2, 37, 21), "join_any")], ids=str)
def test_keys_whose_sizes_lie_apart_are_turned_first(host: Host, shape: tuple[int, ...], kernel: str) -> None:
    size, keys = shape[2:]
    case = Case({"q": (1, 2, 5, size), "k": shape, "v": (1, 2, keys, 16)}, {"k_layout": "BHDS", "causal": 2})
    check(host, case, "float16")
    assert host.started[0] == f"attention_float16_{kernel}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_use(host: Host, case: Case) -> None:
    check(host, case, "float")
