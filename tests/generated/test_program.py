"""Programs as text and as values."""

from __future__ import annotations

import pytest

from onnxfuse.errors import UsageError
from onnxfuse.generated.made_up import made_up
from onnxfuse.generated.program import Program, parse

MIXED = """x0:float x1:float16 x2:bool
v0:float = Const(0.5)
v1:float = Mul(x0, v0)
v2:float = Cast(x1)
v3:float = Where(x2, v1, v2)
-> v3, v1"""
NORM = """x0:float x1:float/row x2:float
v0:float = ReduceMean(x0)
v1:float = Const(2.0)
v2:float = Neg(v1)
v3:float = Add(v0, v2)
v4:float = Mul(v3, x1)
v5:float = Sub(x0, v4)
v6:float = Mul(v4, x2)
-> v4, v5"""


JOINED = """x0:int8 x1:int8 x2:int8/row
v0:int8 = Concat(x0, x1, -2)
v1:int8 = Max(v0, x2)
-> v1, v0"""


@pytest.mark.parametrize("text", [MIXED, NORM, JOINED])
def test_text_reads_back_as_it_was_written(text: str) -> None:
    assert parse(text).text == text


def test_every_made_up_program_reads_back() -> None:
    for seed in range(200):
        program = made_up(seed).program
        assert parse(program.text).text == program.text


def test_numbers_of_every_type_read_back() -> None:
    numbers = {"float": "inf 0.1 -0.0 1e-38 0x1.8p1", "int64": "-9223372036854775808 0x10", "uint8": "255", "bool": "true false"}
    for kind, words in numbers.items():
        for word in words.split():
            program = parse(f"x0:{kind}\nv0:{kind} = Const({word})\nv1:bool = Equal(x0, v0)\n-> v1")
            assert parse(program.text) == program


def test_types_and_rows_follow_from_the_text() -> None:
    program = parse(NORM)
    assert program.types["v4"] == "float"
    assert program.rows == {"x1", "v0", "v3", "v4"}
    assert program.is_reduction
    assert not parse(MIXED).is_reduction
    assert parse(JOINED).rows == {"x2"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("v0:float = Mul(x0, v0)", "must read inputs or earlier values"),
        ("v0:float = Mul(x0)", "must have 2 operands"),
        ("v0:float = Mul(x0, x1)", "operands of one type"),
        ("v0:float = Nothing(x0)", "a primitive that there is"),
        ("v0:int64 = Abs(x0)", "gives float"),
        ("v0:float = And(x0, x0)", "takes bool; got float"),
        ("v0:float8 = Cast(x0)", "must be of type float, "),
        ("v0:float = Const(word)", "must be a number of that type"),
        ("v0:float = Const()", "a Const has a number"),
        ("v1:float = Abs(x0)", "value 0 must be written `v0:float"),
        ("v0:float = Where(x2, x0, x1)", "operands of one type"),
        ("v0:float = Concat(x0, x1, -1)", "inputs of its own type"),
        ("v0:float = Concat(x0, 1)", "counted from the end"),
        ("v0:float = Concat(x0)", "counted from the end"),
    ],
)
def test_a_wrong_line_is_refused_with_what_must_stand_there(line: str, words: str) -> None:
    with pytest.raises(UsageError, match="program.*") as raised:
        parse(f"x0:float x1:double x2:bool\n{line}\n-> v0")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("results", "words"),
    [("-> v0, v0", "different values"), ("-> x0", "that a step makes"), ("", "must end in a line"), ("->", "got none")],
)
def test_results_are_different_values_that_steps_make(results: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(f"x0:float\nv0:float = Abs(x0)\n{results}")
    assert words in str(raised.value)


def test_a_reduction_of_what_was_reduced_is_refused() -> None:
    with pytest.raises(UsageError, match="must read what has a whole row"):
        parse("x0:float\nv0:float = ReduceMax(x0)\nv1:float = Neg(v0)\nv2:float = ReduceSum(v1)\n-> v2")


def test_a_program_says_what_it_computes() -> None:
    assert isinstance(parse(MIXED), Program)
    assert parse(MIXED).ops == ("Mul", "Cast", "Where")
