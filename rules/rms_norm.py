"""x / sqrt(mean(x^2) + epsilon) * scale -> RMSNorm(x, scale): one read and one write of x."""

from onnxfuse.custom_ops.rms_norm.op import RMS_NORM
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, Rule, affine
from onnxfuse.term import close
from onnxfuse.weights import filled

x, scale, axes, epsilon, factor = Var("x"), Var("scale"), Scalar("axes"), Scalar("epsilon"), Scalar("factor")

norm = op.RMSNormalization(x, axes=axes, epsilon=epsilon)
outside = factor * x / (op.Mean(x**2, axes=axes, keepdims=True) ** 0.5 + epsilon)


def build(match: Match) -> Call:
    if match.has("outside"):
        raise Decline("epsilon must be added to the mean of squares, under the root; here it is added to the root")
    data, weight, _, axis = affine(match, x, scale, None, match.scalar(axes))
    if match.has(factor) and not close(match.scalar(factor), 1.0) and data.shape is not None:
        weight = filled(match, match.scalar(factor), data.shape[axis:], data)
    return RMS_NORM(data, weight, axis=axis, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=either(norm * optional(scale), factor * norm, (outside * optional(scale)).named("outside")),
    after=build,
    fires_on=[
        """g (float[2,4] x) => (float[2,4] y) <float two = {2.0}, float eps = {0.000001}, float one = {1.0}, float[4] w = {1, 2, 3, 4}> {
            q = Pow(x, two)  v = ReduceMean <axes = [-1]> (q)  e = Add(v, eps)  r = Sqrt(e)  i = Div(one, r)  n = Mul(x, i)  y = Mul(w, n)
        }""",
        """<opset_import: ["" : 18]> g (float[n,s,4] x) => (float[n,s,4] y) <int64[1] axis = {-1}, float eps = {0.00001}> {
            w = Constant <value = float[1,1,4] {1.0, 2.0, 3.0, 4.0}> ()
            q = Mul(x, x)  v = ReduceMean(q, axis)  e = Add(eps, v)  r = Sqrt(e)  i = Reciprocal(r)  n = Mul(i, x)  y = Mul(n, w)
        }""",
        """g (float[2,4] x) => (float[2,4] y) <float eps = {0.001}, float four = {4.0}, int64[1] axis = {1}> {
            q = Mul(x, x)  t = ReduceSum(q, axis)  v = Div(t, four)  e = Add(v, eps)  r = Sqrt(e)  y = Div(x, r)
        }""",
        """g (float16[2,4] x, float16[4] w) => (float16[2,4] y) <float two = {2.0}, float eps = {0.000001}> {
            z = Cast <to = 1> (x)  q = Pow(z, two)  v = ReduceMean <axes = [-1]> (q)  e = Add(v, eps)  r = Sqrt(e)  n = Div(z, r)
            h = Cast <to = 10> (n)  y = Mul(w, h)
        }""",
        """<opset_import: ["" : 23]> g (float[4,3] x) => (float[3,4] y) <float[4] w = {1, 2, 3, 4}> {
            t = Transpose(x)  n = RMSNormalization <epsilon = 0.001> (t, w)  z = Neg(n)  y = Neg(z)
        }""",
        """g (float[n,4] x) => (float[n,4] y) <float eps = {0.001}> {
            axis = Constant <value = int64[1] {-1}> ()  q = Mul(x, x)  s = ReduceSum(q, axis)
            e = Add(s, eps)  r = Sqrt(e)  y = Div(x, r)
        }""",
        """g (float[2,4] x) => (float[2,4] y) <float eps = {0.001}, float one = {1.0}, float[4] w = {0.5, 0.25, -0.5, 0}> {
            q = Mul(x, x)  v = ReduceMean <axes = [-1]> (q)  e = Add(v, eps)  r = Sqrt(e)  n = Div(x, r)  s = Add(one, w)  y = Mul(n, s)
        }""",
    ],
    declines={
        "epsilon must be added to the mean of squares, under the root": """g (float[2,4] x) => (float[2,4] y) <float eps = {0.001}> {
            n = ReduceL2 <axes = [-1]> (x)  e = Add(n, eps)  y = Div(x, e)
        }""",
        "the axes must be the last ones; they are [-2]": """g (float[2,4] x) => (float[2,4] y) <float eps = {0.000001}> {
            q = Mul(x, x)  v = ReduceMean <axes = [-2]> (q)  e = Add(v, eps)  r = Sqrt(e)  y = Div(x, r)
        }""",
        "'v' (ReduceMean) must be read by nobody else; the graph's output reads it too": """
        g (float[2,4] x) => (float[2,4] y, float[2,1] v) <float eps = {0.000001}> {
            q = Mul(x, x)  v = ReduceMean <axes = [1]> (q)  e = Add(v, eps)  r = Sqrt(e)  y = Div(x, r)
        }""",
        "the rank of x must be known; 'x' has unknown rank": """g (float[2,4] z, int64[n] shape) => (float[] y) <float eps = {0.000001}> {
            x = Reshape(z, shape)  q = Mul(x, x)  v = ReduceMean <axes = [-1]> (q)  e = Add(v, eps)  r = Sqrt(e)  y = Div(x, r)
        }""",
    },
)
