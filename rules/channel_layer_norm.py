"""norm over one axis that is not the last, or between two Transposes -> ChannelLayerNorm(x, scale, bias): no element moves."""

from onnxfuse.custom_ops.channel_layer_norm.op import CHANNEL_LAYER_NORM
from onnxfuse.graph import Value
from onnxfuse.layout import Layout, compose, identity, transpose
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, Rule
from onnxfuse.weights import per_channel

x, scale, bias = Var("x"), Var("scale"), Var("bias")
axes, epsilon, layout = Scalar("axes"), Scalar("epsilon"), Scalar("layout")

affine = op.LayerNormalization(x, axes=axes, epsilon=epsilon) * optional(scale) + optional(bias)


def build(match: Match) -> Call:
    data, axis = _transposed(match) if match.has(layout) else _as_it_lies(match)
    along = -1 if match.has(layout) else axis
    channels = data.shape[axis] if data.shape is not None else 0
    weights = [per_channel(match, hole, channels, along) for hole in (scale, bias)]
    return CHANNEL_LAYER_NORM(data, *weights, axis=axis, epsilon=match.scalar(epsilon))


def _as_it_lies(match: Match) -> tuple[Value, int]:
    normed = match.scalar(axes)
    if len(normed) != 1 or normed == (-1,):
        raise Decline(f"one axis that is not the last must be normalised; the axes are {list(normed)}")
    return match.value(x), normed[0]


def _transposed(match: Match) -> tuple[Value, int]:
    """(value, axis) where the last axis of what is normalised is an axis of that value, and the result lies as it does."""
    source, inner = _before_transpose(match)
    back = compose(match.scalar(layout), inner)
    if back is None or not back.is_identity or match.scalar(axes) != (-1,):
        raise Decline("the result must lie as it did before x was transposed, and the norm be over the last axis")
    own = next((i for i, axis in enumerate(identity(inner.base).axes) if axis and axis == inner.axes[-1]), len(inner.base) - 1)
    if own == len(inner.base) - 1:
        raise Decline("the axis that is normalised must not be the last one before x is transposed, and be one axis there")
    return source, own - len(inner.base)


def _before_transpose(match: Match) -> tuple[Value, Layout]:
    """What x is a view of, and which. A transposed sum is a sum of views, so the Transpose itself may have to tell."""
    seen = match.term(x)
    if seen.op == "View":
        inner: Layout = seen.attributes["layout"]
        return match.holder(seen.args[0], "x", shape=inner.base), inner
    producer = match.value(x).producer
    source = producer.inputs[0] if producer is not None and producer.op == "Transpose" else None
    if producer is None or source is None or source.shape is None:
        raise Decline("x must be transposed before it is normalised, and back afterwards")
    return source, transpose(identity(source.shape), producer.attributes["perm"])


RULE = Rule(
    before=either(op.View(affine, layout=layout), affine),
    after=build,
    fires_on=[
        """g (float[n,3,h,w] x) => (float[n,3,h,w] y)
        <float two = {2.0}, float eps = {0.000001}, float[3,1,1] s = {1, 2, 3}, float[3,1,1] b = {3, 2, 1}> {
            m = ReduceMean <axes = [1]> (x)  d = Sub(x, m)  q = Pow(d, two)  v = ReduceMean <axes = [1]> (q)
            e = Add(v, eps)  t = Sqrt(e)  u = Div(d, t)  p = Mul(s, u)  y = Add(p, b)
        }""",
        """g (float[n,3,4,5] x, float[3] s) => (float[n,3,4,5] y) <float[3] b = {3, 2, 1}> {
            t = Transpose <perm = [0, 2, 3, 1]> (x)  l = LayerNormalization(t, s, b)  y = Transpose <perm = [0, 3, 1, 2]> (l)
        }""",
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y)
        <int64[3] flat = {2, 3, 20}, int64[4] whole = {2, 3, 4, 5}, float[3] s = {1, 2, 3}> {
            r = Reshape(x, flat)  t = Transpose <perm = [0, 2, 1]> (r)  l = LayerNormalization(t, s)
            u = Transpose <perm = [0, 2, 1]> (l)  y = Reshape(u, whole)
        }""",
        """g (float[2,3,4] a, float[2,4,3] c, float[3] s) => (float[2,3,4] y, float[2,3,4] x) {
            u = Transpose <perm = [0, 2, 1]> (c)  x = Add(a, u)
            t = Transpose <perm = [0, 2, 1]> (x)  l = LayerNormalization(t, s)  y = Transpose <perm = [0, 2, 1]> (l)
        }""",
    ],
    declines={
        "the result must lie as it did before x was transposed": """g (float[2,3,4,4] x, float[3] s) => (float[2,3,4,4] y) {
            t = Transpose <perm = [0, 2, 3, 1]> (x)  l = LayerNormalization(t, s)  y = Transpose <perm = [0, 3, 2, 1]> (l)
        }""",
        "one axis that is not the last must be normalised; the axes are [-1]": """g (float[2,3] x) => (float[2,3] y)
        <float[3] b = {3, 2, 1}, float[3] s = {1, 2, 3}> {
            l = LayerNormalization(x, s)  y = Add(l, b)
        }""",
    },
)
