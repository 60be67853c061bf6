"""Programs on the CPU, on every instruction set: each primitive on each type against numpy, however the inputs lie."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import Array, Kernels, at_page_end
from tests.kernels.program import DTYPES, REALS, WHOLES, Compiled, ProgramError, one
from tests.kernels.test_simd import same_bits

SIZES = (0, 1, 2, 15, 16, 17, 31, 33, 127, 1031)
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 1e-40, -1e-40, 1e-6, 60.0, -60.0, 3e38, -3e38, np.inf, -np.inf, np.nan]
NARROW = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def samples(kind: str, size: int, seed: int = 0) -> Array:
    """Values of every sort that the type has."""
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return rng.integers(0, 2, size).astype(np.bool_)
    if kind in WHOLES:
        info = np.iinfo(DTYPES[kind])
        edges = np.array([info.min, info.max, 0, 1, 2, 3, info.max - 1], dtype=DTYPES[kind])
        spread = rng.integers(info.min, info.max, size, dtype=DTYPES[kind], endpoint=True)
        return np.where(rng.random(size) < 0.5, rng.choice(edges, size), spread).astype(DTYPES[kind])
    values = np.where(rng.random(size) < 0.4, rng.choice(SPECIAL, size), rng.standard_normal(size) * 4)
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(DTYPES[kind])


def choose(condition: Array, x: Any, y: Any) -> Array:
    """x where the condition holds, else y."""
    return np.asarray(np.where(condition, x, y))


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


# Each in float64; the bound is in ulp of float, for the values that numpy gives (of a sum of parts: of the largest part).
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "Exp": (np.exp, 1.5),
    "Log": (np.log, 1.5),
    "Sigmoid": (lambda x: choose(x < 0, np.exp(-np.abs(x)), 1.0) / (1 + np.exp(-np.abs(x))), 3.0),
    "Tanh": (np.tanh, 2.0),
    "Erf": (erf, 2.0),
    "Sin": (np.sin, 2.0),
    "Cos": (np.cos, 2.0),
    "Tan": (np.tan, 2.0),
    "Asin": (np.arcsin, 2.0),
    "Acos": (np.arccos, 2.0),
    "Atan": (np.arctan, 2.0),
    "Sinh": (np.sinh, 3.0),
    "Cosh": (np.cosh, 3.0),
    "Asinh": (np.arcsinh, 3.0),
    "Acosh": (np.arccosh, 3.0),
    "Atanh": (np.arctanh, 3.0),
    "Softplus": (softplus, 2.5),
    "Softsign": (lambda x: x / (1 + np.abs(x)), 1.5),
}


def exact(kind: str, f: Callable[..., Array]) -> Callable[..., Array]:
    """f as IEEE has it: 16-bit types computed in float and rounded once."""

    def rounded(*x: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = [v.astype(np.float32) if kind in NARROW else v for v in x]
            return f(*wide).astype(DTYPES[kind])

    return rounded


def sign(x: Array) -> Array:
    return choose(np.isnan(x), x, choose(x > 0, 1.0, choose(x < 0, -1.0, 0.0))).astype(x.dtype)


EXACT_REAL: dict[str, Callable[..., Array]] = {
    "Identity": lambda x: x,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: np.ones_like(x) / x,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": sign,
    "Relu": lambda x: choose(x < 0, x.dtype.type(0), x),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": lambda x, y: choose(np.isnan(x) | (x > y), x, y),
    "Min": lambda x, y: choose(np.isnan(x) | (x < y), x, y),
    "FMod": np.fmod,
    "PRelu": lambda x, y: choose(x < 0, x * y, x),
}
EXACT_NARROW: dict[str, Callable[..., Array]] = {"Sign": lambda x: choose(np.isnan(x), 0.0, sign(x))}  # where 16-bit types differ
EXACT_WHOLE: dict[str, Callable[..., Array]] = {
    "Neg": np.negative,
    "Abs": lambda x: choose(x < 0, np.negative(x), x),
    "Sign": np.sign,
    "Relu": lambda x: np.maximum(x, 0),
    "BitwiseNot": np.invert,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "PRelu": lambda x, y: choose(x < 0, x * y, x),
}
COMPARE: dict[str, Callable[..., Array]] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


def arity(f: Callable[..., Array]) -> int:
    return f.nin if isinstance(f, np.ufunc) else f.__code__.co_argcount


def check_exact(kernels: Kernels, op: str, kind: str, want: Callable[..., Array], result: str | None = None) -> None:
    count = arity(EXACT_REAL.get(op) or EXACT_WHOLE.get(op) or COMPARE[op]) if op not in LOGIC else arity(LOGIC[op])
    program = Compiled(kernels, one(op, *[kind] * count, result=result))
    for size in SIZES:
        x = [samples(kind, size, seed) for seed in range(count)]
        got = program(*x)[0]
        with np.errstate(all="ignore"):
            expected = want(*x)
        if kind in REALS and result is None:
            assert same_bits(got.astype(np.float64), expected.astype(np.float64)), (op, kind, size, x, got, expected)
        else:
            assert (got == expected).all(), (op, kind, size, x, got, expected)


@pytest.mark.parametrize("op", EXACT_REAL)
def test_exact_primitive_of_real_types_gives_the_bits_of_ieee(kernels: Kernels, op: str) -> None:
    for kind in REALS:
        check_exact(kernels, op, kind, exact(kind, {**EXACT_REAL, **(EXACT_NARROW if kind in NARROW else {})}[op]))


@pytest.mark.parametrize("op", EXACT_WHOLE)
def test_integer_primitive_wraps(kernels: Kernels, op: str) -> None:
    for kind in WHOLES:
        check_exact(kernels, op, kind, EXACT_WHOLE[op])


@pytest.mark.parametrize("op", COMPARE)
def test_comparison_of_every_type(kernels: Kernels, op: str) -> None:
    for kind in (*REALS, *WHOLES, *(["bool"] if op == "Equal" else [])):
        check_exact(kernels, op, kind, COMPARE[op], result="bool")


LOGIC: dict[str, Callable[..., Array]] = {
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}


@pytest.mark.parametrize("op", LOGIC)
def test_logic(kernels: Kernels, op: str) -> None:
    check_exact(kernels, op, "bool", LOGIC[op], result="bool")


@pytest.mark.parametrize("op", FUNCTIONS)
def test_function_is_within_its_bound(kernels: Kernels, op: str) -> None:
    f, bound = FUNCTIONS[op]
    for kind in REALS:
        program = Compiled(kernels, one(op, kind))
        for size in SIZES:
            x = samples(kind, size)
            got = program(x)[0].astype(np.float64)
            with np.errstate(all="ignore"):
                want = f(x.astype(np.float64))
                limit = want.astype(DTYPES[kind]).astype(np.float64)
            same = (np.isnan(got) & np.isnan(want)) | (got == want) | (got == limit)
            unit = NARROW.get(kind, 2.0**-23 if kind == "float" else 2.0**-52)
            least = {"float": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "double": 5e-324}[kind]
            allowed = (bound if kind not in NARROW else 1.0 + bound * 2.0**-11) * unit * np.abs(want) + least
            if op in ("Sin", "Cos", "Tan"):
                allowed += 1e-7 if kind != "double" else 1e-15
            with np.errstate(all="ignore"):
                near = np.abs(got - want) <= allowed
            assert (same | near).all(), (op, kind, x[~(same | near)], got[~(same | near)], want[~(same | near)])


@pytest.mark.parametrize(("op", "f"), [("Gelu", lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))), ("GeluTanh", gelu_tanh)])
def test_gelu_is_near(kernels: Kernels, op: str, f: Callable[[Array], Array]) -> None:
    for kind in REALS:
        x = np.random.default_rng(0).uniform(-8, 8, 1031).astype(DTYPES[kind])
        got = Compiled(kernels, one(op, kind))(x)[0].astype(np.float64)
        assert np.abs(got - f(x.astype(np.float64))).max() <= 8 * NARROW.get(kind, 1e-7 if kind == "float" else 1e-15)


def test_sine_of_what_is_large_is_that_of_libm(kernels: Kernels) -> None:
    x = np.array([8192.0, -8192, 8193, 1e5, -1e7, 3e38, np.inf, np.nan] * 3, np.float32)
    for op, f in (("Sin", np.sin), ("Cos", np.cos)):
        with np.errstate(all="ignore"):
            want = f(x.astype(np.float64))
        assert np.allclose(Compiled(kernels, one(op, "float"))(x)[0], want, atol=2e-7, rtol=0, equal_nan=True)


@pytest.mark.parametrize("kind", REALS)
def test_power(kernels: Kernels, kind: str) -> None:
    x, y = samples(kind, 1031, 1), samples(kind, 1031, 2)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(DTYPES[kind]).astype(np.float64)
    got = Compiled(kernels, one("Pow", kind, kind))(x, y)[0].astype(np.float64)
    assert np.allclose(got, want, rtol=4 * NARROW.get(kind, 2.0**-23), atol=1e-300, equal_nan=True)
    for exponent, f in ((2, lambda v: v * v), (3, lambda v: v * v * v)):
        one_number = np.full((), exponent, DTYPES[kind])
        want = exact(kind, f)(x).astype(np.float64)
        assert same_bits(Compiled(kernels, one("Pow", kind, kind))(x, one_number)[0].astype(np.float64), want)


@pytest.mark.parametrize("kind", WHOLES)
def test_integer_quotients(kernels: Kernels, kind: str) -> None:
    x, y = samples(kind, 1031, 1), samples(kind, 1031, 2)
    y[y == 0] = 7
    wide_x, wide_y = [int(v) for v in x], [int(v) for v in y]
    quotient = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(wide_x, wide_y, strict=True)]
    expected = {
        "Div": quotient,
        "FMod": [a - q * b for a, b, q in zip(wide_x, wide_y, quotient, strict=True)],
        "Mod": [a % b for a, b in zip(wide_x, wide_y, strict=True)],
    }
    bits = 8 * np.dtype(DTYPES[kind]).itemsize
    for op, numbers in expected.items():
        want = np.array([n % 2**bits for n in numbers], np.uint64).astype(f"u{bits // 8}").view(DTYPES[kind])
        assert (Compiled(kernels, one(op, kind, kind))(x, y)[0] == want).all(), op


@pytest.mark.parametrize("op", ["Div", "Mod", "FMod"])
def test_division_of_an_integer_by_zero_is_an_error(kernels: Kernels, op: str) -> None:
    for kind in WHOLES:
        x = np.ones(37, DTYPES[kind])
        y = x.copy()
        program = Compiled(kernels, one(op, kind, kind))
        program(x, y)
        y[36] = 0
        with pytest.raises(ProgramError, match="divided by zero"):
            program(x, y)


def test_shift_by_the_width_or_more_gives_zero(kernels: Kernels) -> None:
    for kind in (k for k in WHOLES if k.startswith("u")):
        bits = 8 * np.dtype(DTYPES[kind]).itemsize
        x = np.repeat(np.array([1, 3, np.iinfo(DTYPES[kind]).max], DTYPES[kind]), bits + 2)
        by = np.tile(np.arange(bits + 2), 3).astype(DTYPES[kind])
        left = [int(a) << int(b) & (2**bits - 1) for a, b in zip(x, by, strict=True)]
        right = [int(a) >> int(b) for a, b in zip(x, by, strict=True)]
        assert [int(v) for v in Compiled(kernels, one("ShiftLeft", kind, kind))(x, by)[0]] == left
        assert [int(v) for v in Compiled(kernels, one("ShiftRight", kind, kind))(x, by)[0]] == right


def test_tests_of_nan_and_infinity(kernels: Kernels) -> None:
    for kind in REALS:
        x = samples(kind, 137)
        assert (Compiled(kernels, one("IsNaN", kind, result="bool"))(x)[0] == np.isnan(x.astype(np.float64))).all()
        assert (Compiled(kernels, one("IsInf", kind, result="bool"))(x)[0] == np.isinf(x.astype(np.float64))).all()


def test_where_and_clip_of_every_type(kernels: Kernels) -> None:
    for kind in DTYPES:
        for size in SIZES:
            c, x, y = samples("bool", size, 1), samples(kind, size, 2), samples(kind, size, 3)
            got = Compiled(kernels, one("Where", "bool", kind, kind))(c, x, y)[0]
            assert got.tobytes() == choose(c, x, y).tobytes() or kind in NARROW
            assert np.array_equal(got.astype(np.float64), choose(c, x, y).astype(np.float64), equal_nan=True)
        if kind == "bool":
            continue
        x, low, high = samples(kind, 137, 2), np.full((), 1, DTYPES[kind]), np.full((), 3, DTYPES[kind])
        want = choose(np.isnan(x.astype(np.float64)), x, np.minimum(np.maximum(x, low), high))
        got = Compiled(kernels, one("Clip", kind, kind, kind))(x, low, high)[0]
        assert np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("source", DTYPES)
def test_cast_to_every_type(kernels: Kernels, source: str) -> None:
    for target in DTYPES:
        x = samples(source, 1031)
        if source in REALS and target in WHOLES:  # what fits
            info, wide = np.iinfo(DTYPES[target]), x.astype(np.float64)
            x = x[(wide > float(info.min) - 1) & (wide < float(info.max))]
        with np.errstate(all="ignore"):
            middle = x.astype(np.float32) if target in NARROW else x
            want = (x != 0) if target == "bool" else middle.astype(DTYPES[target])
        got = Compiled(kernels, one("Cast", source, result=target))(x)[0]
        assert np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True), (source, target)


def test_cast_of_what_does_not_fit_is_that_of_the_processor(kernels: Kernels) -> None:
    x = np.array([128, 255.5, 300, -300, 65541, -70000, 2147483648.0, -2147483904.0, 1e10, np.inf, -np.inf, np.nan], np.float32)
    expected = {
        "int8": [-128, -1, 44, -44, 5, -112, 0, 0, 0, 0, 0, 0],
        "uint16": [128, 255, 300, 65236, 5, 61072, 0, 0, 0, 0, 0, 0],
        "int32": [128, 255, 300, -300, 65541, -70000, *[-(2**31)] * 6],
        "int64": [128, 255, 300, -300, 65541, -70000, 2147483648, -2147483904, 10**10, *[-(2**63)] * 3],
    }
    for target, want in expected.items():
        assert Compiled(kernels, one("Cast", "float", result=target))(x)[0].tolist() == want, target


SECONDS = ("Add", "Sub", "Mul", "Max", "Min")
PAIRS = [(a, b, swapped) for a in (*SECONDS, "Neg", "Abs") for b in SECONDS for swapped in (False, True)]


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
def test_two_primitives_in_one_kernel_round_twice(kernels: Kernels, kind: str) -> None:
    x = [samples(kind, 1031, seed) for seed in range(3)]
    for first, second, swapped in PAIRS:
        operands = "x2, v0" if swapped else "v0, x2"
        own = (0,) if first in ("Neg", "Abs") else (0, 1)
        read = ", ".join(f"x{i}" for i in own)
        text = f"x0:{kind} x1:{kind} x2:{kind}\nv0:{kind} = {first}({read})\nv1:{kind} = {second}({operands})\n-> v1"
        v = exact(kind, EXACT_REAL[first])(*(x[i] for i in own))
        want = exact(kind, EXACT_REAL[second])(*((x[2], v) if swapped else (v, x[2])))
        got = Compiled(kernels, text)(*x)[0]
        assert same_bits(got.astype(np.float64), want.astype(np.float64)), (first, second, swapped)
    for gate, second, swapped in itertools.product(("Sigmoid", "Tanh", "Exp"), SECONDS, (False, True)):
        v = Compiled(kernels, one(gate, kind))(x[0])[0]
        want = exact(kind, EXACT_REAL[second])(*((x[1], v) if swapped else (v, x[1])))
        operands = "x1, v0" if swapped else "v0, x1"
        got = Compiled(kernels, f"x0:{kind} x1:{kind}\nv0:{kind} = {gate}(x0)\nv1:{kind} = {second}({operands})\n-> v1")(*x[:2])[0]
        assert same_bits(got.astype(np.float64), want.astype(np.float64)), (gate, second, swapped)


LAYOUTS: list[tuple[tuple[int, ...], ...]] = [
    ((7, 513), (513,), (7, 1), ()),
    ((3, 5, 300), (5, 1), (3, 1, 300), (1, 1, 1)),
    ((2, 3, 4, 5), (4, 1), (3, 1, 5), (2, 1, 1, 1)),
    ((31, 3), (3,), (31, 1), (31, 3)),
    ((1, 5000), (1, 1), (5000,), (1,)),
    ((4, 1, 6), (5, 1), (1, 6), (4, 5, 1)),
    ((0, 5), (5,), (1, 5), ()),
    ((257, 2, 1), (1, 128), (2, 1), (257, 1, 128)),
]


@pytest.mark.parametrize("shapes", LAYOUTS)
@pytest.mark.parametrize("kind", ["float", "float16", "int32", "uint8", "double"])
def test_inputs_broadcast_without_being_copied_out(kernels: Kernels, kind: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    text = (
        f"x0:{kind} x1:{kind} x2:{kind} x3:{kind}\nv0:{kind} = Sub(x0, x1)\nv1:{kind} = Max(v0, x2)\n"
        f"v2:{kind} = Sub(x1, x3)\nv3:{kind} = Add(v1, v2)\n-> v3, v2, x1"
    )
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 9, shape).astype(DTYPES[kind]) for shape in shapes]
    full = [v.astype(DTYPES[kind]) for v in np.broadcast_arrays(*x)]
    v2 = full[1] - full[3]
    want = [np.maximum(full[0] - full[1], full[2]) + v2, v2, full[1]]
    for threads in (1, 3):
        for got, expected in zip(Compiled(kernels, text)(*x, threads=threads), want, strict=True):
            assert np.array_equal(got, expected)


def test_inputs_that_do_not_broadcast_are_an_error(kernels: Kernels) -> None:
    program = Compiled(kernels, one("Add", "float", "float"))
    with pytest.raises(ProgramError, match=r"must broadcast to one shape; input 1 is \[4\], those before it \[2,3\]"):
        program(np.zeros((2, 3), np.float32), np.zeros(4, np.float32))


def test_a_result_may_be_written_over_an_input_that_is_read_later(kernels: Kernels) -> None:
    text = "x0:float x1:float\nv0:float = Add(x0, x1)\nv1:float = Mul(v0, v0)\nv2:float = Sub(x0, v1)\n-> v0, v2"
    x, y = (np.random.default_rng(seed).standard_normal(5000).astype(np.float32) for seed in (0, 1))
    v0 = x + y
    for over in (0, 1):
        got = Compiled(kernels, text)(x, y, over=over)
        assert (got[0] == v0).all() and (got[1] == x - v0 * v0).all()


def test_large_results_are_written_past_the_caches(kernels: Kernels) -> None:
    """At least 16 MiB, and not a whole number of cache lines."""
    x = np.arange(2**22 + 5, dtype=np.float32)
    got = Compiled(kernels, "x0:float\nv0:float = Neg(x0)\nv1:float = Abs(v0)\n-> v0, v1")(x, threads=2)
    assert (got[0] == -x).all() and (got[1] == x).all()


JOINED = (  # shapes of the pieces, axis, shape of another input
    (((5,), (3,)), -1, (8,)),
    (((2, 700), (2, 0), (2, 331)), -1, (1031,)),
    (((1, 33), (4, 33), (2, 33)), -2, (7, 1)),
    (((2, 3, 1), (2, 5, 1)), -2, (2, 8, 129)),
    (((2, 3, 17), (2, 5, 17)), -2, (4, 1, 8, 17)),
    (((3, 1, 65), (1, 1, 65)), -3, (4, 9, 65)),
    (tuple((3, 1 + i) for i in range(8)), -1, (3, 1)),
    (((0, 4), (0, 4)), -2, (1, 4)),
)


@pytest.mark.parametrize("kind", ["float", "double", "int8", "float16"])
@pytest.mark.parametrize(("shapes", "axis", "beside"), JOINED)
def test_joined_inputs_are_one_input(
    kernels: Kernels, kind: str, shapes: tuple[tuple[int, ...], ...], axis: int, beside: tuple[int, ...]
) -> None:
    arrays = [samples(kind, math.prod(shape), seed).reshape(shape) for seed, shape in enumerate((*shapes, beside))]
    names = [f"x{i}" for i in range(len(arrays))]
    head = " ".join(f"{name}:{kind}" for name in names)
    text = f"{head}\nv0:{kind} = Max({names[-1]}, {names[-1]})\nv1:{kind} = Concat({', '.join(names[:-1])}, {axis})\n"
    program = Compiled(kernels, f"{text}v2:bool = Less(v1, v0)\n-> v2, v1")
    for threads in (1, 3):
        less, joined = program(*arrays, threads=threads)
        want = np.concatenate(arrays[:-1], axis)
        same_bits(less, np.less(want, arrays[-1]))
        same_bits(joined, np.broadcast_to(want, less.shape).copy())


def test_inputs_that_cannot_be_joined_are_an_error(kernels: Kernels) -> None:
    program = Compiled(kernels, "x0:float x1:float\nv0:float = Concat(x0, x1, -2)\n-> v0")
    wrong = {((2, 3), (2, 4)): "alike but for axis -2; got .2,3. and .2,4.", ((3,), (3,)): "must have the axis -2"}
    for shapes, words in wrong.items():
        with pytest.raises(ProgramError, match=words):
            program(*(np.zeros(shape, np.float32) for shape in shapes))


def test_sizes_of_inputs(kernels: Kernels) -> None:
    text = "x0:float x1:int64\nv0:int64 = Dim(x0, -1)\nv1:int64 = Dim(x0, 0)\nv2:int64 = Mul(v0, x1)\nv3:int64 = Add(v2, v1)\n-> v3"
    x = np.arange(40)
    assert (Compiled(kernels, text)(np.zeros((7, 3), np.float32), x)[0] == x * 3 + 7).all()
    with pytest.raises(ProgramError, match=r"asks for axis -1 of input 0; got \[\]"):
        Compiled(kernels, text)(np.zeros((), np.float32), x)


def test_a_result_may_be_an_input_a_constant_or_come_twice(kernels: Kernels) -> None:
    x = np.arange(37, dtype=np.float32)
    y = np.arange(37, dtype=np.int16)
    text = "x0:float x1:int16\nv0:float = Const(0x1.8p+1)\nv1:float = Neg(x0)\nv2:int64 = Const(-7)\n-> v0, x0, v1, v1, v2, x1"
    got = Compiled(kernels, text)(x, y)
    want: list[Any] = [np.full(37, 3.0), x, -x, -x, np.full(37, -7), y]
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_bytes_other_than_one_are_true(kernels: Kernels) -> None:
    x = at_page_end(np.arange(40, dtype=np.uint8)).view(np.bool_)
    got = Compiled(kernels, "x0:bool\nv0:bool = Not(x0)\nv1:bool = Not(v0)\n-> v1")(x)[0]
    assert got.view(np.uint8).tolist() == [0] + [1] * 39


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_step_on_a_narrow_type_is_rounded(kernels: Kernels, dtype: Any) -> None:
    kind = "float16" if dtype is np.float16 else "bfloat16"
    x = np.random.default_rng(0).standard_normal(1000).astype(dtype)
    text = f"x0:{kind}\nv0:{kind} = Mul(x0, x0)\nv1:{kind} = Abs(v0)\nv2:{kind} = Sqrt(v1)\nv3:{kind} = Sub(v2, x0)\n-> v3"
    square = (x.astype(np.float32) * x.astype(np.float32)).astype(dtype).astype(np.float32)
    want = (np.sqrt(square).astype(dtype).astype(np.float32) - x.astype(np.float32)).astype(dtype)
    assert np.array_equal(Compiled(kernels, text)(x)[0].astype(np.float32), want.astype(np.float32))
