"""softmax(scale q k' + mask) v -> Attention(q, k, v, mask): the score matrix is never written to memory.

Masks are added, or choose a constant where they are false; exporters guard rows that are masked throughout with
Where(IsNaN(p), 0, p). Heads split by Reshape and Transpose, repeated for grouped queries, and a past joined in front
become attributes and inputs of the op.
"""

import math

from onnxfuse.custom_ops.attention.op import ATTENTION
from onnxfuse.graph import Value
from onnxfuse.heads import Heads, operand, result_layout
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, Rule

q, k, v, mask, keep = Var("q"), Var("k"), Var("v"), Var("mask"), Var("keep")
scale, softcap, masked, layout = Scalar("scale"), Scalar("softcap"), Scalar("masked"), Scalar("layout")

plain = scale * op.MatMul(q, k)
capped = softcap * op.Tanh(plain)
scores = either(plain, capped)
probabilities = op.Softmax(either(scores + optional(mask), op.Where(keep, scores, masked)), axis=-1)
result = op.MatMul(either(op.NanToZero(probabilities).named("guard"), probabilities), v)


def build(match: Match) -> Call:
    queries = operand(match, match.term(q), "q")
    keys = operand(match, match.term(k), "k", transposed=True)
    values = operand(match, match.term(v), "v")
    _check(queries, keys, values)
    root_layout = result_layout(match.scalar(layout) if match.has(layout) else None)
    if "BSE" in (queries.layout, keys.layout, values.layout, root_layout) and not all(isinstance(h.heads, int) for h in (queries, keys)):
        raise Decline("the number of heads must be known")
    cap = match.scalar(softcap) if match.has(softcap) else 0.0
    call = ATTENTION(
        queries.value,
        keys.value,
        values.value,
        _mask(match),
        keys.past,
        values.past,
        q_num_heads=queries.heads if isinstance(queries.heads, int) else 0,
        kv_num_heads=keys.heads if isinstance(keys.heads, int) else 0,
        q_layout=queries.layout,
        k_layout=keys.layout,
        v_layout=values.layout,
        y_layout=root_layout,
        scale=match.scalar(scale) * (cap or 1.0),
        softcap=cap,
        mask_value=match.scalar(masked) if match.has(masked) else -math.inf,
        zero_masked_rows=int(match.has("guard")),
    )
    return call.giving(_needed(keys.present), _needed(values.present))


def _check(queries: Heads, keys: Heads, values: Heads) -> None:
    if keys.heads != values.heads:
        raise Decline(f"k and v must have as many heads as each other; they have {keys.heads} and {values.heads}")
    if (keys.past is None) != (values.past is None):
        raise Decline("k and v must both have a past, or neither")


def _mask(match: Match) -> Value | None:
    hole = keep if match.has(keep) else mask
    if not match.has(hole):
        return None
    value = match.value(hole)
    if value.rank is None or value.rank > 4:
        raise Decline(f"the mask must have at most 4 axes; '{value.name}' has {'unknown rank' if value.rank is None else value.rank}")
    return value


def _needed(present: Value | None) -> Value | None:
    """The joined keys or values, if they leave the model or somebody else reads them."""
    return present if present is not None and (present.is_output or present.captured or len(present.users) > 1) else None


RULE = Rule(before=either(op.View(result, layout=layout), result), after=build, kind="attention")
