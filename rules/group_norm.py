"""norm of groups of channels * scale + bias, and its SiLU -> GroupNorm(x, scale, bias): one read and one write of x."""

from onnxfuse.custom_ops.group_norm.op import GROUP_NORM
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Match, Rule
from onnxfuse.weights import per_channel

x, scale, bias = Var("x"), Var("scale"), Var("bias")
groups, axes, epsilon = Scalar("groups"), Scalar("axes"), Scalar("epsilon")

norm = either(op.GroupNormalization(x, num_groups=groups, epsilon=epsilon), op.LayerNormalization(x, axes=axes, epsilon=epsilon))
affine = norm * optional(scale) + optional(bias)


def build(match: Match) -> Call:
    data = match.value(x)
    if data.shape is None or len(data.shape) < 3:
        raise Decline(f"x must be [batch, channels, ...]; '{data.name}' has {'unknown' if data.shape is None else len(data.shape)} axes")
    channels, axis = data.shape[1], 1 - len(data.shape)
    return GROUP_NORM(
        data,
        per_channel(match, scale, channels, axis),
        per_channel(match, bias, channels, axis),
        num_groups=match.scalar(groups) if match.has(groups) else _groups(match, len(data.shape), channels),
        epsilon=match.scalar(epsilon),
        activation="silu" if match.has("silu") else "none",
    )


def _groups(match: Match, rank: int, channels: object) -> int:
    """A norm over all but the batch is one group; one over all behind the channels has a group for each of them."""
    normed = match.scalar(axes)
    if not (match.has(scale) or match.has(bias)):
        raise Decline("a norm without scale and bias is for the rule layer_norm")
    if normed == tuple(range(1 - rank, 0)):
        return 1
    if normed != tuple(range(2 - rank, 0)) or not isinstance(channels, int):
        raise Decline(f"the axes must be all behind the batch, or behind a known number of channels; they are {list(normed)} of {rank}")
    return channels


RULE = Rule(
    before=either(op.Swish(affine, alpha=1.0).named("silu"), affine),
    after=build,
    fires_on=[
        """g (float[n,4,h,w] x) => (float[n,4,h,w] y)
        <int64[3] rows = {0, 2, -1}, float[2] one = {1, 1}, float[2] zero = {0, 0}, float[4,1,1] s = {1, 2, 3, 4}> {
            b = Constant <value = float[4,1,1] {4.0, 3.0, 2.0, 1.0}> ()
            r = Reshape(x, rows)  i = InstanceNormalization <epsilon = 0.001> (r, one, zero)  d = Shape(x)  q = Reshape(i, d)
            m = Mul(q, s)  a = Add(m, b)  c = Sigmoid(a)  y = Mul(a, c)
        }""",
        """<opset_import: ["" : 21]> g (float[n,4,3,5] x, float[4] s) => (float[n,4,3,5] y) <float[4] b = {4, 3, 2, 1}> {
            a = GroupNormalization <num_groups = 2> (x, s, b)  c = Sigmoid(a)  y = Mul(a, c)
        }""",
        """<opset_import: ["" : 18]> g (float[2,4,3,5] x) => (float[2,4,3,5] y) <float[2] s = {3, 2}, float[2] b = {2, 1}> {
            a = GroupNormalization <num_groups = 2> (x, s, b)  c = Sigmoid(a)  y = Mul(a, c)
        }""",
        """g (float[2,6,3,5] x) => (float[2,6,3,5] y)
        <int64[4] parts = {2, 3, 2, 15}, int64[4] whole = {2, 6, 3, 5}, float eps = {0.01}, float[1,6,1,1] s = {1, 2, 3, 4, 5, 6}> {
            r = Reshape(x, parts)  m = ReduceMean <axes = [2, 3]> (r)  d = Sub(r, m)  q = Mul(d, d)  v = ReduceMean <axes = [2, 3]> (q)
            e = Add(v, eps)  t = Sqrt(e)  u = Div(d, t)  o = Reshape(u, whole)  y = Mul(o, s)
        }""",
        """g (float[2,3,n] x, float[3] s, float[3] b) => (float[2,3,n] y) {
            a = InstanceNormalization(x, s, b)  c = Sigmoid(a)  y = Mul(c, a)
        }""",
        """<opset_import: ["" : 21]> g (float[2,4,3] z, float[4] s, float[4] b) => (float[2,4,3] y, float[2,4,3] x) <float one = {1}> {
            x = Div(z, one)  a = GroupNormalization <num_groups = 2> (x, s, b)  c = Sigmoid(a)  y = Mul(a, c)
        }""",
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float[3,1,1] s = {1, 2, 3}, float eps = {0.01}> {
            m = ReduceMean <axes = [1, 2, 3]> (x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean <axes = [1, 2, 3]> (q)
            e = Add(v, eps)  t = Sqrt(e)  u = Div(d, t)  y = Mul(u, s)
        }""",
    ],
    declines={
        "must be read by nobody else": """<opset_import: ["" : 21]> g (float[2,4,3,5] x, float[4] s) => (float[2,4,3,5] y, float[2,4,3,5] a)
        <float[4] b = {4, 3, 2, 1}> {
            a = GroupNormalization <num_groups = 2> (x, s, b)  c = Sigmoid(a)  y = Mul(a, c)
        }""",
        "x must be [batch, channels, ...]; 'x' has 2 axes": """g (float[2,4] x) => (float[2,4] y)
        <float eps = {0.01}, float[4] s = {1, 2, 3, 4}> {
            m = ReduceMean <axes = [1]> (x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean <axes = [1]> (q)
            e = Add(v, eps)  t = Sqrt(e)  u = Div(d, t)  y = Mul(u, s)
        }""",
        "a norm without scale and bias is for the rule layer_norm": """g (float[2,3,4] x) => (float[2,3,4] y) <float eps = {0.01}> {
            m = ReduceMean <axes = [2]> (x)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean <axes = [2]> (q)
            e = Add(v, eps)  t = Sqrt(e)  y = Div(d, t)
        }""",
    },
)
