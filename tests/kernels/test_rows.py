"""Kernels that work row by row against float64, without ONNX Runtime, on every instruction set."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.harness import TYPES, Array, Guarded, Kernels, at_page_end, pointer

EPSILON = 1e-5
TOLERANCE = {"float": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
Reference = Callable[[Array, Array, Array, Array], Array]


def normal(x: Array, axes: tuple[int, ...]) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + EPSILON)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Two heads, one after the other, that share cos and sin."""
    half = x.shape[1] // 2
    turned = np.concatenate([-x[:, half:], x[:, :half]], 1)
    return x * np.tile(cos, (2, 1)) + turned * np.tile(sin, (2, 1))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# In the order of probe_rows.cc. c and d: "cols" or "rows" numbers, or half of the rows ("half") of all columns.
KERNELS: dict[str, tuple[str, Reference]] = {
    "skip_layer_norm": ("cols", lambda a, b, c, d: normal(a + b, (1,)) * c + d),
    "skip_rms_norm": ("cols", lambda a, b, c, d: (s := a + b + d) / np.sqrt((s * s).mean(1, keepdims=True) + EPSILON) * c),
    "gelu": ("cols", lambda a, b, c, d: gelu(a + c)),
    "swiglu": ("cols", lambda a, b, c, d: silu(a) * b),
    "group_norm": ("rows", lambda a, b, c, d: silu(normal(a, (0, 1)) * c[:, None] + d[:, None])),
    "channel_layer_norm": ("rows", lambda a, b, c, d: normal(a, (0,)) * c[:, None] + d[:, None]),
    "rotary_embedding": ("half", lambda a, b, c, d: rotate(a, c, d)),
    "masked_softmax": ("cols", lambda a, b, c, d: softmax(0.5 * a + b)),
}
NORMS = ("skip_layer_norm", "group_norm", "channel_layer_norm")  # that take the mean off
HAS_SUM = ("skip_layer_norm", "skip_rms_norm")


def operands(name: str, kind: str, rows: int, cols: int) -> list[Array]:
    """a, b, c, d, each before a page that cannot be read."""
    shape = {"cols": (cols,), "rows": (rows,), "half": (rows // 2, cols)}[KERNELS[name][0]]
    rng = np.random.default_rng(rows * 10007 + cols)
    return [at_page_end(rng.standard_normal(size).astype(TYPES[kind][1])) for size in ((rows, cols), (rows, cols), shape, shape)]


def run(kernels: Kernels, name: str, kind: str, inputs: list[Array], *, in_place: bool = False) -> tuple[Array, Array | None]:
    """y, and the sum where the kernel gives one; in_place: y is written over a."""
    code, dtype = TYPES[kind]
    rows, cols = inputs[0].shape
    with Guarded((rows, cols), dtype) as y, Guarded((rows, cols), dtype) as z:
        if in_place:
            y[...] = inputs[0]
        given = [y if in_place else inputs[0], *inputs[1:], y, z if name in HAS_SUM else None]
        sizes = (ctypes.c_int64(rows), ctypes.c_int64(cols))
        kernels.c.probe_rows(list(KERNELS).index(name), code, *map(pointer, given), *sizes)
    return y, z if name in HAS_SUM else None


def expected(name: str, inputs: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return KERNELS[name][1](*(x.astype(np.float64) for x in inputs))


def check(got: Array, want: Array, kind: str) -> None:
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=TOLERANCE[kind], atol=TOLERANCE[kind])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_size_is_right_and_nothing_else_is_touched(kernels: Kernels, name: str, kind: str) -> None:
    lanes = kernels.lanes
    for rows in (2, 6):
        for cols in (2, 6, lanes, lanes + 2, 4 * lanes - 2, 4 * lanes + 2, 134, 8210):  # even, as pairs need it
            inputs = operands(name, kind, rows, cols)
            y, total = run(kernels, name, kind, inputs)
            check(y, expected(name, inputs), kind)
            if total is not None:
                further = inputs[3].astype(np.float64) if name == "skip_rms_norm" else 0.0
                check(total, inputs[0].astype(np.float64) + inputs[1].astype(np.float64) + further, kind)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "rotary_embedding"])
def test_odd_sizes_and_one_are_right(kernels: Kernels, name: str) -> None:
    for rows, cols in ((1, 1), (1, kernels.lanes - 1), (3, kernels.lanes + 1), (5, 67), (1, 4099), (7, 1)):
        inputs = operands(name, "float", rows, cols)
        check(run(kernels, name, "float", inputs)[0], expected(name, inputs), "float")


@pytest.mark.parametrize("name", KERNELS)
def test_output_may_be_the_input(kernels: Kernels, name: str) -> None:
    inputs = operands(name, "float", 4, 70)
    assert np.array_equal(run(kernels, name, "float", inputs, in_place=True)[0], run(kernels, name, "float", inputs)[0])


@pytest.mark.parametrize("name", KERNELS)
def test_no_rows_write_nothing(kernels: Kernels, name: str) -> None:
    run(kernels, name, "float", operands(name, "float", 0, 8))


@pytest.mark.parametrize("name", KERNELS)
def test_nan_infinity_and_denormals_go_where_ieee_takes_them(kernels: Kernels, name: str) -> None:
    for value in (np.nan, np.inf, -np.inf, 1e-40):
        inputs = operands(name, "float", 4, 38)
        inputs[0][1, 5] = value
        want = expected(name, inputs)
        got = run(kernels, name, "float", inputs)[0].astype(np.float64)
        finite = np.isfinite(want)
        check(got[finite], want[finite], "float")
        assert np.array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("name", ["skip_layer_norm", "group_norm"])
def test_long_rows_far_from_zero_keep_their_digits(kernels: Kernels, name: str) -> None:
    inputs = operands(name, "float", 2, 20011)
    inputs[0][...] += 300
    y = run(kernels, name, "float", inputs)[0]
    np.testing.assert_allclose(y, expected(name, inputs), atol=1e-4)


AWKWARD = (41, 61, 107, 4095, 8190)  # n whose rounded inverse times n is not 1, and a row in two parts


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("value", [2.0, 939744.0, 394007456.0, 1e20])
def test_equal_elements_become_the_bias(kernels: Kernels, name: str, value: float) -> None:
    """However large they are: what the mean is off by must not be blown up by a small variance."""
    for size in AWKWARD:
        inputs = operands(name, "float", *((size, 3) if name == "channel_layer_norm" else (3, size)))
        inputs[0][...], inputs[1][...] = value, 0
        check(run(kernels, name, "float", inputs)[0], np.broadcast_to(expected(name, inputs), inputs[0].shape), "float")


@pytest.mark.parametrize("name", NORMS)
def test_one_element_apart_far_from_zero_keeps_its_digits(kernels: Kernels, name: str) -> None:
    for size in (300, 960, 1000, 3840, 9000):
        shape, at = ((size, 3), (size // 2, 1)) if name == "channel_layer_norm" else ((1, size), (0, size // 2))
        inputs = operands(name, "float", *shape)
        inputs[0][...], inputs[1][...] = 1e6, 0
        inputs[0][at] += 0.0625
        want = expected(name, inputs)
        np.testing.assert_allclose(run(kernels, name, "float", inputs)[0], want, rtol=2e-6, atol=2e-6)
