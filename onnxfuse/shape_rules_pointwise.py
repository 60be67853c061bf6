"""Shapes of ops that keep or broadcast the shapes of their inputs, and of those that reduce axes to 1 or to nothing."""

from __future__ import annotations

from onnxfuse import symbolic
from onnxfuse.shape_facts import MICROSOFT, Call, Shape, broadcast_shapes, place, places, plain_values, replaced, shape_rule
from onnxfuse.shape_ratio import Unknown

_KEEPING = """
    Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitCast BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum
    DequantizeLinear Elu Erf Exp EyeLike Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization
    IsInf IsNaN LRN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu QuantizeLinear
    RMSNormalization RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence RotaryEmbedding Round Scatter ScatterElements
    ScatterND Selu Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter
    ThresholdedRelu Trilu
"""

_BROADCASTING = """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow
    StringConcat Sub Sum Where Xor
"""

_REDUCING = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"

_MICROSOFT_KEEPING = """
    BiasAdd BiasGelu BiasSoftmax DequantizeLinear FastGelu Gelu GroupNorm Inverse MoE QLinearLeakyRelu QLinearSigmoid QLinearSoftmax
    QMoE QuantizeLinear QuickGelu RotaryEmbedding Trilu
"""


@shape_rule(_KEEPING)
def _same(call: Call) -> Shape:
    return call.shape(0)


shape_rule(_MICROSOFT_KEEPING, domain=MICROSOFT)(_same)


@shape_rule(_BROADCASTING)
def _broadcast(call: Call) -> Shape:
    return broadcast_shapes(*(call.shape(i) for i in range(len(call.inputs))))


@shape_rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _broadcast_quantized(call: Call) -> Shape:
    return broadcast_shapes(call.shape(0), call.shape(3))


@shape_rule("Dropout")
def _same_twice(call: Call) -> list[Shape | None]:
    return [call.shape(0), call.shape(0)]


@shape_rule("BatchNormalization")
def _batch_norm(call: Call) -> list[Shape | None]:
    channels = call.fact(1).shape
    return [call.shape(0), *[channels] * (len(call.node.outputs) - 1)]


@shape_rule("LayerNormalization")
def _layer_norm(call: Call) -> list[Shape | None]:
    x = call.shape(0)
    axis = place(call.integer("axis", -1), len(x))
    rows = x[:axis] + (1,) * (len(x) - axis)
    return [x, rows, rows]


@shape_rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_norm(call: Call) -> list[Shape | None]:
    x = call.shape(0)
    rows = (*x[:-1], 1)
    return [x, rows, rows, x]


@shape_rule("SkipGroupNorm", domain=MICROSOFT)
def _skip_group_norm(call: Call) -> list[Shape | None]:
    return [call.shape(0), call.shape(0)]


@shape_rule("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> list[Shape | None]:
    return [call.shape(0), (), ()]


@shape_rule(_REDUCING)
def _reduce(call: Call) -> Shape:
    x = call.shape(0)
    keep = call.integer("keepdims", 1) != 0
    try:
        axes = call.axes(1)
    except Unknown:
        if keep:
            return call.fresh_shape(len(x))
        raise
    if not axes and call.integer("noop_with_empty_axes", 0):
        return x
    return _reduced(x, places(axes, len(x)) if axes else list(range(len(x))), keep=keep)


def _reduced(x: Shape, axes: list[int], *, keep: bool) -> Shape:
    if keep:
        return tuple(1 if i in axes else d for i, d in enumerate(x))
    return tuple(d for i, d in enumerate(x) if i not in axes)


@shape_rule("ArgMax", "ArgMin")
def _arg_reduce(call: Call) -> Shape:
    x = call.shape(0, at_least=1)
    return _reduced(x, [place(call.integer("axis", 0), len(x))], keep=call.integer("keepdims", 1) != 0)


@shape_rule("TopK")
def _top_k(call: Call) -> list[Shape | None]:
    x = call.shape(0, at_least=1)
    axis = place(call.integer("axis", -1), len(x))
    if call.opset < 10:
        k: symbolic.Dim = call.integer("k")
    else:
        k = call.fresh(axis) if call.fact(1).elements is None else call.scalar(1)
    shape = replaced(x, axis, k)
    return [shape, shape]


@shape_rule("Det")
def _determinant(call: Call) -> Shape:
    return call.shape(0, at_least=2)[:-2]


@shape_rule("NonZero")
def _non_zero(call: Call) -> Shape:
    x = call.shape(0, at_least=1)
    return (len(x), symbolic.product(x) if _is_filled(call) else call.fresh(1))


def _is_filled(call: Call) -> bool:
    """Whether the input holds no zero for certain: old exporters spell a range as NonZero(ConstantOfShape(n, 1))."""
    value = call.node.input(0)
    source = value.producer if value is not None else None
    if source is None or source.op != "ConstantOfShape":
        return False
    fill = next((a.t for a in source.proto.attribute if a.name == "value" and not a.ref_attr_name), None)
    return fill is not None and all(plain_values(fill))
