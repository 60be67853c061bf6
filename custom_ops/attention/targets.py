"""Attention in other operators: MultiHeadAttention of com.microsoft, and the standard Attention of opset 23.

They differ from ours, and from each other, in rows that are masked throughout: MultiHeadAttention gives what adding
the mask gives (NaN for -inf), the standard one gives 0. ONNX Runtime takes its lowest number for -inf there, so a
mask that is to be finite is made of -1e30, which takes up any score just as well. Where rows that are masked
throughout are to be 0 in MultiHeadAttention, they get something to see: a value of zeros, with a mask of the lowest
number, which is nothing beside any other score.
"""

from __future__ import annotations

import math

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.custom_ops.attention.body import DEFAULT_SCALE
from onnxfuse.custom_ops.attention.laid import Laid, laid, steps
from onnxfuse.glue import apart, cast, choice, expanded, ints, joined, padded, shape_of, size, total, unsqueezed
from onnxfuse.graph import Value, constant_value
from onnxfuse.op import ONNX_TYPES, Attribute
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline
from onnxfuse.symbolic import Dim
from onnxfuse.target import Forms, GivenOperand, Use

LOW = -1e30  # scores vanish beside it
Operands = tuple[Laid, Laid, Laid]


def _contrib(use: Use) -> Call:
    _check(use)
    if use.number("softcap"):
        raise Decline(f"MultiHeadAttention must have no softcap; it is {use.number('softcap'):g}")
    if use.number("scale") == 0:
        raise Decline("the scale must not be 0, which MultiHeadAttention takes for the default")
    to_clear = _is_to_clear(use)
    q, k, v = _same_heads(use, with_nothing=to_clear)
    past = use.get("past_key"), use.get("past_value")
    if past != (None, None) and k.size != v.size:
        raise Decline(f"keys and values must have the same size beside a past in MultiHeadAttention; they have {k.size} and {v.size}")
    by_seq = _is_cached(use) or k.size != v.size or _transposes((k, v), "BSE") <= _transposes((k, v), "BHSD")
    mask = _added(use, q, laid(use, "k"), use.number("mask_value"), rank=4)
    if to_clear and mask is not None:
        mask = padded(mask, -1, _lowest(use))
    attributes: dict[str, Attribute] = {"num_heads": q.heads, **_scale(use)}
    if _causal(use, q, k):
        attributes["unidirectional"] = 1
    kv = [x.as_bse() if by_seq else x.as_bhsd() for x in (k, v)]
    call = use.contrib("MultiHeadAttention", q.as_bse(), *kv, None, None, mask, *past, **attributes)
    return call.giving(use.output("present_key"), use.output("present_value")).followed_by(*steps(use, "BSE", q, v.size))


def _is_to_clear(use: Use) -> bool:
    """Whether rows may be masked throughout and are to be 0: finite masks leave something of each row, and so does no mask."""
    mask = use.get("mask")
    if not use.attribute("zero_masked_rows") or mask is None:
        return False
    return mask.dtype != ONNX_TYPES["bool"] or use.number("mask_value") == -math.inf


def _lowest(use: Use) -> float:
    return float(np.finfo(tensor_dtype_to_np_dtype(use.match.root.dtype)).min)


def _same_heads(use: Use, *, with_nothing: bool) -> Operands:
    """Queries, keys and values, these repeated where several queries share them, and with one of zeros behind the last."""
    q, k, v = laid(use, "q"), laid(use, "k"), laid(use, "v")
    if with_nothing and _is_cached(use):
        raise Decline("past and present must not be needed where rows that are masked throughout are to be 0 in MultiHeadAttention")
    k, v = (k.with_nothing(), v.with_nothing()) if with_nothing else (k, v)
    if k.heads != q.heads and _is_cached(use):
        raise Decline(f"past and present must have as many heads as the queries in MultiHeadAttention; they are {k.heads} and {q.heads}")
    times = q.heads // k.heads
    return q, k.repeated(times, use.opset), v.repeated(times, use.opset)


