"""Counts of ops that are matrix products at heart: MatMul, Gemm, Conv, Einsum, recurrent layers."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onnxfuse.cost.call import Call, Counter, make, table
from onnxfuse.cost.scalar import PRODUCT_STEP, scalar
from onnxfuse.cost.work import Gemm, Work
from onnxfuse.errors import ShapeError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def product(call: Call, gemm: Gemm, *, added: int = 0) -> Work:
    """A matrix product, and so many additions to its result."""
    made = make(call, "matmul", "Add" if added else "", added, elements=gemm.batch * gemm.m * gemm.n)
    around = gemm.batch * gemm.n * (gemm.k + gemm.m) if gemm.batch > 1 else 0  # nothing is packed ahead for activations
    parts = (*(made.parts if added else ()), *(((PRODUCT_STEP, around),) if around else ()))
    return replace(made, flops=gemm.flops + added, gemm_flops=gemm.flops, gemm=gemm, parts=parts)


def matmul(call: Call, second: int = 1) -> Work:
    """`second` is the input that holds the right-hand side. With one right-hand side for all, leading axes are rows too."""
    a, b = call.shape(0), call.shape(second)
    if call.number("transA") and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if call.number("transB") and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    k, m, n = call.axis(0, -1) if a == call.shape(0) else a[-1], (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    if k != (b[-2] if len(b) > 1 else b[-1] if b else -1):
        raise ShapeError(f"cost of {call.op} '{call.name}': inner sizes must be equal; got {list(a)} and {list(b)}")
    batch = prod(call.out) // (m * n) if m * n else 0
    return product(call, Gemm(1, m * batch, n, k) if len(b) <= 2 else Gemm(batch, m, n, k))


def quantized_matmul(call: Call) -> Work:
    """QLinearMatMul: the right-hand side comes after the scale and zero point of the left one."""
    return matmul(call, second=3)


def packed_matmul(call: Call) -> Work:
    """MatMulNBits: sizes are attributes, since the weight is packed."""
    k, n = call.number("K"), call.number("N")
    return product(call, Gemm(1, prod(call.out) // max(1, n), n, k))


def gemm(call: Call) -> Work:
    """Gemm: a bias is added to each result."""
    m, n = call.out
    k = call.axis(0, 0 if call.number("transA") else 1)
    return product(call, Gemm(1, m, n, k), added=m * n if call.has(2) else 0)


def conv(call: Call) -> Work:
    """[out channels of a group, in channels x kernel] times one column for each position; one channel a group is no product."""
    weight, out = call.shape(3 if call.op == "QLinearConv" else 1), call.out
    group = call.number("group", 1)
    bias = prod(out) if call.has(2) and call.op == "Conv" else 0
    if weight[1] == 1 and group == weight[0]:
        made = make(call, "reduction", "Mul", prod(out) * prod(weight[1:]), part="Conv:depthwise", elements=prod(out))
        return replace(made, flops=2 * prod(out) * prod(weight[1:]) + bias)
    return product(call, Gemm(out[0] * group, weight[0] // group, prod(out[2:]), prod(weight[1:])), added=bias)


def conv_transpose(call: Call) -> Work:
    """Every input position adds a kernel's worth of outputs."""
    x, weight = call.shape(0), call.shape(1)
    group = call.number("group", 1)
    return product(call, Gemm(x[0] * group, prod(weight[1:]), prod(x[2:]), x[1] // group))


def einsum(call: Call) -> Work:
    """Every index runs once: a product and a sum for each point of the joint index space."""
    left, arrow, right = call.text("equation").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for i, letters in enumerate(left.split(",")):
        sizes |= _named_sizes(call, i, letters, sizes)
    if not arrow:
        right = "".join(c for c in sizes if left.count(c) == 1)
    summed = prod(size for letter, size in sizes.items() if letter != "..." and letter not in right)
    return product(call, Gemm(1, prod(call.out), 1, summed))


def _named_sizes(call: Call, index: int, letters: str, known: dict[str, int]) -> dict[str, int]:
    shape = call.shape(index)
    before, dots, after = letters.partition("...")
    named = len(before) + len(after)
    if len(shape) < named or (len(shape) > named and not dots):
        raise ShapeError(f"cost of Einsum '{call.name}': operand {index} must have the axes {letters}; got shape {list(shape)}")
    sizes = dict(zip(before, shape, strict=False)) | dict(zip(after, shape[len(shape) - len(after) :], strict=True))
    middle = prod(shape[len(before) : len(shape) - len(after)])
    return {**sizes, "...": max(known.get("...", 1), middle)} if dots else sizes


def recurrent(call: Call) -> Work:
    """X [steps, batch, inputs], W [directions, gates x hidden, inputs], R [directions, gates x hidden, hidden]."""
    steps, batch, inputs = call.shape(0)
    directions, _, hidden = call.shape(2)
    gates = GATES[call.op]
    results = directions * steps * batch * hidden
    flops = 2 * results * gates * (inputs + hidden)
    made = make(call, "matmul", "Sigmoid", results * gates, elements=results)
    return replace(made, flops=flops + made.flops, gemm_flops=flops)


def transform(call: Call) -> Work:
    """DFT, STFT: 5 n log2 n for each transform of n points."""
    size = prod(call.out)
    points = max(2, call.out[-2] if len(call.out) > 1 else size)
    return make(call, "other", "Add", 5 * size * points.bit_length(), part=call.op, elements=size)


def determinant(call: Call) -> Work:
    """Elimination: n^3 / 3 products for each matrix."""
    n = call.axis(0, -1)
    return make(call, "other", "Mul", prod(call.out) * n**3 // 3, part=call.op)


def linear_attention(call: Call) -> Work:
    """A state of [key, value] elements a head, updated and read once for each position."""
    batch, length = call.shape(0)[0], call.shape(0)[-2]
    heads = call.number("q_num_heads", call.shape(0)[1] if len(call.shape(0)) == 4 else 1)
    width = call.axis(0, -1) if len(call.shape(0)) == 4 else call.axis(0, -1) // max(1, heads)
    return product(call, Gemm(batch * heads * length, width, width, 2))


def swiglu(call: Call) -> Work:
    """A sigmoid, and two products, for each output."""
    return replace(make(call, "pointwise", "Swish", prod(call.out)), flops=prod(call.out) * (scalar("Swish").flops + 1), live=2)


COUNTERS: dict[str, Counter] = {
    **table(matmul, "MatMul MatMulInteger FusedMatMul MatMulIntegerToFloat DynamicQuantizeMatMul TransposeMatMul"),
    **table(quantized_matmul, "QLinearMatMul"),
    **table(packed_matmul, "MatMulNBits MatMulBnb4 MatMulFpQ4"),
    **table(gemm, "Gemm FusedGemm"),
    **table(conv, "Conv ConvInteger QLinearConv FusedConv NhwcConv DeformConv CausalConvWithState"),
    **table(conv_transpose, "ConvTranspose"),
    **table(einsum, "Einsum"),
    **table(recurrent, "RNN GRU LSTM"),
    **table(transform, "DFT STFT"),
    **table(determinant, "Det"),
    **table(linear_attention, "LinearAttention"),
    **table(swiglu, "SwiGLU"),
}
