"""Attention or MultiHeadAttention, an operator already -> Attention: ours, where it is faster.

Only what the operator says for sure is taken over. Runtimes disagree about the order of softcap and mask, about causal
attention beside a past, and about a row that an added mask leaves nothing of (by bools it is 0), so these stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx import TensorProto

from onnxfuse.custom_ops.attention.op import ATTENTION
from onnxfuse.glue import choice, number, unsqueezed
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.pattern import Call, Scalar, Var, op
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand, Rule

q, k, v, settings = Var("q"), Var("k"), Var("v"), Scalar("settings")
MICROSOFT = "com.microsoft"


def build(match: Match) -> Call:
    node = match.root.producer
    assert node is not None
    return FORMS[node.domain, node.op](node).giving(*(o if o is not None and _is_read(o) else None for o in node.outputs[1:3]))


def _standard(node: Node) -> Call:
    """ONNX's own, since opset 23."""
    mask, past = node.input(3), (node.input(4), node.input(5))
    causal, cap = int(node.attributes.get("is_causal", 0)), float(node.attributes.get("softcap", 0.0))
    _need(node.input(6) is None, "all keys must be used: nonpad_kv_seqlen must be absent")
    _need(len(node.outputs) < 4 or node.outputs[3] is None, "the scores must not be an output")
    _need(not (causal and past[0] is not None), "causal attention must have no past")
    _need(not (cap and mask is not None), "a softcap must have no mask beside it")
    bools = mask is not None and mask.dtype == TensorProto.BOOL
    _need(mask is None or bools or _leaves_some(mask), "an added mask must be a constant that leaves something of each row")
    heads = int(node.attributes.get("q_num_heads", 0)), int(node.attributes.get("kv_num_heads", 0))
    layouts = ["BSE" if v is not None and v.rank == 3 else "BHSD" for v in node.inputs[:3]]
    return ATTENTION(
        *node.inputs[:3],
        mask,
        *past,
        q_num_heads=heads[0],
        kv_num_heads=heads[1],
        q_layout=layouts[0],
        k_layout=layouts[1],
        v_layout=layouts[2],
        y_layout=layouts[0],
        scale=float(node.attributes.get("scale", math.inf)),
        causal=causal,
        softcap=cap,
        zero_masked_rows=int(bools),
    )


def _multi_head(node: Node) -> Call:
    """ONNX Runtime's, with q, k and v apart."""
    query, key, value, bias, padding, added = (node.input(i) for i in range(6))
    past = node.input(6), node.input(7)
    causal = int(node.attributes.get("unidirectional", 0))
    _need(node.input(8) is None, "there must be no past_sequence_length")
    _need(padding is None or not causal, "causal attention must have no key_padding_mask")
    _need(padding is None or added is None, "there must be a key_padding_mask or an attention_bias, not both")
    _need(query is not None and query.rank == 3 and key is not None and value is not None, "q, k and v must be apart")
    _need(bias is None or all(o is not None and o.rank == 3 for o in (query, key, value)), "with a bias, k and v must have 3 axes")
    _need(not causal or past[0] is not None or _same_rows(query, key), "causal attention must have as many queries as keys")
    operands: list[Operand] = [query, key, value]
    if bias is not None:
        operands = _biased([o for o in (query, key, value) if o is not None], bias)
    return ATTENTION(
        *operands,
        added if padding is None else _padded(node, padding),
        *past,
        q_num_heads=int(node.attributes["num_heads"]),
        q_layout="BSE",
        k_layout="BSE" if key is not None and key.rank == 3 else "BHSD",
        v_layout="BSE" if value is not None and value.rank == 3 else "BHSD",
        y_layout="BSE",
        scale=float(node.attributes.get("scale", 0.0)) or math.inf,
        causal=2 * causal,
    )


def _packed(node: Node) -> Call:
    """ONNX Runtime's, which projects x to q, k and v itself."""
    x, weight, bias = (node.input(i) for i in range(3))
    given = [name for name, i in (("past", 4), ("past_sequence_length", 6)) if node.input(i) is not None]
    padding, added = node.input(3), node.input(5)
    _need(padding is None or not node.attributes.get("unidirectional", 0), "causal attention must have no mask_index")
    _need(padding is None or added is None, "there must be a mask_index or an attention_bias, not both")
    _need(not given, f"there must be no {' and no '.join(given)}")
    sizes = node.attributes.get("qkv_hidden_sizes") or [1]
    _need(len(set(sizes)) == 1 and not node.attributes.get("do_rotary", 0), "q, k and v must have one size, and no rotation inside")
    _need(x is not None and x.shape is not None and weight is not None and weight.shape is not None, "the shapes must be known")
    assert x is not None and x.shape is not None and weight is not None and weight.shape is not None
    shape = (*x.shape[:-1], weight.shape[1])
    projected: Made = Made("MatMul", (x, weight), x.dtype, shape)
    if bias is not None:
        projected = Made("Add", (projected, bias), x.dtype, shape)
    return ATTENTION(
        projected,
        None,
        None,
        added if padding is None else _padded(node, padding),
        q_num_heads=int(node.attributes["num_heads"]),
        q_layout="BSE",
        y_layout="BSE",
        packed="qkv",
        scale=float(node.attributes.get("scale", 0.0)) or math.inf,
        causal=int(node.attributes.get("unidirectional", 0)),
    )


