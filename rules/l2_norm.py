"""x / max(|x|, epsilon) * scale -> L2Norm(x, scale): one read and one write of x."""

import math

from onnxfuse.custom_ops.l2_norm.op import L2_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Decline, Match, Rule
from onnxfuse.term import close
from onnxfuse.weights import filled, per_channel

x, scale, axes, epsilon, factor = Var("x"), Var("scale"), Scalar("axes"), Scalar("epsilon"), Scalar("factor")


def build(match: Match) -> Call:
    """|x| is the square root of n times that of the mean, so that is what the factor makes up for."""
    data, normed = match.value(x), match.scalar(axes)
    size = data.shape[normed[0]] if data.shape is not None else None
    if len(normed) != 1 or not isinstance(size, int):
        raise Decline(f"one axis of known size must be normalised; the axes are {list(normed)} of '{data.name}'")
    root, axis = math.sqrt(size), normed[0]
    weight = per_channel(match, scale, size, axis)
    if not close(match.scalar(factor) * root, 1.0):
        if weight is not None:
            raise Decline(f"the norm must have no factor besides its scale; it has {match.scalar(factor) * root:.6g}")
        weight = filled(match, match.scalar(factor) * root, (size,), data)
    return L2_NORM(data, weight, axis=axis, epsilon=match.scalar(epsilon) * root)


RULE = Rule(
    before=factor * op.BoundedNormalization(x, axes=axes, epsilon=epsilon) * optional(scale),
    after=build,
    fires_on=[
        """g (float[n,3,8] x) => (float[n,3,8] y) <float eps = {0.25}> {
            l = ReduceL2 <axes = [-1]> (x)  c = Clip(l, eps)  y = Div(x, c)
        }""",
        """g (float[n,3,8] x) => (float[n,3,8] y) <float eps = {0.25}, float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}> {
            l = ReduceL2 <axes = [-1]> (x)  c = Max(eps, l)  d = Shape(x)  e = Expand(c, d)  u = Div(x, e)  y = Mul(s, u)
        }""",
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float eps = {0.01}, int64[1] axis = {1}, float ten = {10}> {
            q = Mul(x, x)  s = ReduceSum(q, axis)  m = Max(s, eps)  r = Sqrt(m)  u = Div(x, r)  y = Mul(u, ten)
        }""",
    ],
    declines={
        "one axis of known size must be normalised": """g (float[2,3,4] x) => (float[2,3,4] y) <float eps = {0.25}> {
            l = ReduceL2 <axes = [1, 2]> (x)  c = Clip(l, eps)  y = Div(x, c)
        }""",
        "must be read by nobody else": """g (float[2,8] x) => (float[2,8] y, float[2,1] l) <float eps = {0.25}> {
            l = ReduceL2 <axes = [-1]> (x)  c = Clip(l, eps)  y = Div(x, c)
        }""",
    },
)
