"""Attention: softmax(scale q k' + mask) v in one pass; the score matrix is never written to memory.

q, k, v and y lie as their layouts say: "BHSD" [batch, heads, seq, size], "BSHD" [batch, seq, heads, size], "BSE"
[batch, seq, heads*size]; k also "BHDS" [batch, heads, size, seq]. Inputs of 3 axes need q_num_heads, and kv_num_heads
where it differs; query head h uses key head h / (q_heads / kv_heads). packed="qkv": q is [batch, seq, (q_heads + 2
kv_heads) size], q then k then v, and k and v are absent. past_key and past_value, [batch, kv_heads, past, size], stand
before k and v; present_key and present_value are past and current joined, laid out like past.

    s = scale * q k'                              scale: inf stands for 1 / sqrt(size)
    s = softcap * tanh(s / softcap)               where softcap is not 0
    s = mask ? s : mask_value, or s + mask        for a bool mask, or any other; it broadcasts to [batch, q_heads, S, T]
    s = -inf  where  j > i + d (causal), j < i + d - window_left, j > i + d + window_right  (-1: no limit)
    y = softmax(s) v                              sink, [q_heads], is one more score of each row, one without a value

T counts past and current keys. d = 0, or T - S where causal is 2. A row that is NaN after the softmax, as one of -inf
alone is, stays NaN, or is 0 before it meets v where zero_masked_rows is 1. With no keys y is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from onnxfuse.custom_ops.attention.body import DEFAULT_SCALE, reference
from onnxfuse.op import Attribute, Op, Shape, show
from onnxfuse.symbolic import Dim

Shapes = Mapping[str, Shape]
Attributes = Mapping[str, Attribute]
LAYOUTS = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "BHDS": (0, 1, 3, 2)}  # where [batch, heads, seq, size] are
OF_OPERAND = {
    "q": ("BHSD", "BSHD", "BSE"),
    "k": ("BHSD", "BSHD", "BSE", "BHDS"),
    "v": ("BHSD", "BSHD", "BSE"),
    "y": ("BHSD", "BSHD", "BSE"),
}


def _output_shapes(shapes: Shapes, attributes: Attributes) -> dict[str, Shape]:
    q, k, v = _by_head(shapes, attributes)
    past = shapes["past_key"][2] if "past_key" in shapes else 0
    batch, heads, queries, size = q[0], q[1], q[2], v[3]
    by_layout: dict[str, Shape] = {
        "BHSD": (batch, heads, queries, size),
        "BSHD": (batch, queries, heads, size),
        "BSE": (batch, queries, heads * size),
    }
    return {
        "y": by_layout[str(attributes["y_layout"])],
        "present_key": (batch, k[1], past + k[2], k[3]),
        "present_value": (batch, k[1], past + v[2], size),
    }


def _by_head(shapes: Shapes, attributes: Attributes) -> tuple[Shape, Shape, Shape]:
    """q, k and v as [batch, heads, seq, size]."""
    q_heads = int(attributes["q_num_heads"])
    kv_heads = int(attributes["kv_num_heads"]) or q_heads
    if attributes["packed"]:
        batch, seq, row = shapes["q"]
        size = row // (q_heads + 2 * kv_heads)
        return (batch, q_heads, seq, size), (batch, kv_heads, seq, size), (batch, kv_heads, seq, size)
    q, k, v = (
        _heads_of(shapes[name], str(attributes[f"{name}_layout"]), heads)
        for name, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads))
    )
    return q, k, v


def _heads_of(shape: Shape, layout: str, heads: int) -> Shape:
    if layout == "BSE":
        return shape[0], heads, shape[1], shape[2] // heads
    return tuple(shape[axis] for axis in LAYOUTS[layout])


def _limits(shapes: Shapes, attributes: Attributes) -> str | None:
    checks: tuple[Callable[[Shapes, Attributes], str | None], ...] = (_bad_attribute, _bad_rank, _bad_size, _bad_past, _bad_mask, _bad_sink)
    return next(filter(None, (check(shapes, attributes) for check in checks)), None)


def _bad_attribute(shapes: Shapes, attributes: Attributes) -> str | None:
    for name, allowed in OF_OPERAND.items():
        if attributes[f"{name}_layout"] not in allowed:
            return f"{name}_layout must be {' or '.join(allowed)}; got {attributes[f'{name}_layout']}"
    if attributes["packed"] not in ("", "qkv"):
        return f'packed must be "" or "qkv"; got "{attributes["packed"]}"'
    if attributes["causal"] not in (0, 1, 2) or attributes["zero_masked_rows"] not in (0, 1):
        return f"causal must be 0, 1 or 2 and zero_masked_rows 0 or 1; got {attributes['causal']} and {attributes['zero_masked_rows']}"
    for name in ("window_left", "window_right"):
        if int(attributes[name]) < -1:
            return f"{name} must be at least -1; got {attributes[name]}"
    if float(attributes["softcap"]) < 0:
        return f"softcap must be at least 0; got {attributes['softcap']}"
    return _bad_heads(shapes, attributes)


def _bad_heads(shapes: Shapes, attributes: Attributes) -> str | None:
    q_heads, kv_heads = int(attributes["q_num_heads"]), int(attributes["kv_num_heads"])
    if q_heads < 0 or kv_heads < 0:
        return f"q_num_heads and kv_num_heads must be at least 0; got {q_heads} and {kv_heads}"
    if q_heads == 0 and (attributes["packed"] or "BSE" in [attributes[f"{name}_layout"] for name in "qkv"]):
        return "q_num_heads must be given where q, k or v has 3 axes"
    if q_heads and kv_heads and q_heads % kv_heads:
        return f"q_num_heads must be a multiple of kv_num_heads; got {q_heads} and {kv_heads}"
    return None


def _bad_rank(shapes: Shapes, attributes: Attributes) -> str | None:
    names = ("q",) if attributes["packed"] else ("q", "k", "v")
    for name in ("k", "v"):
        if (name in shapes) != (name in names):
            return f'{name} must be {"given" if name in names else "absent"} where packed is "{attributes["packed"]}"'
    for name in names:
        rank = 3 if attributes["packed"] or attributes[f"{name}_layout"] == "BSE" else 4
        if len(shapes[name]) != rank:
            return f"{name} must have {rank} axes; got {show(shapes[name])}"
    return _bad_row(shapes, attributes, names)


def _bad_row(shapes: Shapes, attributes: Attributes, names: Sequence[str]) -> str | None:
    """Rows of 3 axes must hold whole heads."""
    q_heads = int(attributes["q_num_heads"])
    kv_heads = int(attributes["kv_num_heads"]) or q_heads
    for name in names:
        heads = q_heads + 2 * kv_heads if attributes["packed"] else q_heads if name == "q" else kv_heads
        row = shapes[name][-1]
        if len(shapes[name]) == 3 and isinstance(row, int) and row % heads:
            return f"the last axis of {name} {show(shapes[name])} must be a multiple of its {heads} heads"
    return None


def _differ(a: Dim, b: Dim) -> bool:
    """Two sizes that are known and not the same."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def _bad_size(shapes: Shapes, attributes: Attributes) -> str | None:
    q, k, v = _by_head(shapes, attributes)
    shown = f"got q {show(q)}, k {show(k)}, v {show(v)} as [batch, heads, seq, size]"
    if _differ(q[0], k[0]) or _differ(q[0], v[0]):
        return f"q, k and v must have the same batch; {shown}"
    if _differ(k[1], v[1]) or _differ(k[2], v[2]):
        return f"k and v must have the same heads and seq; {shown}"
    if _differ(q[3], k[3]):
        return f"q and k must have the same size; {shown}"
    if isinstance(q[1], int) and isinstance(k[1], int) and (q[1] % k[1] if k[1] else q[1]):
        return f"the heads of q must be a multiple of those of k; {shown}"
    for name, own, heads in (
        ("q_num_heads", int(attributes["q_num_heads"]), q[1]),
        ("kv_num_heads", int(attributes["kv_num_heads"]), k[1]),
    ):
        if own and _differ(own, heads):
            return f"{name} must be the heads that there are; got {own} and {shown}"
    return None


