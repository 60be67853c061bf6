"""Shapes of matrix products, recurrences and attention."""

from __future__ import annotations

from collections.abc import Iterator

from onnxfuse.shape_facts import MICROSOFT, Call, Shape, broadcast_shapes, replaced, shape_rule
from onnxfuse.shape_ratio import Unknown
from onnxfuse.symbolic import Dim, divide


@shape_rule("MatMul", "MatMulInteger")
def _matmul(call: Call) -> Shape:
    return product_shape(call.shape(0, at_least=1), call.shape(1, at_least=1))


def product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a @ b as numpy has it: vectors lose their axis, leading axes broadcast."""
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return broadcast_shapes(a[:-2], b[:-2]) + rows + columns


@shape_rule("QLinearMatMul")
def _quantized_matmul(call: Call) -> Shape:
    return product_shape(call.shape(0, at_least=1), call.shape(3, at_least=1))


@shape_rule("MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain=MICROSOFT)
def _scaled_matmul(call: Call) -> Shape:
    return product_shape(call.shape(0, at_least=1), call.shape(1, at_least=1))


@shape_rule("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def _fused_matmul(call: Call) -> Shape:
    if call.integer("transBatchA", 0) or call.integer("transBatchB", 0):
        raise Unknown
    a, b = call.shape(0, at_least=1), call.shape(1, at_least=1)
    return product_shape(_flipped(a, call.integer("transA", 0)), _flipped(b, call.integer("transB", 0)))


def _flipped(x: Shape, flag: int) -> Shape:
    return (*x[:-2], x[-1], x[-2]) if flag and len(x) > 1 else x


@shape_rule("MatMulNBits", "MatMulBnb4", "MatMulFpQ4", domain=MICROSOFT)
def _packed_matmul(call: Call) -> Shape:
    return (*call.shape(0, at_least=1)[:-1], call.integer("N"))


@shape_rule("GemmFastGelu", domain=MICROSOFT)
def _matmul_gelu(call: Call) -> Shape:
    return product_shape(call.shape(0, at_least=1), call.shape(1, at_least=1))


@shape_rule("Gemm")
def _gemm(call: Call) -> Shape:
    a, b = call.shape(0, rank=2), call.shape(1, rank=2)
    return a[1 if call.integer("transA", 0) else 0], b[0 if call.integer("transB", 0) else 1]


shape_rule("FusedGemm", domain=MICROSOFT)(_gemm)


@shape_rule("QGemm", domain=MICROSOFT)
def _quantized_gemm(call: Call) -> Shape:
    a, b = call.shape(0, rank=2), call.shape(3, rank=2)
    return a[1 if call.integer("transA", 0) else 0], b[0 if call.integer("transB", 0) else 1]


@shape_rule("Einsum")
def _einsum(call: Call) -> Shape:
    left, arrow, right = call.text("equation", "").replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) != len(call.inputs):
        raise Unknown
    dims: dict[str, list[Dim]] = {}
    leading: Shape = ()
    for position, letters in enumerate(operands):
        leading = broadcast_shapes(leading, _label(letters, call.shape(position), dims))
    if not arrow:
        once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    return tuple(_einsum_dims(right, leading, dims))


def _label(letters: str, shape: Shape, dims: dict[str, list[Dim]]) -> Shape:
    """Note the sizes of the letters of one operand; returns the axes behind its ellipsis."""
    before, dots, after = letters.partition("...")
    hidden = len(shape) - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise Unknown
    for letter, dim in zip(before + after, shape[: len(before)] + shape[len(before) + hidden :], strict=True):
        dims.setdefault(letter, []).append(dim)
    return shape[len(before) : len(before) + hidden]


def _einsum_dims(right: str, leading: Shape, dims: dict[str, list[Dim]]) -> Iterator[Dim]:
    before, dots, after = right.partition("...")
    for letter in before + after:
        if letter not in dims:
            raise Unknown
    yield from (_einsum_size(dims[letter]) for letter in before)
    yield from leading if dots else ()
    yield from (_einsum_size(dims[letter]) for letter in after)


def _einsum_size(found: list[Dim]) -> Dim:
    """One letter, one size; ONNX Runtime lets an axis of 1 broadcast."""
    return broadcast_shapes(*((dim,) for dim in found))[0]


@shape_rule("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> list[Shape | None]:
    first, second, _ = call.shape(0, rank=3)
    directions, _, hidden = call.shape(2, rank=3)
    if call.integer("layout", 0) and call.opset >= 14:
        state: Shape = (first, directions, hidden)
        return [(first, second, directions, hidden), state, state]
    state = (directions, second, hidden)
    return [(first, directions, second, hidden), state, state]


@shape_rule("Attention")
def _attention(call: Call) -> list[Shape | None]:
    q, k, v = (call.shape(i) for i in range(3))
    batch, heads, rows, _ = _by_head(q, call.integer("q_num_heads", 0))
    _, groups, keys, size = _by_head(k, call.integer("kv_num_heads", 0))
    value_size = _by_head(v, call.integer("kv_num_heads", 0))[3]
    total = keys
    if call.has(4):
        total = call.shape(4, rank=4)[2] + keys
    y: Shape = (batch, heads, rows, value_size) if len(q) == 4 else (batch, rows, heads * value_size)
    return [y, (batch, groups, total, size), (batch, groups, total, value_size), (batch, heads, rows, total)]


def _by_head(x: Shape, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    """[batch, heads, rows, size] of an operand of rank 4, or of one of rank 3 whose last axis holds all heads."""
    if len(x) == 4:
        return x[0], x[1], x[2], x[3]
    if len(x) != 3 or heads < 1:
        raise Unknown
    return x[0], heads, x[1], x[2] // heads


@shape_rule("Attention", domain=MICROSOFT)
def _contrib_attention(call: Call) -> list[Shape | None]:
    batch, rows, _ = call.shape(0, rank=3)
    packed = call.shape(1, rank=2)[1]
    sizes = call.ints("qkv_hidden_sizes")
    third = divide(packed, 3)
    hidden: Dim | None = sizes[2] if sizes and len(sizes) == 3 else third
    return [None if hidden is None else (batch, rows, hidden)]


@shape_rule("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(call: Call) -> list[Shape | None]:
    q = call.shape(0)
    heads = call.integer("num_heads")
    if len(q) != 3 or heads < 1:
        raise Unknown  # packed projections, of rank 5
    batch, rows, hidden = q
    if not call.has(2):
        return [q]
    v = call.shape(2)
    width = v[2] if len(v) == 3 else v[1] * v[3] if len(v) == 4 else hidden
    return [(batch, rows, width)]


@shape_rule("GroupQueryAttention", "SparseAttention", domain=MICROSOFT)
def _group_query_attention(call: Call) -> list[Shape | None]:
    batch, rows, hidden = call.shape(0, rank=3)
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    if heads < 1 or groups < 1:
        raise Unknown
    size = hidden // (heads if call.has(2) else heads + 2 * groups)  # without a value input Q, K and V are packed
    present = [(batch, groups, call.fresh(2, output), size) for output in (1, 2)]  # as long as the buffer of the past
    return [(batch, rows, size * heads), *present]


@shape_rule("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_norm(call: Call) -> list[Shape | None]:
    batch, rows = call.shape(0, rank=2)
    shape = (batch, rows, call.shape(2, rank=2)[1])
    return [shape, (batch,), shape]


@shape_rule("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(call: Call) -> Shape:
    x = call.shape(0, rank=3)
    return replaced(x, 2, x[2] // 2)
