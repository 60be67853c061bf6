"""Which types ONNX Runtime's CPU runs each primitive in, as 1.18 to 1.32 do: where a body can be compared with a kernel."""

from __future__ import annotations

from onnxfuse.generated.primitives import HALF, INTEGERS, PRIMITIVES, TYPES, is_reduction

SINGLE = ("float", "float16")
REAL = (*SINGLE, "double")
WIDE = ("int32", "int64")


def _each(names: str, kinds: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names.split(), kinds)


RUNS: dict[str, tuple[str, ...]] = {
    **_each("Add Sub Mul Div FMod Abs Less Greater LessOrEqual GreaterOrEqual", (*REAL, *WIDE)),
    **_each("Max Min", (*REAL, *WIDE, "int8", "uint8", "uint32", "uint64")),
    "Pow": (*REAL, *WIDE),
    "Clip": ("float", "double", *WIDE, "int8", "uint8", "uint32", "uint64"),
    "Neg": (*REAL, "int8", *WIDE),
    "Relu": (*REAL, "int32"),
    "Sign": (*REAL, *INTEGERS),
    **_each("Sqrt Reciprocal Exp Log Tanh Sigmoid Sin Cos Floor Ceil Round IsNaN", REAL),
    "IsInf": REAL,
    **_each("PRelu Erf Softplus Softsign Gelu GeluTanh Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh", SINGLE),
    "Equal": (*REAL, *WIDE, "bool"),
    **_each("And Or Xor Not", ("bool",)),
    **_each("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Mod", INTEGERS),
    **_each("ShiftLeft ShiftRight", ("uint8", "uint32", "uint64")),
    "Where": (*SINGLE, *WIDE, "uint8"),
    **_each("Cast Const Identity Dim", tuple(t for t in TYPES if t not in HALF[1:])),
    **_each("ReduceSum ReduceMean ReduceProd ReduceSumSquare ReduceL1", (*REAL, *WIDE)),
    **_each("ReduceMax ReduceMin", (*REAL, *WIDE, "int8", "uint8")),
    **_each("ReduceL2 ReduceLogSumExp", REAL),
}


def alone(kind: str) -> list[str]:
    """The primitives of operands of one type that run in it, but for reductions and those that have an operand or result of their own."""
    odd = ("Cast", "Const", "Dim", "Where", "Identity", "Clip")
    return [op for op in PRIMITIVES if op not in odd and not is_reduction(op) and kind in RUNS[op]]
