"""LayerNorm(x + skip [+ x_bias]) -> SkipLayerNorm: the sum is made once and kept for the next residual."""

from onnxfuse.custom_ops.skip_layer_norm.op import SKIP_LAYER_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Match, Rule, affine, last_axis_vector, same_shape

x, skip, x_bias = Var("x"), Var("skip"), Var("x_bias", constant=True)
scale, bias, axes, epsilon = Var("scale"), Var("bias"), Scalar("axes"), Scalar("epsilon")


def build(match: Match) -> Call:
    data, weight, shift, _ = affine(match, x, scale, bias, match.scalar(axes), last_only=True)
    extra = match.value(x_bias) if match.has(x_bias) else None
    return SKIP_LAYER_NORM(data, match.value(skip), weight, shift, extra, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=op.LayerNormalization((x + skip + optional(x_bias)).named("sum"), axes=axes, epsilon=epsilon) * optional(scale) + optional(bias),
    after=build,
    where=[same_shape(x, skip), last_axis_vector(x_bias, x)],
    outputs=["sum"],
    fires_on=[
        """g (float[2,4] x, float[2,4] skip) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}> {
            s = Add(x, skip)  y = LayerNormalization <epsilon = 0.001> (s, w, b)
        }""",
        """g (float[n,s,4] x, float[n,s,4] skip) => (float[n,s,4] y, float[n,s,4] s) <float[4] w = {1, 2, 3, 4}> {
            s = Add(skip, x)  y = LayerNormalization <axis = 2> (s, w)
        }""",
        """g (float[2,4] x, float[2,4] skip) => (float[2,4] y, float[2,4] z)
        <float[4] xb = {1, -1, 2, -2}, float[4] w = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}> {
            f = Add(x, xb)  s = Add(skip, f)  y = LayerNormalization(s, w, b)  z = Neg(s)
        }""",
        """g (float[2,4] x, float[2,4] skip) => (float[2,4] y) <float two = {2.0}, float eps = {0.00001}> {
            s = Add(x, skip)  m = ReduceMean <axes = [1]> (s)  d = Sub(s, m)  q = Pow(d, two)  v = ReduceMean <axes = [1]> (q)
            e = Add(v, eps)  r = Sqrt(e)  y = Div(d, r)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]> g (float[1,2,4] x, float[1,2,4] skip) => (float[1,2,4] y)
        <float[4] w = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}> {
            s = Add(x, skip)  n = LayerNormalization(s, w)  y = Add(b, n)
        }""",
    ],
    declines={
        "x and skip must have the same shape; they are [2,4] and [4]": """
        g (float[2,4] x, float[4] skip) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> {
            s = Add(x, skip)  y = LayerNormalization(s, w)
        }""",
        "x and skip must have the same shape; they are [n,4] and [m,4]": """g (float[n,4] x, float[m,4] skip) => (float[k,4] y)
        <float[4] w = {1, 2, 3, 4}> { s = Add(x, skip)  y = LayerNormalization(s, w) }""",
        "only the last axis may be normalised; the axes are [-2, -1]": """g (float[2,2,2] x, float[2,2,2] skip) => (float[2,2,2] y)
        <float[2,2] w = {1, 2, 3, 4}> { s = Add(x, skip)  y = LayerNormalization <axis = 1> (s, w) }""",
    },
)
