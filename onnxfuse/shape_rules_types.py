"""Element types of the outputs of every op that is known: the spec's type constraints, as a table."""

from __future__ import annotations

from onnx import TensorProto

from onnxfuse.shape_facts import MICROSOFT, Call, type_rule

FLOAT, INT64, INT32, BOOL, UINT8, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.BOOL,
    TensorProto.UINT8,
    TensorProto.STRING,
)

# All outputs have the type of the first input.
_SAME = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil
    Celu Clip Compress Concat Conv ConvTranspose Cos Cosh CumProd CumSum DepthToSpace Det Div Einsum Elu Erf Exp Expand Flatten Floor
    GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization HardSigmoid
    HardSwish Hardmax Identity InstanceNormalization LRN LSTM LeakyRelu Log LogSoftmax LpNormalization LpPool MatMul Max Mean
    MeanVarianceNormalization Min Mish Mod Mul Neg PRelu Pad Pow RMSNormalization RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign
    RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Slice Softmax
    Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh TensorScatter ThresholdedRelu Tile Transpose Trilu
    Unsqueeze Upsample
"""

_MICROSOFT_SAME = """
    Attention BiasAdd BiasGelu BiasSoftmax BiasSplitGelu DynamicQuantizeMatMul FastGelu FusedConv FusedGemm FusedMatMul
    FusedMatMulActivation Gelu GemmFastGelu GroupNorm GroupQueryAttention MatMulBnb4 MatMulFpQ4 MatMulNBits MultiHeadAttention NhwcConv
    NhwcFusedConv NhwcMaxPool QuickGelu RotaryEmbedding SkipGroupNorm TransposeMatMul Trilu QMoE MoE SparseAttention Inverse GridSample
"""


@type_rule(_SAME)
@type_rule(_MICROSOFT_SAME, domain=MICROSOFT)
def _first(call: Call) -> int:
    return call.dtype(0)


@type_rule("Equal Greater Less GreaterOrEqual LessOrEqual And Or Xor Not IsNaN IsInf")
def _truth(call: Call) -> int:
    return BOOL


@type_rule("Shape Size NonZero ArgMax ArgMin")
def _count(call: Call) -> int:
    return INT64


@type_rule("MatMulInteger ConvInteger")
def _integer_product(call: Call) -> int:
    return INT32


@type_rule("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> tuple[int, ...]:
    return UINT8, FLOAT, UINT8


@type_rule("StringConcat")
def _string(call: Call) -> int:
    return STRING


@type_rule("Where")
def _second(call: Call) -> int:
    return call.dtype(1) or call.dtype(2)


@type_rule("Cast", "BitCast")
def _cast(call: Call) -> int:
    return call.integer("to")


@type_rule("CastLike")
def _like(call: Call) -> int:
    return call.dtype(1)


_CONSTANT_TYPES = {
    "value_float": FLOAT,
    "value_floats": FLOAT,
    "value_int": INT64,
    "value_ints": INT64,
    "value_string": STRING,
    "value_strings": STRING,
}


@type_rule("Constant")
def _constant(call: Call) -> int:
    for attribute in call.node.proto.attribute:
        if attribute.name in _CONSTANT_TYPES:
            return _CONSTANT_TYPES[attribute.name]
        if attribute.name == "sparse_value":
            return int(attribute.sparse_tensor.values.data_type)
    tensor = call.tensor("value")  # a reference to a function's attribute; plain ones are constants of the graph
    return 0 if tensor is None else int(tensor.data_type)


@type_rule("ConstantOfShape")
def _filled(call: Call) -> int:
    value = call.tensor("value")
    return FLOAT if value is None else int(value.data_type)


@type_rule("EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli")
def _like_or_attribute(call: Call) -> int:
    return call.integer("dtype", call.dtype(0))


@type_rule("RandomNormal", "RandomUniform")
def _random(call: Call) -> int:
    return call.integer("dtype", FLOAT)


@type_rule("OneHot")
def _one_hot(call: Call) -> int:
    return call.dtype(2)


@type_rule("TopK", "MaxPool")
def _with_indices(call: Call) -> tuple[int, ...]:
    return call.dtype(0), INT64


@type_rule("Dropout")
def _dropout(call: Call) -> tuple[int, ...]:
    return call.dtype(0), BOOL if call.opset >= 10 else call.dtype(0)


@type_rule("LayerNormalization")
def _layer_norm(call: Call) -> tuple[int, ...]:
    stash = call.integer("stash_type", FLOAT)
    return call.dtype(0), stash, stash


@type_rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_norm(call: Call) -> tuple[int, ...]:
    return call.dtype(0), FLOAT, FLOAT, call.dtype(0)


@type_rule("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_norm(call: Call) -> tuple[int, ...]:
    return call.dtype(2), INT32, call.dtype(2)


@type_rule("Attention")
def _attention(call: Call) -> tuple[int, ...]:
    return call.dtype(0), call.dtype(1), call.dtype(2), call.dtype(0)


@type_rule("QuantizeLinear")
def _quantize(call: Call) -> int:
    return call.dtype(2) if call.has(2) else call.integer("output_dtype", 0) or UINT8


@type_rule("DequantizeLinear")
def _dequantize(call: Call) -> int:
    return call.integer("output_dtype", 0) or call.dtype(1)


@type_rule("QuantizeLinear", domain=MICROSOFT)
def _quantize_contrib(call: Call) -> int:
    return call.dtype(2) if call.has(2) else UINT8


@type_rule("DequantizeLinear", domain=MICROSOFT)
def _dequantize_contrib(call: Call) -> int:
    return call.dtype(1)


@type_rule("QLinearMatMul", "QLinearConv")
def _quantized(call: Call) -> int:
    return call.dtype(7)


@type_rule("MatMulIntegerToFloat", domain=MICROSOFT)
def _to_float(call: Call) -> int:
    return call.dtype(2)


@type_rule(
    "QLinearAdd",
    "QLinearMul",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QLinearLeakyRelu",
    "QLinearGlobalAveragePool",
    "QGemm",
    domain=MICROSOFT,
)
def _quantized_contrib(call: Call) -> int:
    return call.dtype(0)
