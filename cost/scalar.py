"""What one element of each ONNX op costs, by op: the table behind the FLOP counts and the issue rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """Costs of one element.

    flops: scalar operations of the definition. special: exp, log, tanh, erf and the like among them.
    slots: instructions a GPU lane issues, the special unit's not counted. sfu: results of the special unit.
    vector_slots: instructions of our vectorised CPU kernels, from their measured times.
    """

    flops: int
    special: int = 0
    slots: int = 1
    sfu: int = 0
    vector_slots: float = 1


ONE = Scalar(1)
DIVIDE = Scalar(1, 0, 8, 1, 4)
ROOT = Scalar(1, 0, 6, 1, 8)
EXP = Scalar(1, 1, 2, 1, 14)
LOG = Scalar(1, 1, 4, 1, 18)
TANH = Scalar(1, 1, 6, 2, 40)
ERF = Scalar(1, 1, 24, 1, 43)
POW = Scalar(1, 1, 12, 2, 60)
TRIG = Scalar(1, 1, 20, 0, 30)  # range reduction and a polynomial
INVERSE_TRIG = Scalar(1, 1, 25, 1, 40)
ROW = Scalar(1, 0, 1, 0, 10)  # one more pass over a row that is in the nearest cache
SIGMOID = Scalar(3, 1, 8, 2, 27)

# What ONNX Runtime's CPU kernels do once for each row, stretch of a broadcast, or element around a product of two activations:
# it takes time there alone, at a rate that is measured.
ROW_STEP, BROADCAST_STEP, PRODUCT_STEP = "row step", "broadcast step", "product step"
STEPS = (ROW_STEP, BROADCAST_STEP, PRODUCT_STEP)

_SIMPLE = (
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Equal Floor Greater GreaterOrEqual IsInf IsNaN "
    "Less LessOrEqual Max Min Mul Neg Not Or Relu Round Sign Sub Sum Where Xor Identity PRelu Clip Dropout"
)

SCALARS: dict[str, Scalar] = {
    **dict.fromkeys(_SIMPLE.split(), ONE),
    "Div": DIVIDE,
    "Mod": Scalar(3, 0, 12, 1, 12),
    "Mean": Scalar(2),
    "Reciprocal": DIVIDE,
    "Sqrt": ROOT,
    "Exp": EXP,
    "Log": LOG,
    "Tanh": TANH,
    "Erf": ERF,
    "Pow": POW,
    "Sin": TRIG,
    "Cos": TRIG,
    "Tan": TRIG,
    "Asin": INVERSE_TRIG,
    "Acos": INVERSE_TRIG,
    "Atan": INVERSE_TRIG,
    "Sinh": Scalar(4, 2, 12, 2, 32),
    "Cosh": Scalar(4, 2, 12, 2, 32),
    "Asinh": Scalar(4, 1, 14, 2, 36),
    "Acosh": Scalar(4, 1, 14, 2, 36),
    "Atanh": Scalar(4, 1, 14, 2, 36),
    "Sigmoid": SIGMOID,
    "Softplus": Scalar(3, 2, 8, 2, 34),
    "Softsign": Scalar(3, 0, 10, 1, 10),
    "Gelu": Scalar(5, 1, 26, 1, 50),
    "FastGelu": Scalar(8, 1, 14, 2, 47),
    "QuickGelu": Scalar(5, 1, 10, 2, 29),
    "BiasGelu": Scalar(6, 1, 27, 1, 51),
    "Swish": Scalar(4, 1, 9, 2, 28),
    "Mish": Scalar(5, 3, 16, 4, 58),
    "HardSwish": Scalar(5, 0, 4, 0, 5),
    "HardSigmoid": Scalar(4, 0, 3, 0, 4),
    "LeakyRelu": Scalar(2, 0, 2, 0, 2),
    "ThresholdedRelu": Scalar(2, 0, 2, 0, 2),
    "Shrink": Scalar(3, 0, 4, 0, 4),
    "Elu": Scalar(4, 1, 5, 1, 18),
    "Celu": Scalar(6, 1, 6, 2, 28),
    "Selu": Scalar(5, 1, 5, 1, 18),
    "QuantizeLinear": Scalar(4, 0, 12, 1, 6),
    "DequantizeLinear": Scalar(3, 0, 3, 0, 3),
    "RotaryEmbedding": Scalar(3, 0, 3, 0, 3),
    # rows: costs of one element of the input
    "Softmax": Scalar(5, 1, 5, 1, 20),
    "LogSoftmax": Scalar(5, 1, 5, 1, 20),
    "Hardmax": Scalar(2),
    "LayerNormalization": Scalar(8, 0, 8, 0, 8),
    "RMSNormalization": Scalar(4, 0, 4, 0, 4),
    "InstanceNormalization": Scalar(8, 0, 8, 0, 8),
    "GroupNormalization": Scalar(8, 0, 8, 0, 8),
    "BatchNormalization": Scalar(2, 0, 2, 0, 2),
    "LpNormalization": Scalar(3, 0, 4, 0, 4),
    "MeanVarianceNormalization": Scalar(7, 0, 8, 0, 8),
    "LRN": Scalar(8, 2, 20, 2, 70),
    "SkipLayerNormalization": Scalar(9, 0, 9, 0, 9),
    "SkipSimplifiedLayerNormalization": Scalar(5, 0, 5, 0, 5),
    "SimplifiedLayerNormalization": Scalar(4, 0, 4, 0, 4),
    "EmbedLayerNormalization": Scalar(10, 0, 10, 0, 10),
    **{f"Reduce{name}": ROW for name in ("Sum", "Mean", "Max", "Min", "Prod")},
    "ReduceL1": Scalar(2, 0, 2, 0, 2),
    "ReduceL2": Scalar(2, 0, 2, 0, 2),
    "ReduceSumSquare": Scalar(2, 0, 1, 0, 1),
    "ReduceLogSum": ONE,
    "ReduceLogSumExp": Scalar(3, 1, 4, 1, 16),
    "ArgMax": Scalar(1, 0, 2, 0, 2),
    "ArgMin": Scalar(1, 0, 2, 0, 2),
    "CumSum": ONE,
    "CumProd": ONE,
    "TopK": Scalar(1, 0, 30, 0, 30),
    **dict.fromkeys(STEPS, Scalar(0, 0, 0, 0, 0)),
}


def scalar(op: str) -> Scalar:
    """Costs of one element of `op`; an op that the table does not know counts as one plain operation."""
    return SCALARS.get(op, ONE)
