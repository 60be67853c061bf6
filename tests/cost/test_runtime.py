"""What ONNX Runtime fuses by itself is what a fusion competes with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxfuse.cost.count import work
from onnxfuse.cost.devices import find
from onnxfuse.cost.model import Model, fuse
from onnxfuse.cost.runtime import as_run
from onnxfuse.cost.work import Work

FULL, ROWS = (4, 64, 256), (4, 64, 1)


def nodes(text: str) -> list[Work]:
    """Nodes of those ops; a small letter at the end stands for a tensor of one number a row."""
    made = []
    for word in text.split():
        small = word.endswith("_r")
        op = word.removesuffix("_r")
        shape = ROWS if small else FULL
        made.append(work(op, [FULL if op == "ReduceMean" else shape], [ROWS if op == "ReduceMean" else shape], "float"))
    return made


SPELLINGS = {
    "Gelu": ["Div Erf Add Mul Mul", "Mul Div Erf Add Mul"],
    "BiasGelu": ["Add Div Erf Add Mul Mul"],
    "FastGelu": ["Pow Mul Add Mul Tanh Add Mul Mul", "Mul Pow Mul Add Mul Tanh Add Mul", "Add Pow Mul Add Mul Tanh Add Mul Mul"],
    "QuickGelu": ["Sigmoid Mul"],
    "LayerNormalization": [
        "ReduceMean Sub Pow ReduceMean Add_r Sqrt_r Div Mul Add",
        "ReduceMean Sub Sub Pow ReduceMean Add_r Sqrt_r Div Mul Add",
    ],
    "SimplifiedLayerNormalization": ["Pow ReduceMean Add_r Sqrt_r Div Mul", "Pow ReduceMean Add_r Sqrt_r Div_r Mul Mul"],
}
OTHERS = {
    "no pattern": "Mul Add Exp Neg",
    "gelu that multiplies by 1/sqrt(2)": "Mul Mul Erf Add Mul",
    "gelu by tanh that cubes by Mul": "Mul Mul Mul Add Mul Tanh Add Mul",
    "norm that squares by Mul": "ReduceMean Sub Mul ReduceMean Add_r Sqrt_r Div Mul Add",
    "norm without a scale": "ReduceMean Sub Pow ReduceMean Add_r Sqrt_r Div",
    "rms norm without a scale": "Pow ReduceMean Add_r Sqrt_r Div",
    "rms norm that divides 1 by the root, without a scale": "Pow ReduceMean Add_r Sqrt_r Div_r Mul",
    "rms norm by Reciprocal": "Pow ReduceMean Add_r Sqrt_r Reciprocal_r Mul Mul",
    "broken by another op": "Sigmoid Exp Mul",
    "nothing": "",
}


@pytest.mark.parametrize(("op", "text"), [(op, text) for op, texts in SPELLINGS.items() for text in texts])
def test_nodes_become_the_runtimes_kernel(op: str, text: str) -> None:
    (kernel,) = as_run(nodes(text))
    size = 4 * 4 * 64 * 256
    assert (kernel.op, kernel.nodes, kernel.fused) == (op, len(text.split()), False)
    assert kernel.parts == ((op, 4 * 64 * 256),)
    assert kernel.bytes_read == kernel.bytes_written == size


def test_views_and_casts_within_are_passed_over() -> None:
    assert [w.op for w in as_run(nodes("Div Reshape Erf Cast Add Mul Mul"))] == ["Reshape", "Cast", "Gelu"]


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())
def test_other_nodes_stay_as_they_are(text: str) -> None:
    before = nodes(text)
    assert as_run(before) == before


def test_nodes_around_the_kernel_stay_in_their_order() -> None:
    assert [w.op for w in as_run(nodes("Neg Div Erf Add Mul Mul Exp"))] == ["Neg", "Gelu", "Exp"]


def test_gate_stays_beside_the_activation() -> None:
    assert [w.op for w in as_run(nodes("Sigmoid Mul Mul"))] == ["QuickGelu", "Mul"]
    assert [w.op for w in as_run(nodes("Div Erf Add Mul Mul Mul"))] == ["Gelu", "Mul"]


def test_each_of_two_patterns_becomes_a_kernel() -> None:
    assert [w.op for w in as_run(nodes("Sigmoid Mul Div Erf Add Mul Mul"))] == ["QuickGelu", "Gelu"]


def test_price_competes_with_the_runtimes_kernel_and_says_so() -> None:
    before = nodes("Div Erf Add Mul Mul")
    size = 4 * 4 * 64 * 256
    fused = fuse("Gelu", before, bytes_read=size, bytes_written=size)
    cpu = find("cpu-generic")
    alone, beside = (Model(cpu, runtime_fuses=fuses).price(before, [fused]) for fuses in (False, True))
    assert alone.unfused_us > 1.5 * beside.unfused_us
    assert alone.saved_launches == 4
    assert beside.saved_launches == 0
    assert "ONNX Runtime itself makes one Gelu of 5 of the nodes" in beside.notes
    assert not any("itself" in note for note in alone.notes)


def norm(**changes: int) -> list[Work]:
    """A residual sum and the norm that reads it."""
    total = work("Add", [FULL, FULL], [FULL], "float")
    return [replace(total, **changes), work("LayerNormalization", [FULL, (256,), (256,)], [FULL], "float")]


def test_norm_takes_the_sum_that_it_alone_reads() -> None:
    (kernel,) = as_run(norm())
    assert (kernel.op, kernel.nodes) == ("SkipLayerNormalization", 2)
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * 4 * 64 * 256 * 4, 4 * 64 * 256 * 4)


def test_sum_stays_that_others_read_or_that_is_a_bias() -> None:
    assert [w.op for w in as_run(norm(readers=2))] == ["Add", "LayerNormalization"]
    assert [w.op for w in as_run(norm(bytes_read=4 * 64 * 256 * 4 + 1024))] == ["Add", "LayerNormalization"]


def test_norm_of_several_nodes_takes_the_sum_that_its_own_nodes_alone_read() -> None:
    pieces = nodes("ReduceMean Sub Pow ReduceMean Add_r Sqrt_r Div Mul Add")
    (kernel,) = as_run([norm(readers=2)[0], *pieces])
    assert (kernel.op, kernel.nodes) == ("SkipLayerNormalization", 10)
    assert [w.op for w in as_run([norm(readers=3)[0], *pieces])] == ["Add", "LayerNormalization"]


def test_sum_before_a_norm_is_not_its_shift() -> None:
    pieces = nodes("ReduceMean Sub Pow ReduceMean Add_r Sqrt_r Div Mul")
    assert [w.op for w in as_run([norm()[0], *pieces])] == ["Add", "ReduceMean", "Sub", "SimplifiedLayerNormalization"]


def scores(factor: tuple[int, ...] = (), **changes: int) -> list[Work]:
    """Attention's scores: the keys turned, a product, and its scale."""
    q, k, s = (1, 4, 64, 32), (1, 4, 32, 64), (1, 4, 64, 64)
    product = replace(work("MatMul", [q, k], [s], "float"), **changes)
    return [work("Transpose", [q], [k], "float", {"perm": [0, 1, 3, 2]}), product, work("Mul", [s, factor], [s], "float")]


