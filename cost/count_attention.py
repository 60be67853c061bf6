"""Counts of attention ops: the standard one, ONNX Runtime's, and ours."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onnxfuse.cost.attention_io import AttentionShape, Blocks, attention_flops, tiled_io, visible_pairs
from onnxfuse.cost.call import Call, Counter, Shape, make
from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.types import BITS
from onnxfuse.cost.work import ATTENTION_ROWS, Work

BLOCKS = Blocks(rows=ATTENTION_ROWS, columns=64)  # of a typical kernel


def attention_work(
    name: str, shape: AttentionShape, dtype: str, *, extra_read: int = 0, extra_written: int = 0, fused: bool = False, op: str = "Attention"
) -> Work:
    """One attention kernel that keeps its scores on chip: products, one exp for each visible pair, and its own operands.

    extra_read: bytes of a mask or of anything else beside Q, K and V. extra_written: bytes beside the result.
    """
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    traffic = tiled_io(shape, BLOCKS)
    products = attention_flops(shape)
    sharers = -(-shape.queries // BLOCKS.rows)
    return Work(
        name=name,
        flops=products + pairs * scalar("Softmax").flops,
        special=pairs,
        bytes_read=traffic.read_q + traffic.read_k + traffic.read_v + extra_read,
        bytes_written=traffic.write_o + extra_written,
        kind="attention",
        elements=pairs,
        dtype=dtype,
        op=op,
        parts=(("Softmax", pairs),),
        gemm_flops=products,
        operands=4,
        fused=fused,
        rows=shape.batch * shape.heads * shape.queries,
        blocks=shape.batch * shape.heads * sharers,
        sharers=sharers,
        shared_bytes=shape.keys * (shape.head_dim + shape.values) * shape.element_bytes,
        reread_bytes=traffic.reread,
        live=3,
    )


def standard(call: Call) -> Work:
    """Attention of the standard domain: Q [b, h, s, d] or [b, s, h d], K and V alike, then mask, past keys and values."""
    heads, kv_heads = _heads(call, 0, "q_num_heads"), _heads(call, 1, "kv_num_heads")
    past = call.axis(4, -2) if call.has(4) else 0
    window = (call.number("left_window_size", -1), call.number("right_window_size", -1))
    shape = _shape(
        call,
        heads,
        kv_heads,
        past=past,
        causal=bool(call.number("is_causal")),
        left=window[0] if window[0] >= 0 else None,
        right=window[1] if window[1] >= 0 else None,
    )
    return _with_operands(call, shape, beside=(3,))


def multi_head(call: Call) -> Work:
    """MultiHeadAttention: query [b, s, h d], key and value, bias, masks at 4 and 5, past at 6 and 7.

    It brings what has three axes, the result too, into [b, h, s, d] and back.
    """
    heads = call.number("num_heads", 1)
    past = call.axis(6, -2) if call.has(6) else 0
    made = _with_operands(call, _shape(call, heads, heads, past=past, causal=bool(call.number("unidirectional"))), beside=(3, 4, 5))
    moved = prod(call.out) + sum(prod(call.shape(i)) for i in range(3) if call.has(i) and len(call.shape(i)) == 3)
    return replace(made, parts=(*made.parts, ("Transpose", moved)))


def grouped_query(call: Call) -> Work:
    """GroupQueryAttention: causal, with `kv_num_heads` heads of keys and values, past at 3 and 4."""
    heads = call.number("num_heads", 1)
    past = call.axis(3, -2) if call.has(3) else 0
    window = call.number("local_window_size", -1)
    left = window - 1 if window > 0 else None
    return _with_operands(call, _shape(call, heads, call.number("kv_num_heads", heads), past=past, causal=True, left=left), beside=())


def with_projection(call: Call) -> Work:
    """The Attention of com.microsoft: input [b, s, i] times weights [i, 3 h d], then attention over the result."""
    batch, length, inputs = call.shape(0)
    width = call.axis(1, -1)
    heads = call.number("num_heads", 1)
    head_dim = max(1, call.out[-1] // heads)
    shape = AttentionShape(
        length, length, head_dim, batch, heads, causal=bool(call.number("unidirectional")), element_bytes=BITS[call.dtype] // 8
    )
    made = attention_work(call.name, shape, call.dtype, op=call.op)
    projection = 2 * batch * length * inputs * width
    return replace(
        made,
        flops=made.flops + projection,
        gemm_flops=made.gemm_flops + projection,
        bytes_read=call.bytes_in,
        bytes_written=call.bytes_out,
    )


def ours(call: Call) -> Work:
    """Attention of ai.onnxfuse: q, k and v as their layouts say, then mask and past; causal 2 aligns the last positions."""
    heads = call.number("q_num_heads")
    kv_heads = call.number("kv_num_heads") or heads
    if call.text("packed"):
        batch, length, row = call.shape(0)
        size = row // (heads + 2 * kv_heads)
        q, k, v = [(batch, count, length, size) for count in (heads, kv_heads, kv_heads)]
    else:
        layouts = ((0, "q_layout", heads), (1, "k_layout", kv_heads), (2, "v_layout", kv_heads))
        q, k, v = [_by_head(call.shape(index), call.text(layout, "BHSD"), count) for index, layout, count in layouts]
    left, right = call.number("window_left", -1), call.number("window_right", -1)
    shape = AttentionShape(
        queries=q[2],
        keys=k[2] + (call.axis(4, 2) if call.has(4) else 0),
        head_dim=max(1, q[3]),
        batch=q[0],
        heads=q[1],
        kv_heads=k[1],
        value_dim=max(1, v[3]),
        causal=call.number("causal") > 0,
        left=left if left >= 0 else None,
        right=right if right >= 0 else None,
        offset=None if call.number("causal") == 2 else 0,
        element_bytes=BITS[call.dtype] // 8,
    )
    return _with_operands(call, shape, beside=(3,))


def _by_head(shape: Shape, layout: str, heads: int) -> tuple[int, int, int, int]:
    """The shape as [batch, heads, seq, size]."""
    if layout == "BSE":
        return shape[0], heads, shape[1], shape[2] // max(1, heads)
    batch, head, seq, size = (shape[layout.index(axis)] for axis in "BHSD")
    return batch, head, seq, size


def _heads(call: Call, index: int, attribute: str) -> int:
    shape = call.shape(index)
    return shape[1] if len(shape) == 4 else max(1, call.number(attribute, 1))


def _shape(
    call: Call, heads: int, kv_heads: int, *, past: int, causal: bool, left: int | None = None, right: int | None = None
) -> AttentionShape:
    """Sizes from Q, K and V in either layout; K and V absent stand for a packed Q."""
    q = call.shape(0)
    k = call.shape(1) if call.has(1) else q
    v = call.shape(2) if call.has(2) else k
    head_dim = call.out[-1] // heads if len(q) != 4 and not call.has(1) else q[-1] if len(q) == 4 else q[-1] // heads
    value_dim = v[-1] if len(v) == 4 else v[-1] // kv_heads if call.has(2) else head_dim
    return AttentionShape(
        queries=q[-2],
        keys=k[-2] + past,
        head_dim=max(1, head_dim),
        batch=q[0],
        heads=heads,
        kv_heads=kv_heads,
        value_dim=max(1, value_dim),
        causal=causal,
        left=left,
        right=right,
        element_bytes=BITS[call.dtype] // 8,
    )


def _with_operands(call: Call, shape: AttentionShape, beside: tuple[int, ...]) -> Work:
    """Present keys and values are written too; masks and biases are read."""
    extra_read = sum(call.bytes_of(i) for i in beside if call.has(i))
    main = call.bytes_of(len(call.inputs))
    return attention_work(
        call.name,
        shape,
        call.dtype,
        extra_read=extra_read,
        extra_written=call.bytes_out - main,
        fused=call.domain == "ai.onnxfuse",
        op=call.op,
    )


def rotary(call: Call) -> Work:
    """RotaryEmbedding: two products and a sum for each element, beside the two tables."""
    return make(call, "pointwise", "RotaryEmbedding", prod(call.out))


COUNTERS: dict[str, Counter] = {
    "Attention": standard,
    "com.microsoft:Attention": with_projection,
    "ai.onnxfuse:Attention": ours,
    "MultiHeadAttention": multi_head,
    "DecoderMaskedMultiHeadAttention": multi_head,
    "GroupQueryAttention": grouped_query,
    "RotaryEmbedding": rotary,
}
