"""(x - mean(x)) / sqrt(var(x) + epsilon) * scale + bias -> LayerNorm(x, scale, bias): one read and one write of x."""

from onnxfuse.custom_ops.layer_norm.op import LAYER_NORM
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, Rule, affine
from onnxfuse.term import close
from onnxfuse.weights import filled

x, scale, bias = Var("x"), Var("scale"), Var("bias")
axes, epsilon, factor = Scalar("axes"), Scalar("epsilon"), Scalar("factor")

norm = op.LayerNormalization(x, axes=axes, epsilon=epsilon)
centred = x - op.Mean(x, axes=axes, keepdims=True)
outside = factor * centred / (op.Mean(centred**2, axes=axes, keepdims=True) ** 0.5 + epsilon)


def build(match: Match) -> Call:
    if match.has("outside"):
        raise Decline("epsilon must be added to the variance, under the root; here it is added to the root")
    data, weight, shift, axis = affine(match, x, scale, bias, match.scalar(axes))
    if match.has(factor) and not close(match.scalar(factor), 1.0) and data.shape is not None:
        weight = filled(match, match.scalar(factor), data.shape[axis:], data)
    return LAYER_NORM(data, weight, shift, axis=axis, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=either(norm * optional(scale), factor * norm, (outside * optional(scale)).named("outside")) + optional(bias),
    after=build,
    fires_on=[
        """g (float[2,4] x) => (float[2,4] y)
        <float two = {2.0}, float eps = {0.00001}, float[4] w = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}> {
            m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [-1]> (q)
            e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  s = Mul(n, w)  y = Add(s, b)
        }""",
        """<opset_import: ["" : 18]> g (float[n,s,4] x) => (float[n,s,4] y)
        <int64[1] axis = {2}, float[1] eps = {0.000001}, float[4] w = {1, 2, 3, 4}> {
            m = ReduceMean(x, axis)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean(q, axis)
            e = Add(eps, v)  r = Sqrt(e)  i = Reciprocal(r)  n = Mul(d, i)  y = Mul(w, n)
        }""",
        """g (float[2,3,4] x) => (float[2,3,4] y) <float eps = {0.001}, float power = {-0.5}, float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
            m = ReduceMean <axes = [1, 2]> (x)  d = Sub(x, m)  v = ReduceSumSquare <axes = [-1, -2]> (d)
            c = Constant <value = float {12.0}> ()  a = Div(v, c)  e = Add(a, eps)  i = Pow(e, power)  n = Mul(i, d)  y = Mul(n, w)
        }""",
        """g (float16[2,4] x, float16[4] w) => (float16[2,4] y) <float eps = {0.00001}> {
            z = Cast <to = 1> (x)  m = ReduceMean <axes = [-1]> (z)  d = Sub(z, m)  q = Mul(d, d)  v = ReduceMean <axes = [-1]> (q)
            e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  h = Cast <to = 10> (n)  y = Mul(w, h)
        }""",
        """g (float[2,4] x) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {4, 3, 2, 1}, float[4] c = {1, 1, 0, 1}> {
            n = LayerNormalization <epsilon = 0.001> (x, w)  y = Add(n, b)
        }""",
        """g (float[n,s,4] x) => (float[n,s,4] y) <float eps = {0.001}, float three = {3.0}, float[4] w = {1, 2, 3, 4}> {
            m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  v = ReduceSumSquare <axes = [-1]> (d)
            u = Div(v, three)  e = Add(u, eps)  r = Sqrt(e)  n = Div(d, r)  y = Mul(n, w)
        }""",
        """g (float[n,s,4] x) => (float[n,s,4] y) <float eps = {0.001}, float three = {3.0}> {
            m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  v = ReduceSumSquare <axes = [-1]> (d)
            u = Div(v, three)  e = Add(u, eps)  r = Sqrt(e)  y = Div(d, r)
        }""",
        """g (float[2,4] x) => (float[2,4] y) <float one = {1.0}, float[4] w = {0.5, 0.25, -0.5, 0}> {
            s = Add(w, one)  n = LayerNormalization <epsilon = 0.001> (x, s)  y = Add(n, w)
        }""",
    ],
    declines={
        "epsilon must be added to the variance, under the root": """g (float[2,4] x) => (float[2,4] y)
        <float eps = {0.001}, float three = {3.0}, float[4] w = {1, 2, 3, 4}> {
            m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  v = ReduceSumSquare <axes = [-1]> (d)
            u = Div(v, three)  r = Sqrt(u)  e = Add(r, eps)  n = Div(d, e)  y = Mul(n, w)
        }""",
        "the axes must be the last ones; they are [-2]": """g (float[2,4] x) => (float[2,4] y) <float two = {2.0}, float eps = {0.00001}> {
            m = ReduceMean <axes = [0]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [0]> (q)
            e = Add(v, eps)  r = Sqrt(e)  y = Div(d, r)
        }""",
        "the rank of x must be known; 'x' has unknown rank": """g (float[2,4] z, int64[n] shape) => (float[] y)
        <float two = {2.0}, float eps = {0.00001}> {
            x = Reshape(z, shape)  m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [-1]> (q)
            e = Add(v, eps)  r = Sqrt(e)  y = Div(d, r)
        }""",
        "'d' (Sub) must be read by nobody else; the graph's output reads it too": """g (float[2,4] x) => (float[2,4] y, float[2,4] d)
        <float two = {2.0}, float eps = {0.00001}> {
            m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [-1]> (q)
            e = Add(v, eps)  r = Sqrt(e)  y = Div(d, r)
        }""",
    },
)