def _bad_past(shapes: Shapes, attributes: Attributes) -> str | None:
    if ("past_key" in shapes) != ("past_value" in shapes):
        return "past_key and past_value must both be given, or neither"
    if "past_key" not in shapes:
        return None
    _, k, v = _by_head(shapes, attributes)
    seq = shapes["past_key"][2] if len(shapes["past_key"]) == 4 else 0
    for name, current in (("past_key", k), ("past_value", v)):
        wanted, got = (current[0], current[1], seq, current[3]), shapes[name]
        if len(got) != 4 or any(map(_differ, wanted, got)):
            return f"{name} must have the shape {show(wanted)}; got {show(got)}"
    return None


def _bad_mask(shapes: Shapes, attributes: Attributes) -> str | None:
    if "mask" not in shapes:
        return None
    q, k, _ = _by_head(shapes, attributes)
    past = shapes["past_key"][2] if "past_key" in shapes else 0
    full, mask = (q[0], q[1], q[2], past + k[2]), shapes["mask"]
    if len(mask) > 4 or any(own != 1 and _differ(own, wanted) for own, wanted in zip(reversed(mask), reversed(full), strict=False)):
        return f"mask must broadcast to {show(full)}; got {show(mask)}"
    return None


def _bad_sink(shapes: Shapes, attributes: Attributes) -> str | None:
    heads = _by_head(shapes, attributes)[0][1]
    if "sink" in shapes and (len(shapes["sink"]) != 1 or _differ(shapes["sink"][0], heads)):
        return f"sink must have a number for each of the {heads} heads of q; got {show(shapes['sink'])}"
    return None


ATTENTION = Op(
    signature=(
        "Attention(q: T, k: T?, v: T?, mask: M?, past_key: T?, past_value: T?, sink: T?) -> (y: T, present_key: T?, present_value: T?)"
    ),
    types={"T": ("float", "float16", "bfloat16"), "M": ("bool", "float", "float16", "bfloat16")},
    attributes={
        "q_num_heads": 0,
        "kv_num_heads": 0,
        "q_layout": "BHSD",
        "k_layout": "BHSD",
        "v_layout": "BHSD",
        "y_layout": "BHSD",
        "packed": "",
        "scale": DEFAULT_SCALE,
        "causal": 0,
        "window_left": -1,
        "window_right": -1,
        "softcap": 0.0,
        "mask_value": -math.inf,
        "zero_masked_rows": 0,
    },
    reference=reference,
    tolerance={"float": 3e-6, "float16": 1e-3, "bfloat16": 8e-3},
    output_shapes=_output_shapes,
    limits=_limits,
)
