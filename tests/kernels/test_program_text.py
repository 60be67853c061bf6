"""What is no program is said to be none, with its line; nothing that a model says makes the process fail."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.kernels.harness import Kernels
from tests.kernels.program import Compiled, ProgramError

BAD = {
    "": "line 1: a program has a line of inputs, its values, and a line of results",
    "x0:float": "line 1: a program has a line of inputs",
    "\n-> x0": "line 1: a program must have 1 to 32 inputs; got 0",
    "x0:half\n-> x0": "line 1: 'half' must be an element type",
    "x0 float\n-> x0": "line 1: ':' must stand at 'float'",
    "x0:float x0:float\n-> x0": "line 1: 'x0' is defined twice",
    "x0:float\n": "line 1: a program has a line of inputs",
    "x0:float\nx0": "line 2: '->' must stand at 'x0'",
    "x0:float\n-> v0": "line 2: 'v0' must be defined before it is used",
    "x0:float\n-> x0 x0": "line 2: results must be names",
    "x0:float\nv0:float = Foo(x0)\n-> v0": "line 2: 'Foo' is no primitive of programs",
    "x0:float\nv0:float = Add(x0)\n-> v0": "line 2: ',' must stand at",
    "x0:float\nv0:float = Neg(x0, x0)\n-> v0": "line 2: '\\)' must stand at",
    "x0:float\nv0:float = Neg(v0)\n-> v0": "line 2: 'v0' must be defined before it is used",
    "x0:float\nx0:float = Neg(x0)\n-> x0": "line 2: 'x0' is defined twice",
    "x0:float\nv0:double = Neg(x0)\n-> v0": "line 2: the type of Neg must be float; got double",
    "x0:float x1:double\nv0:float = Add(x0, x1)\n-> v0": "line 2: arguments of Add must have one type; got float and double",
    "x0:bool\nv0:bool = Add(x0, x0)\n-> v0": "line 2: arguments of Add must have a number type; got bool",
    "x0:int32\nv0:int32 = Exp(x0)\n-> v0": "line 2: arguments of Exp must have a floating-point type; got int32",
    "x0:float\nv0:float = BitwiseNot(x0)\n-> v0": "line 2: arguments of BitwiseNot must have an integer type; got float",
    "x0:int8\nv0:int8 = ShiftLeft(x0, x0)\n-> v0": "line 2: arguments of ShiftLeft must have an unsigned integer type; got int8",
    "x0:float\nv0:float = Not(x0)\n-> v0": "line 2: arguments of Not must have bool; got float",
    "x0:float\nv0:float = Less(x0, x0)\n-> v0": "line 2: the type of Less must be bool; got float",
    "x0:float\nv0:float = Where(x0, x0, x0)\n-> v0": "line 2: the condition of Where must be bool; got float",
    "x0:float\nv0:float = Const()\n-> v0": "line 2: Const must be a value that float has; got ''",
    "x0:float\nv0:int8 = Const(128)\n-> v0": "line 2: Const must be a value that int8 has; got '128'",
    "x0:float\nv0:uint64 = Const(-1)\n-> v0": "line 2: Const must be a value that uint64 has; got '-1'",
    "x0:float\nv0:bool = Const(1)\n-> v0": "line 2: Const must be a value that bool has; got '1'",
    "x0:float\nv0:float = Neg(x0) x\n-> v0": "line 2: nothing may stand behind the '\\)'",
    "x0:float\nv0:float = Dim(x0, 0)\n-> v0": "line 2: Dim must be int64, of an input and a number; got axis '0'",
    "x0:float\nv0:int64 = Dim(x0, y)\n-> v0": "line 2: Dim must be int64, of an input and a number; got axis 'y'",
    "x0:float\nv0:float = Concat(-1)\n-> v0": "line 2: Concat must be of 1 to 8 inputs; got 0",
    "x0:float\nv0:float = Concat(" + "x0, " * 9 + "-1)\n-> v0": "line 2: Concat must be of 1 to 8 inputs; got 9",
    "x0:float\nv0:float = Concat(x0, 0)\n-> v0": "line 2: the axis of a Concat must be a number below 0, counted from the end; got '0'",
    "x0:float x1:int8\nv0:float = Concat(x0, x1, -1)\n-> v0": "line 2: Concat must be of inputs of its own type that are not marked /row",
    "x0:float x1:float/row\nv0:float = Concat(x1, -1)\n-> v0": "line 2: Concat must be of inputs of its own type that are not marked /row",
    "x0:float\nv0:float = Concat(x0, -1)\nv1:float = Concat(v0, -1)\n-> v1": "line 3: Concat must be of inputs",
    "x0:float\nv0:float = Neg(x0)\nv1:float = Concat(v0, -1)\n-> v1": "line 3: 'v0' must be defined before it is used",
    "x0:float\nv0:float = Concat(x0, -1)\nv1:int64 = Dim(v0, -1)\n-> v1": "line 3: Dim must be int64, of an input and a number",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_program_is_refused_with_its_line(kernels: Kernels, text: str) -> None:
    with pytest.raises(ProgramError, match=f"program, {BAD[text]}"):
        Compiled(kernels, text)


def test_there_is_a_most_of_everything(kernels: Kernels) -> None:
    inputs = " ".join(f"x{i}:float" for i in range(33))
    with pytest.raises(ProgramError, match="1 to 32 inputs; got 33"):
        Compiled(kernels, f"{inputs}\n-> x0")
    with pytest.raises(ProgramError, match="at most 16 results; got 17"):
        Compiled(kernels, "x0:float\n-> " + ", ".join(["x0"] * 17))
    steps = "".join(f"v{i}:float = Neg(x0)\n" for i in range(513))
    with pytest.raises(ProgramError, match="at most 512 values"):
        Compiled(kernels, f"x0:float\n{steps}-> v0")


def test_constants_of_every_form(kernels: Kernels) -> None:
    forms = {"0.1": 0.1, "-0x1.8p-3": -0.1875, "inf": np.inf, "-inf": -np.inf, "nan": np.nan, "1e-3": 1e-3, "7": 7.0, "1e+30": 1e30}
    for text, value in forms.items():
        got = Compiled(kernels, f"x0:double\nv0:double = Const({text})\nv1:double = Add(x0, v0)\n-> v1")(np.zeros(3))[0]
        assert np.array_equal(got, np.full(3, value), equal_nan=True), text
    for kind, text in (("int64", "-9223372036854775808"), ("uint64", "18446744073709551615"), ("int8", "-128"), ("uint16", "65535")):
        got = Compiled(kernels, f"x0:{kind}\nv0:{kind} = Const({text})\n-> v0")(np.zeros(2, kind))[0]
        assert [str(v) for v in got] == [text] * 2
    assert Compiled(kernels, "x0:bool\nv0:bool = Const(true)\n-> v0")(np.zeros(2, np.bool_))[0].all()


def test_texts_broken_at_random_do_no_harm(kernels: Kernels) -> None:
    text = "x0:float x1:bool\nv0:float = Const(0.5)\nv1:float = Mul(x0, v0)\nv2:float = Where(x1, v1, x0)\n-> v2, v1"
    x, y = np.ones(3, np.float32), np.ones(3, np.bool_)
    rng = random.Random(0)
    for _ in range(300):
        at = rng.randrange(len(text))
        broken = text[:at] + rng.choice(["", "x", ")", "\n", ",", "0", "\x80", "-> "]) + text[at + rng.randrange(3) :]
        try:
            program = Compiled(kernels, broken)
            program(x, y)
        except (ProgramError, KeyError, ValueError, IndexError):
            continue
