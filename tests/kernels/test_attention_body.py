"""The reference body of Attention, run by ONNX Runtime without our library, against float64 numpy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnxfuse.custom_ops.attention.op import ATTENTION
from onnxfuse.op import DOMAIN, ONNX_TYPES, Instance
from tests.kernels.attention import UNLIMITED, Case, half_unit, random_case, reference
from tests.kernels.harness import Array

NAMES = {np.dtype(np.float32): "float", np.dtype(np.float16): "float16", np.dtype(ml_dtypes.bfloat16): "bfloat16", np.dtype(bool): "bool"}
FORMALS = ("q", "k", "v", "mask", "past_key", "past_value")


def run_body(inputs: dict[str, Array], attributes: dict[str, Any], opset: int, outputs: tuple[str, ...] = ("y",)) -> list[Array]:
    """Outputs of one Attention node whose body is all there is. bfloat16 goes in and out as float, cast in the graph."""
    types = {"T": NAMES[inputs["q"].dtype]} | ({"M": NAMES[inputs["mask"].dtype]} if "mask" in inputs else {})
    instance = Instance({**ATTENTION.attributes, **attributes}, frozenset(inputs), frozenset(outputs), types, opset)
    cast_in = [helper.make_node("Cast", [f"{n}_in"], [n], to=ONNX_TYPES[NAMES[x.dtype]]) for n, x in inputs.items()]
    node = helper.make_node(
        "Attention", [n if n in inputs else "" for n in FORMALS], [f"{o}_raw" for o in outputs], domain=DOMAIN, **attributes
    )
    cast_out = [helper.make_node("Cast", [f"{o}_raw"], [o], to=onnx.TensorProto.FLOAT) for o in outputs]
    feeds = {f"{n}_in": x if x.dtype == bool else x.astype(np.float32) for n, x in inputs.items()}
    is_flat = attributes.get("y_layout") == "BSE"
    graph = helper.make_graph(
        [*cast_in, node, *cast_out],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()],
        [helper.make_tensor_value_info(o, onnx.TensorProto.FLOAT, [None] * (3 if o == "y" and is_flat else 4)) for o in outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[ATTENTION.body(instance)], ir_version=10)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: list[Array] = session.run(None, feeds)
    return result


def lay_out(x: Array, layout: str) -> Array:
    """[batch, heads, seq, size] as `layout` has it."""
    if layout == "BSE":
        return np.reshape(x.transpose(0, 2, 1, 3), (x.shape[0], x.shape[2], -1))
    return np.ascontiguousarray(x.transpose(["BHSD".index(axis) for axis in layout]))


def check(case: Case, attributes: dict[str, Any], opset: int = 21, tolerance: float = 2e-6) -> None:
    """Run the case's body with the layouts that `attributes` name, heads given, and compare y and the presents."""
    attributes = {"q_num_heads": case.q.shape[1], "kv_num_heads": case.k.shape[1], "scale": case.scale, **attributes}
    inputs = {n: lay_out(getattr(case, n), attributes.get(f"{n}_layout", "BHSD")) for n in "qkv"}
    inputs |= {n: x for n in FORMALS[3:] if (x := getattr(case, n)) is not None}
    y, key, value = run_body(inputs, attributes, opset, ("y", "present_key", "present_value"))
    want = lay_out(reference(case), attributes.get("y_layout", "BHSD"))
    assert y.shape == want.shape
    assert np.array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_allclose(y, want, rtol=0, atol=tolerance * max(1, float(np.nanmax(np.abs(want), initial=0))))
    for present, past, current in ((key, case.past_key, case.k), (value, case.past_value, case.v)):
        whole = current if past is None else np.concatenate([past, current], 2)
        assert np.array_equal(present, whole.astype(np.float32))


@pytest.mark.parametrize("opset", range(11, 26))
def test_body_at_every_opset(opset: int) -> None:
    case = random_case(0, {"B": 2, "H": 4, "K": 2, "S": 5, "T": 7, "D": 6, "E": 3, "P": 2}, softcap=3.0, left=2, right=0, diagonal=4)
    case.mask = np.random.default_rng(1).random((5, 9)) > 0.3
    attributes = {"softcap": 3.0, "causal": 2, "window_left": 2, "zero_masked_rows": 1, "y_layout": "BSE", "mask_value": -math.inf}
    check(replace(case, zero_masked_rows=True), attributes, opset)


