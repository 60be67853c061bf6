"""softmax(scale x + mask), or with a choice of what is masked -> MaskedSoftmax(x, mask): the scores are read and written once."""

import math

from onnxfuse.custom_ops.masked_softmax.op import MASKED_SOFTMAX
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Made, Match, Operand, Rule

x, mask, keep, drop = Var("x"), Var("mask"), Var("keep"), Var("drop")
scale, masked = Scalar("scale"), Scalar("masked")

scores = scale * x
chosen = either(op.Where(keep, scores, masked), op.Where(drop, masked, scores))
probabilities = op.Softmax(either(scores + optional(mask), chosen), axis=-1)


def build(match: Match) -> Call:
    data = match.value(x)
    mask_value = match.scalar(masked) if match.has(masked) else -math.inf
    if mask_value > 0 and math.isinf(mask_value):
        raise Decline("what is masked must be finite or -inf; it is inf")
    return MASKED_SOFTMAX(
        data,
        _mask(match),
        scale=match.scalar(scale),
        mask_value=mask_value,
        zero_masked_rows=int(match.has("guarded")),
    )


def _mask(match: Match) -> Operand:
    if match.has(drop):
        dropped = match.operand(drop)
        return Made("Not", (dropped,), dropped.dtype, dropped.shape)
    hole = keep if match.has(keep) else mask
    return match.operand(hole) if match.has(hole) else None


RULE = Rule(
    before=either(op.NanToZero(probabilities).named("guarded"), probabilities),
    after=build,
    fires_on=[
        """g (float[b,h,s,t] x, float[b,1,s,t] m) => (float[b,h,s,t] y) <float half = {0.5}> {
            c = Mul(x, half)  a = Add(m, c)  y = Softmax <axis = -1> (a)
        }""",
        """g (float[2,3,5,7] x, bool[5,7] m) => (float[2,3,5,7] y) <float low = {-10000}> {
            a = Where(m, x, low)  y = Softmax <axis = -1> (a)
        }""",
        """g (float[2,3,5,7] x, bool[2,1,1,7] m) => (float[2,3,5,7] y) <float low = {-3.4e38}, float four = {4}> {
            c = Div(x, four)  a = Where(m, low, c)  y = Softmax <axis = 3> (a)
        }""",
        """g (float[2,5,7] x, bool[2,5,7] m) => (float[2,5,7] y) <float zero = {0}> {
            low = Log(zero)  k = Not(m)  a = Where(k, low, x)  p = Softmax <axis = -1> (a)  n = IsNaN(p)  y = Where(n, zero, p)
        }""",
        """g (float[2,7] x, float[7] m) => (float[2,7] y) <int64[1] axis = {-1}> {
            a = Add(x, m)  t = ReduceMax <axes = [-1]> (a)  d = Sub(a, t)  e = Exp(d)  s = ReduceSum(e, axis)  y = Div(e, s)
        }""",
    ],
    declines={
        "'a' (Add) must be read by nobody else": """g (float[2,7] x, float[2,7] m) => (float[2,7] y, float[2,7] a) {
            a = Add(x, m)  y = Softmax <axis = -1> (a)
        }""",
        "mask must broadcast to x [7]; got [2,1]": """g (float[7] x, float[2,1] m) => (float[2,7] y) {
            a = Add(x, m)  y = Softmax <axis = -1> (a)
        }""",
    },
)
