"""The algebra: whatever identities it uses, the numbers stay; nothing is cancelled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from onnxfuse.identities import Canonical
from onnxfuse.term import MAX_PARTS, NUMBER, Algebra, Term, close, product_of
from tests.engine.evaluate import OPERATIONS, evaluate

LEAVES = {
    "a": np.array([-3.0, -0.5, 0.0, 0.25, 2.0]),
    "b": np.array([1.5, -2.0, 3.0, 0.5, -0.125]),
    "c": np.array([0.5, 4.0, 1.0, 2.0, 0.75]),
}
NUMBERS = [-2.0, -1.0, -0.5, 0.0, 1e-3, 0.25, 0.5, 1.0, 2.0, 3.0, 0.70710678, 0.044715]
EXPONENTS = [-2.0, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0]
FUNCTIONS = ["Erf", "Exp", "Tanh", "Sigmoid", "Log", "Softplus"]

Expression = tuple[Any, ...]
atoms = st.one_of(st.sampled_from(sorted(LEAVES)).map(lambda n: ("leaf", n)), st.sampled_from(NUMBERS).map(lambda v: ("number", v)))
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "subtract", "multiply", "divide"]), inner, inner),
        st.tuples(st.just("power"), inner, st.sampled_from(EXPONENTS)),
        st.tuples(st.just("negate"), inner),
        st.tuples(st.sampled_from(FUNCTIONS), inner),
    ),
    max_leaves=12,
)


def term_of(expression: Expression, algebra: Algebra) -> Term:
    kind, *rest = expression
    if kind == "leaf":
        return algebra.leaf(rest[0])
    if kind == "number":
        return algebra.number(rest[0])
    if kind == "power":
        return algebra.power(term_of(rest[0], algebra), rest[1])
    args = [term_of(r, algebra) for r in rest]
    if kind in FUNCTIONS:
        return algebra.operation(kind, args)
    return getattr(algebra, kind)(*args)  # type: ignore[no-any-return]


PLAIN: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "negate": np.negative,
    "power": np.power,
}


def plain(expression: Expression, reals: list[Any]) -> Any:
    """The value as it is written; `reals` collects where all that was met on the way is a real number or NaN."""
    kind, *rest = expression
    if kind == "leaf":
        return LEAVES[rest[0]]
    if kind == "number":
        return np.full(5, rest[0])
    args = [plain(r, reals) if isinstance(r, tuple) else r for r in rest]
    with np.errstate(all="ignore"):
        value = OPERATIONS[kind]({}, *args) if kind in FUNCTIONS else PLAIN[kind](*args)
    reals.append(~np.isinf(value) & (np.abs(np.nan_to_num(value)) < 1e8))
    return value


@seed(20240)
@settings(max_examples=1500, deadline=None, derandomize=True)
@given(expressions)
def test_a_term_is_worth_what_it_was_made_from(expression: Expression) -> None:
    """Where all intermediate values are real (or NaN): the term is NaN there and only there, and near elsewhere."""
    reals: list[Any] = [np.full(5, True)]
    want = plain(expression, reals)
    got = np.broadcast_to(evaluate(term_of(expression, Canonical()), LEAVES), (5,))
    held = np.logical_and.reduce(reals)
    assert np.isnan(got[held & np.isnan(want)]).all()
    finite = held & np.isfinite(want)
    scale = max([1.0, *np.abs(want[finite])])
    np.testing.assert_allclose(got[finite], want[finite], rtol=2e-3, atol=2e-3 * scale)


def both(build: Callable[[Algebra, Term, Term, Term], Term], other: Callable[[Algebra, Term, Term, Term], Term]) -> bool:
    """Whether two ways to write something about a, b and c are one term."""
    algebra = Canonical()
    a, b, c = map(algebra.leaf, "abc")
    return build(algebra, a, b, c) is other(algebra, a, b, c)


SAME: dict[str, tuple[Callable[..., Term], Callable[..., Term]]] = {
    "commuted sum": (lambda m, a, b, c: m.add(a, b), lambda m, a, b, c: m.add(b, a)),
    "grouped sum": (lambda m, a, b, c: m.add(m.add(a, b), c), lambda m, a, b, c: m.add(b, m.add(c, a))),
    "grouped product": (lambda m, a, b, c: m.multiply(m.multiply(a, b), c), lambda m, a, b, c: m.multiply(b, m.multiply(c, a))),
    "number moved": (
        lambda m, a, b, c: m.multiply(m.multiply(a, m.number(0.5)), b),
        lambda m, a, b, c: m.divide(m.multiply(b, a), m.number(2.0)),
    ),
    "square": (lambda m, a, b, c: m.multiply(a, a), lambda m, a, b, c: m.power(a, 2.0)),
    "cube": (lambda m, a, b, c: m.multiply(a, m.multiply(a, a)), lambda m, a, b, c: m.power(a, 3.0)),
    "inverse root": (lambda m, a, b, c: m.divide(m.number(1.0), m.power(a, 0.5)), lambda m, a, b, c: m.power(a, -0.5)),
    "root of inverse": (lambda m, a, b, c: m.power(m.power(a, -1.0), 0.5), lambda m, a, b, c: m.power(a, -0.5)),
    "difference turned": (lambda m, a, b, c: m.subtract(a, b), lambda m, a, b, c: m.negate(m.subtract(b, a))),
    "common factor": (lambda m, a, b, c: m.add(m.multiply(a, b), m.multiply(a, c)), lambda m, a, b, c: m.multiply(a, m.add(b, c))),
    "odd functions": (lambda m, a, b, c: m.operation("Tanh", (m.negate(a),)), lambda m, a, b, c: m.negate(m.operation("Tanh", (a,)))),
    "twice": (lambda m, a, b, c: m.add(a, a), lambda m, a, b, c: m.scale(a, 2.0)),
    "square of a root of squares": (
        lambda m, a, b, c: m.power(m.power(m.power(a, 2.0), 0.5), 2.0),
        lambda m, a, b, c: m.multiply(a, a),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_spellings_of_one_expression_are_one_term(name: str) -> None:
    assert both(*SAME[name])


DIFFERENT: dict[str, tuple[Callable[..., Term], Callable[..., Term]]] = {
    "quotient of equals": (lambda m, a, b, c: m.divide(a, a), lambda m, a, b, c: m.number(1.0)),
    "difference of equals": (lambda m, a, b, c: m.subtract(a, a), lambda m, a, b, c: m.number(0.0)),
    "product with zero": (lambda m, a, b, c: m.multiply(a, m.number(0.0)), lambda m, a, b, c: m.number(0.0)),
    "divided and multiplied": (lambda m, a, b, c: m.multiply(m.divide(b, a), a), lambda m, a, b, c: b),
    "added and taken away": (lambda m, a, b, c: m.subtract(m.add(a, b), a), lambda m, a, b, c: b),
    "root of a square": (lambda m, a, b, c: m.power(m.multiply(a, a), 0.5), lambda m, a, b, c: a),
    "square of a root": (lambda m, a, b, c: m.power(m.power(a, 0.5), 2.0), lambda m, a, b, c: a),
    "root times root": (lambda m, a, b, c: m.multiply(m.power(a, 0.5), m.power(a, 0.5)), lambda m, a, b, c: a),
    "root of a product": (
        lambda m, a, b, c: m.power(m.multiply(a, b), 0.5),
        lambda m, a, b, c: m.multiply(m.power(a, 0.5), m.power(b, 0.5)),
    ),
    "tiny addend": (lambda m, a, b, c: m.add(a, m.number(1e-12)), lambda m, a, b, c: a),
    "tinier addend": (lambda m, a, b, c: m.add(a, m.number(1e-30)), lambda m, a, b, c: m.add(a, m.number(2e-30))),
    "token numbers": (lambda m, a, b, c: m.number(1234567.0), lambda m, a, b, c: m.number(1234568.0)),
    "order of a quotient": (lambda m, a, b, c: m.divide(a, b), lambda m, a, b, c: m.divide(b, a)),
    "even is not odd": (lambda m, a, b, c: m.operation("Exp", (m.negate(a),)), lambda m, a, b, c: m.negate(m.operation("Exp", (a,)))),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_look_alikes_are_different_terms(name: str) -> None:
    assert not both(*DIFFERENT[name])


def test_tiny_constant_is_still_in_the_sum() -> None:
    algebra = Algebra()
    total = algebra.add(algebra.leaf("x"), algebra.number(1e-12))
    assert total.coefficient == 1e-12 and [t.tag for t, _ in total.parts] == ["x"]


@pytest.mark.parametrize(
    ("base", "exponent"), [(3e38, 20.0), (1e200, 2.0), (1e-200, -2.0), (0.0, -1.0), (0.0, 0.5), (-8.0, 0.5), (2.0, 0.0), (-2.0, 3.0)]
)
def test_power_of_any_number_is_a_term(base: float, exponent: float) -> None:
    algebra = Algebra()
    for term in (algebra.power(algebra.number(base), exponent), algebra.power(algebra.scale(algebra.leaf("x"), base or 1.0), exponent)):
        coefficient, _ = product_of(term)
        assert math.isfinite(coefficient)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_are_not_multiplied_out(value: float) -> None:
    algebra = Algebra()
    x = algebra.leaf("x")
    for term in (
        algebra.multiply(x, algebra.number(value)),
        algebra.add(x, algebra.number(value)),
        algebra.divide(x, algebra.number(value)),
    ):
        assert math.isfinite(term.coefficient)
        assert np.isnan(evaluate(algebra.multiply(x, algebra.number(value)), {"x": 0.0}))


@pytest.mark.parametrize("exponent", [math.inf, -math.inf, 1e300])
def test_powers_beyond_all_numbers_are_left_as_they_are(exponent: float) -> None:
    algebra = Canonical()
    a = algebra.variable("a")
    assert algebra.power(algebra.power(a, exponent), exponent).op == "Pow"
    product = a
    for _ in range(1100):
        product = algebra.multiply(product, product)
    assert product.op == "Mul"


def test_long_sums_and_products_stay_right() -> None:
    algebra = Canonical()
    names = [f"x{i}" for i in range(3 * MAX_PARTS)]
    values = {n: 1.0 + i / 7 for i, n in enumerate(names)}
    total, product = algebra.leaf(names[0]), algebra.leaf(names[0])
    for name in names[1:]:
        total, product = algebra.add(total, algebra.leaf(name)), algebra.multiply(product, algebra.leaf(name))
    assert evaluate(total, values) == pytest.approx(sum(values.values()))
    assert evaluate(product, values) == pytest.approx(math.prod(values.values()))
    assert max(len(total.parts), len(product.parts)) <= MAX_PARTS


def test_equal_terms_are_one_object_and_numbers_merge_only_within_float32() -> None:
    algebra = Algebra()
    assert algebra.plain("F", [algebra.leaf("x")], {"k": 1, "j": 2}) is algebra.plain("F", [algebra.leaf("x")], {"j": 2, "k": 1})
    assert algebra.number(0.1) is algebra.number(float(np.float32(0.1)))
    assert algebra.number(0.1) is not algebra.number(0.10001)
    assert algebra.number(2.0).op == NUMBER


@pytest.mark.parametrize(
    ("a", "b", "same"), [(1.0, 1.0004, True), (1.0, 1.001, False), (0.0, 1e-12, False), (-1.0, 1.0, False), (math.inf, math.inf, True)]
)
def test_constants_are_close_within_half_a_step_of_float16(a: float, b: float, same: bool) -> None:
    assert close(a, b) is same
