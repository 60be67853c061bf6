"""The primitives of generated operators: what they take and give. They go by the names of ONNX operators, and compute what those do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HALF = ("float16", "bfloat16")
FLOATS = ("float", *HALF, "double")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
BOOL = ("bool",)
TYPES = (*NUMBERS, *BOOL)

CONST, DIM, CONCAT, CAST, IDENTITY, WHERE = "Const", "Dim", "Concat", "Cast", "Identity", "Where"
MOST_PIECES = 8  # of a Concat, which takes inputs of its own type


@dataclass(frozen=True)
class Primitive:
    """takes: the types of each operand; from the `alike`-th on they are the same.

    gives: the types of the result; None where it is that of the operand at `alike`.
    """

    takes: tuple[tuple[str, ...], ...]
    gives: tuple[str, ...] | None = None
    alike: int = 0

    def problem(self, operands: Sequence[str], result: str) -> str | None:
        """What is wrong with operands and a result of these types, if anything is."""
        if len(operands) != len(self.takes):
            return f"must have {len(self.takes)} operands"
        for kind, allowed in zip(operands, self.takes, strict=True):
            if kind not in allowed:
                return f"takes {' '.join(allowed)}; got {kind}"
        if len(set(operands[self.alike :])) > 1:
            return f"takes operands of one type; got {' '.join(operands)}"
        gives = self.gives if self.gives is not None else operands[self.alike : self.alike + 1]
        return None if result in gives else f"gives {' or '.join(gives)}"


def _table(names: str, *takes: tuple[str, ...], gives: tuple[str, ...] | None = None) -> dict[str, Primitive]:
    return dict.fromkeys(names.split(), Primitive(takes, gives))


PRIMITIVES: dict[str, Primitive] = {
    CONST: Primitive((), TYPES),
    DIM: Primitive((TYPES,), ("int64",)),
    CAST: Primitive((TYPES,), TYPES),
    WHERE: Primitive((BOOL, TYPES, TYPES), alike=1),
    "Clip": Primitive((NUMBERS, NUMBERS, NUMBERS)),
    **_table(IDENTITY, TYPES),
    **_table("Add Sub Mul Div FMod Max Min Pow PRelu", NUMBERS, NUMBERS),
    **_table("Neg Abs Sign Relu", NUMBERS),
    **_table("Sqrt Reciprocal Exp Log Erf Tanh Sigmoid Softplus Softsign Gelu GeluTanh", FLOATS),
    **_table("Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Floor Ceil Round", FLOATS),
    **_table("IsNaN IsInf", FLOATS, gives=BOOL),
    **_table("Less Greater LessOrEqual GreaterOrEqual", NUMBERS, NUMBERS, gives=BOOL),
    **_table("Equal", TYPES, TYPES, gives=BOOL),
    **_table("And Or Xor", BOOL, BOOL),
    **_table("Not", BOOL),
    **_table("BitwiseAnd BitwiseOr BitwiseXor", INTEGERS, INTEGERS),
    **_table("BitwiseNot", INTEGERS),
    **_table("Mod", INTEGERS, INTEGERS),
    **_table("ShiftLeft ShiftRight", UNSIGNED, UNSIGNED),
    **_table("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp", NUMBERS),
}


def is_reduction(op: str) -> bool:
    """Whether the primitive makes one number of a row."""
    return op.startswith("Reduce")


def is_integer(kind: str) -> bool:
    """Whether the type holds whole numbers; bool does not count."""
    return kind in INTEGERS
