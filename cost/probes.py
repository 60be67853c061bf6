"""Which ops calibration times, and in what form: as they stand in exported models, on tensors that a cache holds."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from onnxfuse.cost.chains import CONTRIB, Probe, constants
from onnxfuse.cost.scalar import BROADCAST_STEP, ROW_STEP

ROWS, COLUMNS = 128, 256
SHAPE = (ROWS, COLUMNS)
STRETCHES = 4096
HEADS = (1, 16, 64, 32)  # as many elements, as the heads of an attention

UNARY = (
    "Relu Neg Abs Sqrt Reciprocal Tanh Erf Sigmoid Sin Cos Softplus Softsign Elu Selu LeakyRelu HardSwish HardSigmoid Mish "
    "Floor Ceil Round Sign"
)
_MASK = np.tile(np.arange(COLUMNS) % 2 == 0, (ROWS, 1))
_ROW = np.ones(COLUMNS, np.float32)
_FULL = np.full(SHAPE, 0.7, np.float32)

# Key in the rates table -> probe. A key may be an op with a variant, as the counters name it.
PROBES: dict[str, Probe] = {
    **{op: Probe(op, SHAPE) for op in UNARY.split()},
    **{op: Probe(op, SHAPE, chained=False) for op in ("Exp", "Log")},  # chained, their values would leave the usual range
    **{op: Probe(op, SHAPE, constants(_FULL)) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    "Gelu": Probe("Gelu", SHAPE),
    "FastGelu": Probe("Gelu", SHAPE, attributes={"approximate": "tanh"}),
    "BiasGelu": Probe("BiasGelu", SHAPE, (_ROW,), domain=CONTRIB),
    "QuickGelu": Probe("QuickGelu", SHAPE, attributes={"alpha": 1.0}, domain=CONTRIB),
    "SkipLayerNormalization": Probe("SkipLayerNormalization", SHAPE, (_ROW, _ROW), domain=CONTRIB, twice=True),
    "SkipSimplifiedLayerNormalization": Probe("SkipSimplifiedLayerNormalization", SHAPE, (_ROW,), domain=CONTRIB, twice=True),
    "SimplifiedLayerNormalization": Probe("SimplifiedLayerNormalization", SHAPE, (_ROW,)),
    "Pow": Probe("Pow", SHAPE, constants(0.7), chained=False),
    "Pow:2": Probe("Pow", SHAPE, constants(2.0), chained=False),
    "Pow:3": Probe("Pow", SHAPE, constants(3.0), chained=False),
    "Pow:0.5": Probe("Pow", SHAPE, constants(0.5), chained=False),
    "Clip": Probe("Clip", SHAPE, constants(0.0, 1.0)),
    "Where": Probe("Where", SHAPE, (_MASK, np.array(0.5, np.float32)), first=True),
    "Greater": Probe("Greater", SHAPE, constants(0.5), chained=False, out_type=TensorProto.BOOL),
    "Cast": Probe("Cast", SHAPE, attributes={"to": TensorProto.FLOAT16}, chained=False, out_type=TensorProto.FLOAT16),
    "Softmax": Probe("Softmax", SHAPE),
    "LayerNormalization": Probe("LayerNormalization", SHAPE, (_ROW, _ROW)),
    "InstanceNormalization": Probe("InstanceNormalization", (1, 16, 2048), (np.ones(16, np.float32),) * 2),
    "BatchNormalization": Probe("BatchNormalization", (1, 16, 2048), (np.ones(16, np.float32),) * 4),
    "ReduceMean": Probe("ReduceMean", SHAPE, constants([-1]), chained=False),
    "ReduceSum": Probe("ReduceSum", SHAPE, constants([-1]), chained=False),
    "ReduceMax": Probe("ReduceMax", SHAPE, constants([-1]), chained=False),
    "CumSum": Probe("CumSum", SHAPE, (np.array(1, np.int64),)),
    "Transpose": Probe("Transpose", HEADS, attributes={"perm": (0, 2, 1, 3)}, chained=False),
    "Transpose:last": Probe("Transpose", HEADS, attributes={"perm": (0, 1, 3, 2)}, chained=False),
    "Concat": Probe("Concat", SHAPE, (_FULL[:, :128],), {"axis": 1}, chained=False),
    "Split": Probe("Split", SHAPE, constants([128, 128]), {"axis": 1}, chained=False, outputs=2),
    "Slice": Probe("Slice", (ROWS, 2 * COLUMNS), constants([0], [COLUMNS], [1]), chained=False),
    "Gather": Probe("Gather", SHAPE, constants(list(range(ROWS)))),
    "Expand": Probe("Expand", (ROWS, 1), constants(list(SHAPE)), chained=False),
    "Tile": Probe("Tile", (ROWS, COLUMNS // 2), constants([1, 2]), chained=False),
    "Pad": Probe("Pad", SHAPE, constants([0, 1, 0, 1]), chained=False),
    "MaxPool": Probe("MaxPool", (1, 8, 64, 64), attributes={"kernel_shape": (2, 2), "strides": (2, 2)}, chained=False),
    "AveragePool": Probe("AveragePool", (1, 8, 64, 64), attributes={"kernel_shape": (2, 2), "strides": (2, 2)}, chained=False),
    BROADCAST_STEP: Probe("Add", (STRETCHES, 8), (np.zeros(8, np.float32),)),
    ROW_STEP: Probe("Softmax", (STRETCHES // 2, 16)),
    "Conv:depthwise": Probe("Conv", (1, 16, 64, 32), (np.ones((16, 1, 3, 3), np.float32),), {"group": 16, "pads": (1, 1, 1, 1)}),
}

# How often the counters apply each op to the probe, where that is not the elements of x.
APPLIED = {
    "Transpose": prod(HEADS[:3]),
    BROADCAST_STEP: STRETCHES,
    ROW_STEP: STRETCHES // 2,
    "Concat": ROWS * (COLUMNS + 128),
    "Slice": ROWS * COLUMNS,
    "Expand": ROWS * COLUMNS,
    "Tile": ROWS * COLUMNS,
    "Pad": ROWS * (COLUMNS + 2),
    "Conv:depthwise": 16 * 64 * 32 * 9,
}

GEMM = Probe("MatMul", (192, 256), (np.full((256, 256), 0.01, np.float32),), chained=False)
GEMM_FLOPS = 2 * 192 * 256 * 256
# Products of so many rows with a matrix of so many columns and steps, which reach other rates than GEMM does. Few rows wait
# for the weights, which the model counts by itself, so these are near; many have theirs in no cache of the core, as in models.
GEMM_ROWS = {1: 256, 8: 256, 16: 256, 64: 1024, 128: 1024, 256: 1024}
GEMMS = {m: Probe("MatMul", (m, n), (np.full((n, n), 0.01, np.float32),), chained=False) for m, n in GEMM_ROWS.items()}
HEADWISE = Probe("MatMul", (4, 128, 64), (np.full((4, 64, 128), 0.01, np.float32),), chained=False)
HEADWISE_FLOPS = 2 * 4 * 128 * 64 * 128
HEADWISE_STEPS = 4 * 128 * (64 + 128)
CONV = Probe("Conv", (1, 64, 14, 14), (np.full((64, 64, 3, 3), 0.01, np.float32),), {"pads": (1, 1, 1, 1)})
CONV_FLOPS = 2 * 64 * 64 * 9 * 14 * 14
TINY = Probe("Relu", (16,))
TINY_OPERANDS = Probe("LayerNormalization", (1, 16), (np.ones(16, np.float32),) * 2)  # twice the operands of TINY


def copy_probe(elements: int) -> Probe:
    """A pointwise op that does no more than read and write so many elements."""
    return Probe("Mul", (max(16, elements),), constants(1.0000001))