def test_product_takes_its_scale_and_the_transpose_that_it_reads() -> None:
    (kernel,) = as_run(scores())
    assert (kernel.op, kernel.nodes, kernel.gemm_flops) == ("FusedMatMul", 3, 2 * 4 * 64 * 64 * 32)


def test_product_does_not_take_a_factor_that_is_no_number_or_the_last_step_of_what_others_read() -> None:
    assert [w.op for w in as_run(scores((64,)))] == ["FusedMatMul", "Mul"]
    assert [w.op for w in as_run(scores(readers=2))] == ["FusedMatMul", "Mul"]
    assert [w.op for w in as_run([scores()[1], *nodes("Exp Mul")])] == ["MatMul", "Exp", "Mul"]


def gemm(readers: int = 1) -> Work:
    return replace(work("Gemm", [(128, 64), (64, 32), (32,)], [(128, 32)], "float"), readers=readers)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu"])
def test_activation_goes_into_the_gemm_before_it(activation: str) -> None:
    product, behind = gemm(), work(activation, [(128, 32)], [(128, 32)], "float")
    (kernel,) = as_run([product, behind])
    assert (kernel.op, kernel.nodes, kernel.bytes, kernel.gemm_flops) == ("FusedGemm", 2, product.bytes, product.gemm_flops)
    assert (kernel.flops, kernel.parts) == (product.flops + behind.flops, (*product.parts, *behind.parts))


def test_activation_stays_apart_where_the_gemm_has_other_readers_or_is_none() -> None:
    behind = work("Relu", [(128, 32)], [(128, 32)], "float")
    matmul = work("MatMul", [(128, 64), (64, 32)], [(128, 32)], "float")
    for product in (gemm(readers=2), matmul):
        assert [k.op for k in as_run([product, behind])] == [product.op, "Relu"]
    gelu = work("Gelu", [(128, 32)], [(128, 32)], "float")
    assert [k.op for k in as_run([gemm(), gelu])] == ["Gemm", "Gelu"]
