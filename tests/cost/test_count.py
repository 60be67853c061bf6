"""FLOPs and bytes of single nodes, against what the op's definition says."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx.defs
import pytest

from onnxfuse.cost.attention_io import AttentionShape, visible_pairs
from onnxfuse.cost.count import COUNTERS, work
from onnxfuse.cost.scalar import SCALARS
from onnxfuse.cost.types import BITS, byte_size, type_name
from onnxfuse.cost.work import Gemm, fuse, repeat
from onnxfuse.errors import ShapeError, UsageError

# Ops whose cost hangs on their bodies or on strings: they are never part of a fusion.
UNCOUNTED = {
    *("If", "Loop", "Scan", "SequenceMap", "ImageDecoder", "NonMaxSuppression"),
    *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
}
STANDARD = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
SHAPE = (2, 3, 5)


def test_every_standard_op_has_a_counter() -> None:
    assert set(STANDARD) - set(COUNTERS) <= UNCOUNTED


@pytest.mark.parametrize("op", sorted(op for op in SCALARS if op in STANDARD and COUNTERS[op].__name__ == "pointwise"))
def test_pointwise_ops_read_and_write_once(op: str) -> None:
    made = work(op, [SHAPE, SHAPE], [SHAPE], "float16")
    assert (made.bytes_read, made.bytes_written) == (2 * 30 * 2, 30 * 2)
    assert made.flops == 30 * SCALARS[op].flops
    assert made.special == 30 * SCALARS[op].special
    assert (made.kind, made.elements, made.operands, made.launches) == ("pointwise", 30, 3, 1)


@pytest.mark.parametrize("op", ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Constant", "Dropout"])
def test_views_are_free(op: str) -> None:
    made = work(op, [SHAPE], [(6, 5)], "float")
    assert (made.bytes, made.flops, made.launches, made.kind) == (0, 0, 0, "layout")


@pytest.mark.parametrize(
    ("left", "right", "out", "gemm"),
    [
        ((4, 8), (8, 16), (4, 16), Gemm(1, 4, 16, 8)),
        ((2, 3, 4, 8), (8, 16), (2, 3, 4, 16), Gemm(1, 24, 16, 8)),
        ((2, 3, 4, 8), (2, 3, 8, 16), (2, 3, 4, 16), Gemm(6, 4, 16, 8)),
        ((1, 3, 4, 8), (2, 1, 8, 16), (2, 3, 4, 16), Gemm(6, 4, 16, 8)),
        ((8,), (8, 16), (16,), Gemm(1, 1, 16, 8)),
        ((4, 8), (8,), (4,), Gemm(1, 4, 1, 8)),
        ((8,), (8,), (), Gemm(1, 1, 1, 8)),
        ((0, 8), (8, 16), (0, 16), Gemm(1, 0, 16, 8)),
    ],
)
def test_matmul_counts_a_product_and_a_sum_for_each_term(left: Any, right: Any, out: Any, gemm: Gemm) -> None:
    made = work("MatMul", [left, right], [out], "float")
    assert made.gemm == gemm
    assert made.flops == made.gemm_flops == 2 * prod(out) * 8
    assert made.bytes == 4 * (prod(left) + prod(right) + prod(out))


def test_products_in_other_spellings_count_the_same() -> None:
    plain = work("MatMul", [(4, 8), (8, 16)], [(4, 16)], "float").gemm
    assert work("Gemm", [(4, 8), (8, 16)], [(4, 16)], "float").gemm == plain
    assert work("Gemm", [(8, 4), (16, 8)], [(4, 16)], "float", {"transA": 1, "transB": 1}).gemm == plain
    assert work("FusedMatMul", [(8, 4), (16, 8)], [(4, 16)], "float", {"transA": 1, "transB": 1}).gemm == plain
    assert work("Einsum", [(4, 8), (8, 16)], [(4, 16)], "float", {"equation": "ik,kj->ij"}).flops == 2 * 4 * 8 * 16
    assert work("Einsum", [(4, 8), (8, 16)], [(4, 16)], "float", {"equation": b"ik, kj"}).flops == 2 * 4 * 8 * 16


def test_gemm_adds_its_bias() -> None:
    made = work("Gemm", [(4, 8), (8, 16), (16,)], [(4, 16)], "float")
    assert (made.flops, made.gemm_flops) == (2 * 4 * 8 * 16 + 4 * 16, 2 * 4 * 8 * 16)


@pytest.mark.parametrize(
    ("equation", "shapes", "out", "flops"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 8), (2, 3, 7, 8)], (2, 3, 5, 7), 2 * 2 * 3 * 5 * 7 * 8),
        ("...ij,...jk->...ik", [(2, 3, 4, 8), (2, 3, 8, 5)], (2, 3, 4, 5), 2 * 6 * 4 * 5 * 8),
        ("ij->ji", [(3, 4)], (4, 3), 2 * 12),
        ("i,j->ij", [(3,), (4,)], (3, 4), 2 * 12),
    ],
)
def test_einsum_runs_over_the_joint_index_space(equation: str, shapes: Any, out: Any, flops: int) -> None:
    assert work("Einsum", shapes, [out], "float", {"equation": equation}).flops == flops


def test_conv_is_a_product_of_channels_and_kernel() -> None:
    made = work("Conv", [(2, 8, 10, 10), (16, 8, 3, 3), (16,)], [(2, 16, 8, 8)], "float")
    assert made.gemm_flops == 2 * (2 * 16 * 8 * 8) * (8 * 3 * 3)
    assert made.flops - made.gemm_flops == 2 * 16 * 8 * 8
    grouped = work("Conv", [(2, 8, 10, 10), (16, 4, 3, 3)], [(2, 16, 8, 8)], "float", {"group": 2})
    assert 2 * grouped.flops == made.gemm_flops


def test_depthwise_conv_is_no_product_but_counts_alike() -> None:
    made = work("Conv", [(1, 8, 10, 10), (8, 1, 3, 3)], [(1, 8, 8, 8)], "float", {"group": 8})
    assert (made.gemm_flops, made.flops) == (0, 2 * 8 * 8 * 8 * 9)
    assert made.parts == (("Conv:depthwise", 8 * 8 * 8 * 9),)


def test_recurrent_layers_count_their_gates() -> None:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        made = work(op, [(7, 2, 5), (1, gates * 6, 5), (1, gates * 6, 6)], [(7, 1, 2, 6)], "float")
        assert made.gemm_flops == 7 * 2 * gates * 2 * 6 * (5 + 6), op


@pytest.mark.parametrize(
    ("perm", "shape", "run"),
    [((0, 2, 1, 3), (2, 3, 4, 8), 32), ((0, 1, 3, 2), (2, 3, 4, 8), 4), ((1, 0), (3, 4), 4), ((2, 1, 0, 3), (1, 3, 4, 8), 32)],
)
def test_transpose_moves_every_byte_in_runs(perm: tuple[int, ...], shape: tuple[int, ...], run: int) -> None:
    made = work("Transpose", [shape], [tuple(shape[axis] for axis in perm)], "float", {"perm": perm})
    assert (made.bytes, made.run_bytes, made.flops) == (2 * 4 * prod(shape), run, 0)


@pytest.mark.parametrize(
    ("perm", "shape"), [((0, 2, 1, 3), (2, 1, 4, 8)), ((1, 0), (1, 9)), ((0, 1, 2), (2, 3, 4)), ((0, 2, 1, 3), (2, 5, 1, 8))]
)
def test_transpose_that_only_moves_ones_is_a_view(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert work("Transpose", [shape], [tuple(shape[axis] for axis in perm)], "float", {"perm": perm}).launches == 0


def test_transpose_without_perm_reverses() -> None:
    assert work("Transpose", [(3, 4)], [(4, 3)], "float").bytes == 2 * 48


def test_gather_reads_what_it_takes_and_not_the_table() -> None:
    made = work("Gather", [(50000, 768), (2, 5)], [(2, 5, 768)], ["float", "int64", "float"])
    assert (made.bytes_read, made.bytes_written) == (10 * 768 * 4 + 10 * 8, 10 * 768 * 4)


def test_data_movement_counts_what_moves() -> None:
    assert work("Slice", [(10, 8)], [(2, 8)], "float").bytes == 2 * 64
    assert work("Expand", [(1, 8)], [(10, 8)], "float").bytes == 32 + 320
    assert work("Concat", [(2, 8), (3, 8)], [(5, 8)], "float").bytes == 2 * 160
    assert work("Split", [(6, 8)], [(2, 8), (4, 8)], "float").bytes == 2 * 192
    assert work("ConstantOfShape", [(2,)], [(4, 8)], ["int64", "float"]).bytes == 128
    assert work("ScatterND", [(9, 8), (2, 1), (2, 8)], [(9, 8)], ["float", "int64", "float", "float"]).bytes == 288 + 16 + 64 + 288 + 64


def test_reductions_count_their_inputs() -> None:
    assert work("ReduceSum", [(4, 8), (1,)], [(4, 1)], ["float", "int64", "float"]).flops == 32
    softmax = work("Softmax", [(4, 8)], [(4, 8)], "float")
    assert (softmax.flops, softmax.special, softmax.bytes, softmax.kind) == (5 * 32, 32, 2 * 128, "reduction")
    assert work("LayerNormalization", [(4, 8), (8,), (8,)], [(4, 8)], "float").bytes == 2 * 128 + 2 * 32


def test_long_rows_are_read_twice() -> None:
    assert work("Softmax", [(4, 8192)], [(4, 8192)], "float").reread_bytes == 0
    assert work("Softmax", [(4, 8193)], [(4, 8193)], "float").reread_bytes == 4 * 8193 * 4


def test_variadic_ops_count_one_less_than_inputs() -> None:
    assert work("Sum", [SHAPE] * 4, [SHAPE], "float").flops == 3 * 30
    assert work("Max", [SHAPE], [SHAPE], "float").flops == 30


@pytest.mark.parametrize(("exponent", "flops", "special"), [(2.0, 1, 0), (3.0, 2, 0), (0.5, 1, 0), (2.5, 1, 1), (None, 1, 1)])
def test_pow_by_a_known_exponent_is_cheap(exponent: float | None, flops: int, special: int) -> None:
    made = work("Pow", [SHAPE, ()], [SHAPE], "float", values={} if exponent is None else {1: exponent})
    assert (made.flops, made.special) == (30 * flops, 30 * special)


def test_gelu_by_tanh_is_not_the_exact_one() -> None:
    exact, fast = (work("Gelu", [SHAPE], [SHAPE], "float", {"approximate": kind}) for kind in ("none", b"tanh"))
    assert (exact.parts[0][0], fast.parts[0][0]) == ("Gelu", "FastGelu")
    assert exact.flops < fast.flops


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_counts_visible_pairs_in_both_layouts(causal: int) -> None:
    shape = AttentionShape(5, 7, 8, batch=2, heads=4, kv_heads=2, causal=bool(causal), element_bytes=4)
    four = work("Attention", [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)], [(2, 4, 5, 8)], "float", {"is_causal": causal})
    names = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": causal}
    three = work("Attention", [(2, 5, 32), (2, 7, 16), (2, 7, 16)], [(2, 5, 32)], "float", names)
    assert four.gemm_flops == three.gemm_flops == 2 * 2 * 4 * visible_pairs(shape) * 16
    assert four.special == 2 * 4 * visible_pairs(shape)
    if not causal:
        assert four.bytes == three.bytes == 4 * 2 * (2 * 4 * 5 * 8 + 2 * 2 * 7 * 8)


def test_attention_reads_its_mask_and_past() -> None:
    bare = work("Attention", [(1, 4, 5, 8), (1, 4, 5, 8), (1, 4, 5, 8)], [(1, 4, 5, 8)], "float")
    past = [(1, 4, 3, 8)] * 2
    full = work(
        "Attention",
        [(1, 4, 5, 8), (1, 4, 5, 8), (1, 4, 5, 8), (5, 8), *past],
        [(1, 4, 5, 8), (1, 4, 8, 8), (1, 4, 8, 8)],
        "float",
    )
    assert full.bytes_read - bare.bytes_read == 4 * (2 * 4 * 3 * 8 + 5 * 8)
    assert full.bytes_written - bare.bytes_written == 4 * 2 * 4 * 8 * 8


def test_attention_of_onnx_runtime_counts_its_projection() -> None:
    made = work("Attention", [(2, 5, 32), (32, 96), (96,)], [(2, 5, 32)], "float", {"num_heads": 4}, domain="com.microsoft")
    assert made.gemm_flops == 2 * 2 * 5 * 32 * 96 + 2 * 2 * 4 * 5 * 5 * 16
    multi = work("MultiHeadAttention", [(2, 5, 32)] * 3, [(2, 5, 32)], "float", {"num_heads": 4}, domain="com.microsoft")
    assert multi.gemm_flops == 2 * 2 * 4 * 5 * 5 * 16
    assert ("Transpose", 4 * 2 * 5 * 32) in multi.parts
    grouped = work(
        "GroupQueryAttention",
        [(1, 1, 32), (1, 1, 16), (1, 1, 16), (1, 2, 9, 8), (1, 2, 9, 8)],
        [(1, 1, 32), (1, 2, 10, 8), (1, 2, 10, 8)],
        "float",
        {"num_heads": 4, "kv_num_heads": 2},
        domain="com.microsoft",
    )
    assert grouped.gemm_flops == 2 * 4 * 10 * 16


@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        ([(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)], {}),
        ([(2, 5, 4, 8), (2, 7, 2, 8), (2, 7, 2, 6)], {f"{name}_layout": "BSHD" for name in "qkv"}),
        ([(2, 5, 32), (2, 7, 16), (2, 7, 12)], {f"{name}_layout": "BSE" for name in "qkv"} | {"q_num_heads": 4, "kv_num_heads": 2}),
        ([(2, 4, 5, 8), (2, 2, 8, 7), (2, 2, 7, 6)], {"k_layout": "BHDS"}),
        ([(2, 4, 5, 8), (2, 2, 4, 8), (2, 2, 4, 6), None, (2, 2, 3, 8), (2, 2, 3, 6)], {}),
    ],
)
@pytest.mark.parametrize("causal", [0, 1, 2])
def test_our_attention_counts_the_same_in_every_layout(shapes: Any, attributes: dict[str, Any], causal: int) -> None:
    out = [(2, 4, 5, 6)]
    made = work("Attention", shapes, out, "float", {**attributes, "causal": causal}, domain="ai.onnxfuse")
    pairs = visible_pairs(AttentionShape(5, 7, 8, causal=causal > 0, offset=None if causal == 2 else 0))
    assert made.gemm_flops == 2 * 2 * 4 * pairs * (8 + 6)
    assert made.fused


def test_our_packed_attention_counts_three_tensors_in_one() -> None:
    made = work(
        "Attention", [(2, 5, 64)], [(2, 5, 32)], "float", {"packed": "qkv", "q_num_heads": 4, "kv_num_heads": 2}, domain="ai.onnxfuse"
    )
    assert (made.gemm_flops, made.bytes_read) == (2 * 2 * 4 * 5 * 5 * 16, 2 * 5 * 64 * 4)


def test_packed_weights_take_their_sizes_from_attributes() -> None:
    made = work(
        "MatMulNBits", [(1, 5, 64), (32, 2, 16), (64,)], [(1, 5, 32)], ["float", "uint8", "float", "float"], {"K": 64, "N": 32, "bits": 4}
    )
    assert made.gemm == Gemm(1, 5, 32, 64)
    assert made.bytes_read == 5 * 64 * 4 + 32 * 2 * 16 + 64 * 4


def test_unknown_op_counts_its_outputs() -> None:
    made = work("Frobnicate", [SHAPE, None], [SHAPE, (2,)], "double", domain="mine")
    assert (made.flops, made.bytes, made.kind, made.operands) == (32, 8 * (30 + 30 + 2), "other", 3)


def test_sizes_of_zero_and_rank_zero_count() -> None:
    assert work("Add", [(0, 5), (5,)], [(0, 5)], "float").flops == 0
    assert work("Add", [(), ()], [()], "float").flops == 1
    assert work("Softmax", [(0, 5)], [(0, 5)], "float").bytes == 0
    assert work("ReduceSum", [()], [()], "float").flops == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Add", [(2, -1)], [(2, 1)], "float"), "dims must be integers of at least 0; got .2, -1."),
        (("Add", [("batch", 2)], [(2, 2)], "float"), "Put sizes in for symbolic dims"),
        (("MatMul", [(4, 8), None], [(4, 16)], "float"), "input 1 must have a shape; got none"),
        (("MatMul", [(4, 8), (9, 16)], [(4, 16)], "float"), r"inner sizes must be equal; got \[4, 8\] and \[9, 16\]"),
        (("Add", [(2,), (2,)], [None], "float"), "output 0 must have a shape"),
        (("Add", [(2,), (2,)], [(2,)], ["float"]), "one for each of 3 inputs and outputs; got 1"),
        (("Einsum", [(2,)], [(2,)], "float", {"equation": "ij->i"}), r"must have the axes ij; got shape \[2\]"),
    ],
)
def test_bad_shapes_say_what_must_hold(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        work(*arguments)


@pytest.mark.parametrize(
    ("given", "name"),
    [(1, "float"), (10, "float16"), (16, "bfloat16"), ("float32", "float"), ("FLOAT16", "float16"), (np.dtype("int64").name, "int64")],
)
def test_types_are_known_by_number_and_name(given: int | str, name: str) -> None:
    assert type_name(given) == name


def test_every_onnx_type_has_a_size() -> None:
    names = {name.lower() for name, _ in onnx.TensorProto.DataType.items()} - {"undefined"}
    assert names <= set(BITS)
    assert (byte_size(3, "int4"), byte_size(3, "float16"), byte_size(0, "float")) == (2, 6, 0)


@pytest.mark.parametrize("wrong", [0, 99, "quaternion", True])
def test_types_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="is no ONNX tensor type"):
        type_name(wrong if wrong is not True else "true")


def test_fused_kernel_computes_all_and_moves_its_own_operands() -> None:
    parts = [
        work("Mul", [SHAPE, SHAPE], [SHAPE], "float"),
        work("Exp", [SHAPE], [SHAPE], "float"),
        work("Add", [SHAPE, SHAPE], [SHAPE], "float"),
    ]
    made = fuse("f", parts, bytes_read=360, bytes_written=120)
    assert (made.flops, made.special, made.bytes, made.nodes, made.operands) == (90, 30, 480, 3, 4)
    assert made.fused
    assert made.launches == 1


def test_fused_product_keeps_its_shape_and_those_of_the_same_rows_are_one() -> None:
    product = work("MatMul", [(4, 8), (8, 16)], [(4, 16)], "float")
    added = work("Add", [(4, 16), (16,)], [(4, 16)], "float")
    assert fuse("f", [product, added], bytes_read=1, bytes_written=1).gemm == product.gemm
    assert product.gemm is not None
    both = replace(product.gemm, n=2 * product.gemm.n)  # of the same rows: one product with the columns of both
    assert fuse("f", [product, added, product], bytes_read=1, bytes_written=1).gemm == both
    other = replace(product, gemm=replace(product.gemm, k=product.gemm.k + 1))
    assert fuse("f", [product, added, other], bytes_read=1, bytes_written=1).gemm is None
    assert fuse("f", [product, product], bytes_read=1, bytes_written=1, kind="attention").gemm is None


def test_fused_attention_is_laid_out_as_the_op_is() -> None:
    q, k, scores = (1, 4, 300, 8), (1, 4, 8, 500), (1, 4, 300, 500)
    parts = [
        work("MatMul", [q, k], [scores], "float"),
        work("Softmax", [scores], [scores], "float"),
        work("MatMul", [scores, (1, 4, 500, 8)], [q], "float"),
    ]
    op = work("Attention", [q, (1, 4, 500, 8), (1, 4, 500, 8)], [q], "float")
    made = fuse("f", parts, bytes_read=op.bytes_read, bytes_written=op.bytes_written, kind="attention")
    for name in ("flops", "special", "gemm_flops", "blocks", "reread_bytes", "sharers", "shared_bytes", "kind"):
        assert getattr(made, name) == getattr(op, name), name


def test_nothing_cannot_be_fused() -> None:
    with pytest.raises(UsageError, match="at least one part"):
        fuse("f", [], bytes_read=0, bytes_written=0)


def test_repeated_work_computes_more_and_moves_the_same() -> None:
    once = work("Exp", [SHAPE], [SHAPE], "float")
    thrice = repeat(once, 3)
    assert (thrice.flops, thrice.special, thrice.bytes, thrice.parts) == (90, 90, once.bytes, (("Exp", 90),))
