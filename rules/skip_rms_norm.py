"""RMSNorm(x + skip [+ x_bias]) -> SkipRMSNorm: the sum is made once and kept for the next residual."""

from onnxfuse.custom_ops.skip_rms_norm.op import SKIP_RMS_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Match, Rule, affine, last_axis_vector, same_shape

x, skip, x_bias = Var("x"), Var("skip"), Var("x_bias", constant=True)
scale, axes, epsilon = Var("scale"), Scalar("axes"), Scalar("epsilon")


def build(match: Match) -> Call:
    data, weight, _, _ = affine(match, x, scale, None, match.scalar(axes), last_only=True)
    extra = match.value(x_bias) if match.has(x_bias) else None
    return SKIP_RMS_NORM(data, match.value(skip), weight, extra, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=op.RMSNormalization((x + skip + optional(x_bias)).named("sum"), axes=axes, epsilon=epsilon) * optional(scale),
    after=build,
    where=[same_shape(x, skip), last_axis_vector(x_bias, x)],
    outputs=["sum"],
    fires_on=[
        """g (float[2,4] x, float[2,4] skip) => (float[2,4] y) <float two = {2.0}, float eps = {0.000001}, float[4] w = {1, 2, 3, 4}> {
            s = Add(x, skip)  q = Pow(s, two)  v = ReduceMean <axes = [-1]> (q)  e = Add(v, eps)  r = Sqrt(e)  n = Div(s, r)  y = Mul(w, n)
        }""",
        """g (float[n,s,4] x, float[n,s,4] skip) => (float[n,s,4] y, float[n,s,4] z) <float eps = {0.00001}, float[4] w = {1, 2, 3, 4}> {
            s = Add(skip, x)  q = Mul(s, s)  v = ReduceMean <axes = [2]> (q)  e = Add(eps, v)  r = Sqrt(e)  i = Reciprocal(r)
            n = Mul(s, i)  y = Mul(n, w)  z = Neg(s)
        }""",
        """<opset_import: ["" : 23]> g (float[2,4] x, float[2,4] skip) => (float[2,4] y, float[2,4] s)
        <float[4] xb = {1, -1, 2, -2}, float[4] w = {1, 2, 3, 4}> {
            f = Add(xb, x)  s = Add(f, skip)  y = RMSNormalization <epsilon = 0.001> (s, w)
        }""",
    ],
    declines={
        "x and skip must have the same shape; they are [2,4] and [2,1]": """g (float[2,4] x, float[2,1] skip) => (float[2,4] y)
        <float eps = {0.000001}> {
            s = Add(x, skip)  q = Mul(s, s)  v = ReduceMean <axes = [1]> (q)  e = Add(v, eps)  r = Sqrt(e)  y = Div(s, r)
        }""",
        "'q' (Mul) must be read by nobody else; the graph's output reads it too": """
        g (float[2,4] x, float[2,4] skip) => (float[2,4] y, float[2,4] q) <float eps = {0.000001}> {
            s = Add(x, skip)  q = Mul(s, s)  v = ReduceMean <axes = [1]> (q)  e = Add(v, eps)  r = Sqrt(e)  y = Div(s, r)
        }""",
    },
)