@pytest.mark.parametrize("layouts", [("BSHD", "BSHD", "BSHD", "BSHD"), ("BSE", "BSE", "BSE", "BSE"), ("BHSD", "BHDS", "BSE", "BSHD")])
@pytest.mark.parametrize("known", [True, False])
def test_body_in_every_layout(layouts: tuple[str, ...], known: bool) -> None:
    if not known and "BSE" in layouts:
        layouts = ("BSHD", "BHDS", "BSHD", "BSE")
    heads = {} if known else {"q_num_heads": 0, "kv_num_heads": 0}
    names = {f"{n}_layout": layout for n, layout in zip("qkvy", layouts, strict=True)}
    check(random_case(0, {"B": 2, "H": 6, "K": 3, "S": 5, "T": 4, "D": 8, "E": 2}), {**names, **heads})


MASKS = [(), (1,), (7,), (5, 1), (5, 7), (1, 1, 7), (3, 1, 1), (2, 1, 5, 7), (1, 3, 5, 7), (2, 3, 5, 7)]


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize("kind", ["-inf", "-3.4e38", "added"])
def test_body_with_masks_of_every_rank(shape: tuple[int, ...], kind: str) -> None:
    case = random_case(0, {"B": 2, "H": 3, "S": 5, "T": 7, "D": 4})
    values = np.asarray(np.random.default_rng(2).standard_normal(shape), np.float32)
    if kind == "added":
        check(replace(case, mask=values), {})
        return
    keep = np.asarray(values > 0)
    check(replace(case, mask=keep, mask_value=float(kind)), {"mask_value": float(kind)})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wide_mask", [False, True])
def test_body_in_sixteen_bits_is_rounded_once(dtype: Any, wide_mask: bool) -> None:
    case = random_case(0, {"B": 1, "H": 2, "S": 5, "T": 7, "D": 4, "P": 3}, dtype)
    case.mask = np.random.default_rng(3).standard_normal((5, 10)).astype(np.float32 if wide_mask else dtype)
    check(case, {"y_layout": "BSE"}, tolerance=half_unit(dtype))


def test_body_of_packed_projections() -> None:
    case = random_case(0, {"B": 2, "H": 6, "K": 2, "S": 5, "T": 5, "D": 4})
    packed = np.concatenate([lay_out(x, "BSE") for x in (case.q, case.k, case.v)], 2)
    attributes = {"packed": "qkv", "q_num_heads": 6, "kv_num_heads": 2, "scale": case.scale}
    (y,) = run_body({"q": packed}, attributes, 17)
    np.testing.assert_allclose(y, reference(case), atol=2e-6)


def test_default_scale_is_one_over_the_root_of_the_size() -> None:
    check(replace(random_case(0, {"S": 3, "T": 4, "D": 9}), scale=1 / 3), {"scale": math.inf})


@pytest.mark.parametrize("empty", ["B", "H", "S", "T", "D", "E"])
@pytest.mark.parametrize("opset", [13, 17])
def test_body_of_empty_sizes(empty: str, opset: int) -> None:
    shape = {"B": 2, "H": 2, "S": 3, "T": 4, "D": 5, "E": 6, empty: 0}
    check(random_case(0, shape), {"q_num_heads": 0, "kv_num_heads": 0} if empty == "H" else {}, opset)


def test_causal_and_windows_follow_their_diagonals() -> None:
    case = random_case(0, {"S": 4, "T": 9, "D": 4})
    check(replace(case, right=0), {"causal": 1})
    check(replace(case, right=0, diagonal=5), {"causal": 2})
    check(replace(case, left=1, right=2), {"window_left": 1, "window_right": 2})
    check(replace(case, left=1, right=0, diagonal=5), {"causal": 2, "window_left": 1, "window_right": 3})
    check(replace(case, left=UNLIMITED, right=2), {"window_right": 2})


def test_rows_of_minus_infinity_are_nan_or_zero() -> None:
    case = replace(random_case(0, {"S": 4, "T": 3, "D": 4}), mask=np.zeros((4, 3), bool))
    check(case, {})
    check(replace(case, zero_masked_rows=True), {"zero_masked_rows": 1})
