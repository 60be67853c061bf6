"""simd.h and half.h against float64, on every instruction set, with the bounds that simd.h states."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import TYPES, Array, Kernels, at_page_end, ulps

SPECIAL = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, -1.1e-38, 3.4028235e38, -3.4028235e38,
                    88.72283, 88.72284, 88.8, 89.5, -87.33654, -87.5, -103.9, -104.1, -105, 1e30, -1e30, 0.625, 0.62499994, 0.99999994,
                    8388608.5, 4194303.5, 2.5, 3.5, -0.5, 0.5, -2.5], np.float32)  # fmt: skip


def sample() -> Array:
    """Floats spread over all bit patterns, NaNs and denormals included, and the special ones."""
    bits = np.arange(0, 2**32, 30011, dtype=np.uint64).astype(np.uint32)
    near = np.random.default_rng(0).uniform(-12, 12, 50_000).astype(np.float32)
    return np.concatenate([SPECIAL, near, bits.view(np.float32)])


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


REFERENCES: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 1.0),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 1.5),
    "tanh": (np.tanh, 1.5),
    "sigmoid": (sigmoid, 2.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5),
    "sqrt": (np.sqrt, 0.5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_function_is_within_its_stated_bound(kernels: Kernels, name: str) -> None:
    reference, bound = REFERENCES[name]
    x = sample()
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    apart = ulps(kernels.map(name, x), want)
    worst = int(np.argmax(apart))
    assert apart[worst] <= bound, f"{name}({x[worst]!r}) is {apart[worst]} ulp off {want[worst]!r}"


def test_power_of_two_for_softmax_is_within_its_stated_bound(kernels: Kernels) -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(-126, 128, 200_000), np.arange(-126, 128)]).astype(np.float32)
    x = x[x < 128]
    y = kernels.map("exp_two", x)
    assert ulps(y, np.exp2(x.astype(np.float64))).max() <= 3.0
    whole = x == np.rint(x)
    assert (y[whole] == np.ldexp(np.float32(1), x[whole].astype(int))).all()
    small = kernels.map("exp_two", np.array([-126.01, -127, -127.5, -149.5, -1e4, -3e38, -np.inf], np.float32))
    assert (small >= 0).all() and (small < 2.0**-126).all() and small[-1] == 0
    assert np.isnan(kernels.map("exp_two", np.array([np.nan], np.float32)))


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_odd_functions_keep_the_sign_of_zero(kernels: Kernels, name: str) -> None:
    assert np.signbit(kernels.map(name, np.array([-0.0], np.float32))).all()


def same_bits(a: Array, b: Array) -> bool:
    """Equal, with equal signs of zero; any NaN equals any NaN."""
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a) | np.isnan(a), np.signbit(b) | np.isnan(b)))


def pairs() -> tuple[Array, Array]:
    """Every special value against every other."""
    return np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)


EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "copy": lambda a, b: a,
    "divide": lambda a, b: a / b,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
    "abs": lambda a, b: np.abs(a),
    "copy_sign": lambda a, b: np.copysign(a, b),
    "round_even": lambda a, b: np.rint(a),
    "floor": lambda a, b: np.floor(a),
    "negate": lambda a, b: -a,
    "less": lambda a, b: (a < b).astype(np.float32),
    "less_equal": lambda a, b: (a <= b).astype(np.float32),
    "equal": lambda a, b: (a == b).astype(np.float32),
    "not_equal": lambda a, b: (a != b).astype(np.float32),
    "is_nan": lambda a, b: np.isnan(a).astype(np.float32),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_function_keeps_nan_inf_and_zero_signs(kernels: Kernels, name: str) -> None:
    a, b = pairs()
    with np.errstate(all="ignore"):
        want = EXACT[name](a, b)
    assert same_bits(kernels.map(name, a, b), want)


@pytest.mark.parametrize(("name", "sign"), [("fma", 1), ("neg_fma", -1)])
def test_fma_is_rounded_once_or_on_the_baseline_twice(kernels: Kernels, name: str, sign: int) -> None:
    a, b, c = np.random.default_rng(1).uniform(0.5, 2, (3, 1000)).astype(np.float32)
    product = sign * a.astype(np.float64) * b
    got = kernels.map(name, a, b, c)
    once = (product + c).astype(np.float32)
    twice = product.astype(np.float32) + c
    assert (got == (once if kernels.isa != "baseline" else twice)).all() or (got == once).all()


@pytest.mark.parametrize("kind", TYPES)
def test_no_size_reads_or_writes_past_its_end(kernels: Kernels, kind: str) -> None:
    for n in range(2 * kernels.lanes + 2):
        x = at_page_end((np.arange(n) - 3.5).astype(TYPES[kind][1]))
        assert same_bits(kernels.map("negate", x), -x)  # the output is guarded by canaries


@pytest.mark.parametrize("kind", TYPES)
def test_reductions_and_byte_masks_of_every_length(kernels: Kernels, kind: str) -> None:
    for n in range(1, kernels.lanes + 1):
        x = at_page_end((np.arange(n) * 0.5 - 1).astype(TYPES[kind][1]))
        for fill in (np.zeros(n), np.ones(n), np.arange(n) % 2):
            mask = at_page_end((fill * 255).astype(np.uint8))
            total, most, least, some, every, count = kernels.reduce(x, mask)
            wide = np.pad(x.astype(np.float32), (0, kernels.lanes - n))
            assert (total, most, least) == (wide.sum(), wide.max(), wide.min())
            assert (some, every, count) == (mask.any(), mask.all(), np.count_nonzero(mask))


def test_sum_over_lanes_keeps_nan(kernels: Kernels) -> None:
    for lane in range(kernels.lanes):
        x = np.ones(kernels.lanes, np.float32)
        x[lane] = np.nan
        assert np.isnan(kernels.reduce(x, np.ones(kernels.lanes, np.uint8))[0])


def rounding_cases(dtype: type) -> Array:
    """Floats at, just below and just above every midpoint of two neighbours of `dtype`, and every value of it."""
    values = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
    bits = values.view(np.uint32)
    step = 1 << 12 if dtype is np.float16 else 1 << 15
    with np.errstate(all="ignore"):
        next_up = np.nextafter(values, np.float32(np.inf))
    return np.concatenate([values, next_up, *((bits + np.uint32(step + d)).view(np.float32) for d in (-1, 0, 1)), sample()])


@pytest.mark.parametrize(("kind", "narrow", "widen"), [("float16", 0, 1), ("bfloat16", 2, 3)])
def test_scalar_conversions_are_those_of_ieee(kernels: Kernels, kind: str, narrow: int, widen: int) -> None:
    dtype = TYPES[kind][1]
    every = np.arange(65536, dtype=np.uint16).view(dtype)
    assert same_bits(kernels.convert(widen, every, np.float32), every.astype(np.float32))
    x = rounding_cases(dtype)
    with np.errstate(all="ignore"):
        assert same_bits(kernels.convert(narrow, x, dtype).astype(np.float32), x.astype(dtype).astype(np.float32))


@pytest.mark.parametrize(("kind", "narrow"), [("float16", 0), ("bfloat16", 2)])
def test_vector_conversions_are_the_scalar_ones(kernels: Kernels, kind: str, narrow: int) -> None:
    dtype = TYPES[kind][1]
    every = np.arange(65536, dtype=np.uint16).view(dtype)
    assert same_bits(kernels.map("copy", every).astype(np.float32), every.astype(np.float32))
    # sqrt(x) in float, rounded once to 16 bits, reaches results that no 16-bit value is.
    with np.errstate(all="ignore"):
        root = np.sqrt(every.astype(np.float32))
    want = kernels.convert(narrow, root, dtype).astype(np.float32)
    assert same_bits(kernels.map("sqrt", every).astype(np.float32), want)


def test_bfloat16_denormals_survive(kernels: Kernels) -> None:
    tiny = np.array([1, 2, 3, 127], np.uint16).view(ml_dtypes.bfloat16)
    assert (kernels.map("copy", tiny).view(np.uint16) == tiny.view(np.uint16)).all()