def _grouped(_: Node) -> Call:
    """ONNX Runtime's, for generation: keys are written into a cache that is longer than what is used of it."""
    raise Decline("the length of every sequence must be known; seqlens_k is given only when the model runs")


def _padded(node: Node, mask: Value) -> Made:
    """A mask over keys, [batch, keys], 0 for those to be passed over, as one to be added."""
    _need(mask.rank == 2, "the mask over keys must be [batch, keys]")
    low = float(node.attributes.get("mask_filter_value", -10000.0))
    dtype = node.outputs[0].dtype if node.outputs[0] is not None else mask.dtype
    kept = Made("Greater", (mask, number(mask, 0, mask.dtype)), TensorProto.BOOL, mask.shape)
    return choice(unsqueezed(kept, (1, 2), node.graph.opset), low, dtype)


FORMS: dict[tuple[str, str], Callable[[Node], Call]] = {
    ("", "Attention"): _standard,
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "Attention"): _packed,
    (MICROSOFT, "GroupQueryAttention"): _grouped,
}


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise Decline(what)


def _is_read(value: Value) -> bool:
    return bool(value.is_output or value.captured or value.users)


def _leaves_some(mask: Value) -> bool:
    """Whether it is known that no row is masked throughout."""
    array = constant_value(mask)
    return array is not None and bool((array > -1e4).any(-1).all())


def _same_rows(a: Value | None, b: Value | None) -> bool:
    if a is None or b is None or a.shape is None or b.shape is None:
        return False
    return bool(a.shape[1] == b.shape[1 if len(b.shape) == 3 else 2])


def _biased(operands: list[Value], bias: Value) -> list[Operand]:
    """Each with its part of the bias added."""
    held = constant_value(bias)
    _need(held is not None and all(isinstance((o.shape or ("?",))[-1], int) for o in operands), "the bias must be a constant")
    made: list[Operand] = []
    start = 0
    for operand in operands:
        size = (operand.shape or ())[-1]
        assert held is not None and isinstance(size, int)
        part = NewConstant(held[start : start + size], bias)
        made.append(Made("Add", (operand, part), operand.dtype, operand.shape))
        start += size
    return made


RULE = Rule(
    before=op.AttentionOperator(q, k, v, settings=settings),
    after=build,
    kind="attention",
    retargets=True,
    fires_on=[
        """<opset_import: ["" : 23]> g (float[b,3,s,4] q, float[b,3,t,4] k, float[b,3,t,6] v) => (float[b,3,s,6] y) {
            y = Attention <is_causal = 1> (q, k, v)
        }""",
        """<opset_import: ["" : 23]> g (float[2,5,24] q, float[2,7,12] k, float[2,7,12] v) => (float[2,5,24] y) {
            y = Attention <q_num_heads = 6, kv_num_heads = 3, scale = 0.25, softcap = 2.0> (q, k, v)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2,5,12] q, float[2,7,12] k, float[2,7,12] v, float[2,3,5,7] m) => (float[2,5,12] y)
        <float[36] b = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}> {
            y = com.microsoft.MultiHeadAttention <num_heads = 3> (q, k, v, b, , m)
        }""",
        """<opset_import: ["" : 23]>
        g (float[2,3,5,4] q, float[2,3,2,4] k, float[2,3,2,4] v, bool[2,1,5,4] m, float[2,3,2,4] pk, float[2,3,2,4] pv)
        => (float[2,3,5,4] y, float[2,3,4,4] nk, float[2,3,4,4] nv) {
            y, nk, nv = Attention(q, k, v, m, pk, pv)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]> g (float[2,5,2] x, float[12] b) => (float[2,5,4] y)
        <float[2,12] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}> {
            y = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (x, w, b)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]> g (float[b,5,2] x, float[12] b, int32[b,5] mask) => (float[b,5,4] y)
        <float[2,12] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}> {
            y = com.microsoft.Attention <num_heads = 2> (x, w, b, mask)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2,5,12] q, float[2,7,12] k, float[2,7,12] v, int32[2,7] mask) => (float[2,5,12] y) {
            y = com.microsoft.MultiHeadAttention <num_heads = 3, mask_filter_value = -1000.0> (q, k, v, , mask)
        }""",
    ],
    declines={
        "the length of every sequence must be known; seqlens_k is given only when the model runs": """
        <opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,5,12] q, float[1,5,12] k, float[1,5,12] v, int32[1] lengths, int32 total) => (float[1,5,12] y) {
            y = com.microsoft.GroupQueryAttention <num_heads = 3, kv_num_heads = 3> (q, k, v, , , lengths, total)
        }""",
        "an added mask must be a constant that leaves something of each row": """<opset_import: ["" : 23]>
        g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,1,5,7] m) => (float[2,3,5,4] y) { y = Attention(q, k, v, m) }""",
        "causal attention must have as many queries as keys": """<opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2,5,12] q, float[2,7,12] k, float[2,7,12] v) => (float[2,5,12] y) {
            y = com.microsoft.MultiHeadAttention <num_heads = 3, unidirectional = 1> (q, k, v)
        }""",
    },
)