def _is_cached(use: Use) -> bool:
    """Whether there is a past, or somebody needs the present."""
    return any(x is not None for x in (use.get("past_key"), use.output("present_key"), use.output("present_value")))


def _standard(use: Use) -> Call:
    _check(use)
    if not use.number("scale") > 0:
        raise Decline(f"the scale must be more than 0 for the standard Attention; it is {use.number('scale'):g}")
    if use.number("softcap") and (use.get("mask") is not None or use.attribute("causal")):
        raise Decline("beside a softcap there must be no mask: runtimes differ in which comes first")
    q, k, v = laid(use, "q"), laid(use, "k"), laid(use, "v")
    past = use.get("past_key"), use.get("past_value")
    mask = _zeroed(use, q, k) if use.attribute("zero_masked_rows") else _finite(use, q, k)
    attributes: dict[str, Attribute] = _scale(use)
    if use.number("softcap"):
        attributes["softcap"] = use.number("softcap")
    if _causal(use, q, k):
        attributes["is_causal"] = 1
    if use.type != "float":
        attributes["softmax_precision"] = ONNX_TYPES["float"]
    layout = _layout(use, (q, k, v))
    if layout == "BSE":
        attributes |= {"q_num_heads": q.heads, "kv_num_heads": k.heads}
    qkv = [x.as_bse() if layout == "BSE" else x.as_bhsd() for x in (q, k, v)]
    call = use.standard("Attention", *qkv, mask, *past, **attributes)
    return call.giving(use.output("present_key"), use.output("present_value")).followed_by(*steps(use, layout, q, v.size))


def _check(use: Use) -> None:
    """Raise Decline for what neither operator says."""
    if use.attribute("packed"):
        raise Decline("q, k and v must be three values, not one")
    if int(use.attribute("window_left")) >= 0 or int(use.attribute("window_right")) >= 0:
        raise Decline("there must be no sliding window: the operators of others have none, or another one")
    if use.get("sink") is not None:
        raise Decline("there must be no sinks: ONNX has none")
    if use.get("past_key") is not None and None in (use.output("present_key"), use.output("present_value")):
        raise Decline("beside a past both present keys and values must be needed: ONNX Runtime's operators take no past without")


def _scale(use: Use) -> dict[str, Attribute]:
    return {} if use.number("scale") == DEFAULT_SCALE else {"scale": use.number("scale")}


def _causal(use: Use, q: Laid, k: Laid) -> bool:
    """Whether queries see no later key. Raises Decline where the operators align them otherwise, or a mask could hide all that is left."""
    causal = int(use.attribute("causal"))
    if not causal:
        return False
    if use.get("mask") is not None:
        raise Decline("beside a causal mask there must be no other: what a row gives that both mask throughout differs")
    if q.seq != k.seq or (causal == 1 and use.get("past_key") is not None):
        raise Decline(f"a causal mask must be square for the operators of others; it has {q.seq} queries and {k.seq} keys")
    return True


def _transposes(operands: tuple[Laid, ...], layout: str) -> int:
    return sum(x.transposes(layout) for x in operands)


def _layout(use: Use, operands: Operands) -> str:
    """ "BSE" or "BHSD", whichever takes fewer transposes, with that of the result."""
    from_seq = _transposes(operands, "BSE") + (use.attribute("y_layout") == "BHSD")
    from_heads = _transposes(operands, "BHSD") + (use.attribute("y_layout") != "BHSD")
    return "BSE" if from_seq <= from_heads else "BHSD"


# ---- masks


def _zeroed(use: Use, q: Laid, k: Laid) -> GivenOperand | None:
    """The mask where rows that it masks throughout with -inf give 0."""
    mask = use.get("mask")
    if mask is not None and mask.dtype == ONNX_TYPES["bool"] and use.number("mask_value") == -math.inf:
        return _broadcast(use, _with_rank(use, mask, 2), q, k)
    return _added(use, q, k, max(use.number("mask_value"), LOW), rank=2)


def _finite(use: Use, q: Laid, k: Laid) -> GivenOperand | None:
    """The mask where rows that it masks throughout are no 0: of finite numbers, or a constant without such rows."""
    mask, dropped = use.get("mask"), use.number("mask_value")
    if mask is not None and not _is_safe(mask):
        if mask.dtype != ONNX_TYPES["bool"]:
            raise Decline("an added mask must be a constant that masks no row throughout: the standard Attention gives 0 for such a row")
        if dropped == -math.inf:
            raise Decline("rows that are masked throughout must be 0 for the standard Attention; here they are NaN")
        dropped = max(dropped, LOW)
    return _added(use, q, k, dropped, rank=2)


def _is_safe(mask: GivenOperand) -> bool:
    """Whether a mask is a constant that leaves something of each row."""
    held = constant_value(mask) if isinstance(mask, Value) else None
    if held is None or not held.size:
        return False
    return bool(held.any(-1).all()) if held.dtype == bool else bool((held.astype(np.float64).max(-1) > LOW).all())


def _added(use: Use, q: Laid, k: Laid, dropped: float, *, rank: int) -> GivenOperand | None:
    """The mask as numbers to add, of at least `rank` axes and as many queries and keys as there are. dropped: for a mask of bools."""
    mask = use.get("mask")
    if mask is None:
        return None
    dtype = use.match.root.dtype
    if use.type == "bfloat16" and (mask.dtype == ONNX_TYPES["bool"] or use.attribute("zero_masked_rows")):
        raise Decline("a mask must be one that is added as it is for bfloat16: ONNX Runtime lacks the kernels to make another")
    if mask.dtype == ONNX_TYPES["bool"]:
        _check_dropped(use, dropped)
        mask = choice(mask, dropped, dtype)
    elif mask.dtype != dtype:
        if use.type != "float":
            raise Decline(f"the mask must be of type {use.type}, as the queries are")
        mask = cast(mask, dtype)
    if use.attribute("zero_masked_rows") and use.operand("mask").dtype != ONNX_TYPES["bool"]:
        if use.type == "float16":
            raise Decline(
                "an added mask must be of float where rows that it masks throughout are 0: float16 has no room for two lowest numbers"
            )
        mask = apart(mask, LOW)
    return _broadcast(use, _with_rank(use, mask, rank), q, k)


def _check_dropped(use: Use, dropped: float) -> None:
    if dropped > LOW:
        raise Decline(f"masked scores must be -inf or the lowest number, so that adding is choosing; they are {dropped:g}")
    with np.errstate(over="ignore"):
        if math.isfinite(dropped) != bool(np.isfinite(np.array(dropped).astype(tensor_dtype_to_np_dtype(use.match.root.dtype)))):
            raise Decline(f"masked scores must be numbers of type {use.type}; they are {dropped:g}")


def _with_rank(use: Use, mask: GivenOperand, rank: int) -> GivenOperand:
    missing = rank - len(shape_of(mask))
    return unsqueezed(mask, range(missing), use.opset) if missing > 0 else mask


def _broadcast(use: Use, mask: GivenOperand, q: Laid, k: Laid) -> GivenOperand:
    """The mask repeated over queries and keys, which no runtime does itself, and over what may be anything."""
    past = use.get("past_key")
    keys: Dim = k.seq if past is None else shape_of(past)[2] + k.seq
    full = (q.batch, q.heads, q.seq, keys)[-len(shape_of(mask)) :]
    may_be_one = (True, True, False, False)[-len(full) :]
    fits = [own == all_ or (own == 1 and one) for own, all_, one in zip(shape_of(mask), full, may_be_one, strict=True)]
    if all(fits):
        return mask
    past_and_current = size(k.operand, k.seq_axis) if past is None else total(size(past, 2), size(k.operand, k.seq_axis))
    wanted = (size(q.operand, 0), ints(q.operand, q.heads), size(q.operand, q.seq_axis), past_and_current)[-len(full) :]
    to = joined([ints(q.operand, 1) if fit else w for fit, w in zip(fits, wanted, strict=True)])
    return expanded(mask, to, tuple(own if fit else all_ for own, all_, fit in zip(shape_of(mask), full, fits, strict=True)))


FORMS = Forms(contrib=_contrib, standard=_standard)
