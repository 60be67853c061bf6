"""The matcher: holes are filled so that the pattern equals what it matched, in every way there is and in no other."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from onnxfuse.canonical import View
from onnxfuse.errors import RuleError
from onnxfuse.identities import Canonical
from onnxfuse.matcher import Bound, Matcher, find, progress
from onnxfuse.pattern import Pattern, Scalar, Var, choices, either, op, optional, target
from onnxfuse.rule import Rule
from onnxfuse.term import LEAF, Term
from tests.engine import harness
from tests.engine.evaluate import evaluate

x, y, z, w = Var("x"), Var("y"), Var("z"), Var("w")
s, t = Scalar("s"), Scalar("t")
INPUTS = "float[2,8] a, float[2,8] b, float[2,8] c, float[8] v"
CONSTANTS = "<float half = {0.5}, float three = {3.0}, float[8] weight = {1, 2, 3, 4, 5, 6, 7, 8}, float one = {1.0}>"


def graph(nodes: str) -> View:
    return harness.view(f"g ({INPUTS}) => (float[2,8] out) {CONSTANTS} {{ {nodes} }}")


def matches(pattern: Pattern, nodes: str, value: str = "out") -> list[Bound]:
    """All ways in which the pattern holds for a value, alternatives in order."""
    view = graph(nodes)
    wanted = view.term(view.graph.values[value])
    assert wanted is not None
    return [bound for choice in choices(pattern, Canonical()) for bound in Matcher(view).match(choice.term, wanted)]


def names(bound: Bound) -> dict[str, str]:
    """What each hole stands for, in words."""
    return {k: str(v) if isinstance(v, Term) else f"{v:g}" for k, v in bound.items()}


def test_operands_commute_and_associate() -> None:
    for nodes in (
        "p = Mul(a, b) q = Exp(c) out = Mul(p, q)",
        "q = Exp(c) p = Mul(q, b) out = Mul(a, p)",
        "q = Exp(c) p = Mul(a, q) out = Mul(b, p)",
    ):
        found = {frozenset(names(b).items()) for b in matches(x * y * op.Exp(z), nodes)}
        assert found == {frozenset({("x", p), ("y", q), ("z", "c")}) for p, q in (("a", "b"), ("b", "a"))}


def test_structured_parts_are_placed_before_the_holes() -> None:
    (bound,) = matches(x + op.Exp(y), "e = Exp(a) out = Add(e, b)")
    assert names(bound) == {"x": "b", "y": "a"}


def test_a_hole_takes_all_that_is_left() -> None:
    (bound,) = matches(x * op.Exp(y), "e = Exp(a) p = Mul(e, b) out = Mul(p, c)")
    assert names(bound) == {"x": "b*c", "y": "a"}


def test_the_same_hole_is_the_same_value() -> None:
    assert len(matches(x * op.Exp(x), "e = Exp(a) out = Mul(a, e)")) == 1
    assert matches(x * op.Exp(x), "e = Exp(a) out = Mul(b, e)") == []
    assert matches(op.Exp(x) + op.Tanh(x), "e = Exp(a) t = Tanh(b) out = Add(t, e)") == []


def test_a_wrong_turn_is_taken_back() -> None:
    """The first Exp that comes along is not the one whose argument is tanh of the rest."""
    (bound,) = matches(op.Exp(x) + op.Exp(op.Tanh(x)) + y, "t = Tanh(b) e = Exp(t) f = Exp(a) g = Exp(b) h = Add(e, f) out = Add(h, g)")
    assert names(bound) == {"x": "b", "y": "Exp(a)"}


def test_commutative_operators_without_identities_are_tried_both_ways() -> None:
    for nodes in ("e = Exp(a) out = Max(e, b)", "e = Exp(a) out = Max(b, e)"):
        (bound,) = matches(op.Max(y, op.Exp(x)), nodes)
        assert names(bound) == {"x": "a", "y": "b"}


def test_operators_that_do_not_commute_are_not_turned() -> None:
    assert len(matches(op.Pow(op.Exp(x), y), "e = Exp(a) out = Pow(e, b)")) == 1
    assert matches(op.Pow(y, op.Exp(x)), "e = Exp(a) out = Pow(e, b)") == []
    assert matches(op.MatMul(op.Exp(x), y), "e = Exp(a) k = Transpose(b) m = MatMul(k, e) out = Identity(b)", "m") == []


def test_differences_and_quotients_keep_their_sides() -> None:
    (bound,) = matches(op.Exp(x) - y, "e = Exp(a) out = Sub(e, b)")
    assert names(bound) == {"x": "a", "y": "b"}
    (bound,) = matches(op.Exp(x) - y, "e = Exp(a) out = Sub(b, e)", "out") or [{}]
    assert bound == {}
    assert matches(op.Exp(x) / op.Tanh(y), "e = Exp(a) t = Tanh(b) out = Div(t, e)") == []


def test_most_specific_alternative_comes_first() -> None:
    first, *rest = matches(op.Exp(x) * optional(y) + optional(z), "e = Exp(a) m = Mul(e, b) out = Add(m, c)")
    assert names(first) == {"x": "a", "y": "b", "z": "c"}
    assert all(len(bound) < 3 for bound in rest)


def test_optional_parts_may_be_missing() -> None:
    pattern = op.Exp(x) * optional(y) + optional(z)
    assert [names(b) for b in matches(pattern, "out = Exp(a)")] == [{"x": "a"}]
    assert {"x": "a", "z": "b"} in [names(b) for b in matches(pattern, "e = Exp(a) out = Add(b, e)")]


def test_one_choice_decides_all_its_places() -> None:
    part = either(op.Exp(x), op.Tanh(x))
    pattern = part + op.Neg(part) * y
    assert matches(pattern, "e = Exp(a) t = Tanh(a) m = Mul(t, b) out = Sub(e, m)") == []
    assert len(matches(pattern, "e = Exp(a) m = Mul(e, b) out = Sub(e, m)")) >= 1


def test_alternatives_may_have_different_holes_and_stand_at_the_root() -> None:
    pattern = either(op.Exp(x) + y, op.Tanh(x))
    assert [set(b) for b in matches(pattern, "out = Tanh(a)")] == [{"x"}]
    assert [set(b) for b in matches(pattern, "e = Exp(a) out = Add(e, b)")] == [{"x", "y"}]


@pytest.mark.parametrize(
    ("nodes", "scale"), [("m = Mul(a, half) out = Exp(m)", 0.5), ("m = Div(a, half) out = Exp(m)", 2.0), ("out = Exp(a)", 1.0)]
)
def test_a_scalar_takes_the_number_in_front(nodes: str, scale: float) -> None:
    (bound,) = matches(op.Exp(s * x), nodes)
    assert bound["s"] == pytest.approx(scale)
    assert str(bound["x"]) == "a"


def test_a_scalar_takes_the_offset_but_no_tensor() -> None:
    (bound,) = matches(op.Exp(x + s), "p = Add(a, three) out = Exp(p)")
    assert names(bound) == {"x": "a", "s": "3"}
    assert matches(op.Exp(x + s), "p = Add(a, v) out = Exp(p)") == []
    assert matches(op.Exp(x + s), "out = Exp(a)") == []


def test_a_scalar_is_one_number_everywhere() -> None:
    pattern, nodes = op.Exp(s * op.Erf(x)) + op.Tanh(s * op.Erf(y)), "f = Erf(a) g = Erf(b) e = Exp(p) t = Tanh(q) out = Add(e, t)"
    assert len(matches(pattern, nodes.replace("e =", "p = Mul(f, half) q = Mul(half, g) e ="))) == 1
    assert matches(pattern, nodes.replace("e =", "p = Mul(f, half) q = Mul(three, g) e =")) == []


def test_an_attribute_scalar_takes_what_the_attribute_holds() -> None:
    (bound,) = matches(op.Mean(op.Exp(x), axes=s, keepdims=True), "e = Exp(a) m = ReduceMean<axes = [1]>(e) out = Add(a, m)", "m")
    assert bound["s"] == (-1,)


def test_numbers_are_the_same_up_to_the_rounding_of_half_types() -> None:
    assert len(matches(op.Exp(x + 3.0), "p = Add(a, three) out = Exp(p)")) == 1
    assert len(matches(op.Exp(op.Tanh(x) + 3.001), "t = Tanh(a) p = Add(t, three) out = Exp(p)")) == 1
    assert matches(op.Exp(op.Tanh(x) + 3.01), "t = Tanh(a) p = Add(t, three) out = Exp(p)") == []
    assert matches(op.Exp(0.4 * op.Tanh(x)), "t = Tanh(a) p = Mul(t, half) out = Exp(p)") == []


def test_a_constant_hole_takes_weights_only() -> None:
    pattern = op.Exp(x) * Var("k", constant=True)
    assert len(matches(pattern, "e = Exp(a) out = Mul(e, weight)")) == 1
    assert matches(pattern, "e = Exp(a) out = Mul(e, v)") == []


def test_a_computed_hole_takes_no_weights() -> None:
    pattern = op.Exp(x) + Var("r", computed=True)
    assert len(matches(pattern, "e = Exp(a) out = Add(e, v)")) == 1
    assert matches(pattern, "e = Exp(a) out = Add(e, weight)") == []


def test_a_named_part_is_known_by_its_name() -> None:
    (bound,) = matches(op.Exp((op.Tanh(x) + y).named("sum")), "t = Tanh(a) p = Add(t, b) out = Exp(p)")
    assert str(bound["sum"]) == "(b + Tanh(a))"


@pytest.mark.parametrize(
    "nodes", ["p = Add(a, three) e = Exp(p) out = Add(e, a)", "p = Add(a, three) e = Exp(p) q = Add(a, one) out = Add(e, q)"]
)
def test_an_offset_is_no_part_of_a_hole_that_is_known_without_it(nodes: str) -> None:
    assert matches(op.Exp(x) + x, nodes) == []


def test_an_offset_that_a_known_hole_has_is_found_in_the_sum() -> None:
    (bound,) = matches(op.Exp(x) + x, "p = Add(a, three) e = Exp(p) out = Add(e, p)")
    assert str(bound["x"]) == "(3 + a)"


def test_a_factor_of_a_known_hole_is_found_in_the_product() -> None:
    assert len(matches(op.Exp(x) * x, "p = Mul(a, three) e = Exp(p) out = Mul(e, p)")) == 1
    assert matches(op.Exp(x) * x, "p = Mul(a, three) e = Exp(p) out = Mul(e, a)") == []


def test_norms_of_a_multiple_are_norms_with_another_epsilon() -> None:
    """norm(a, 1e-3) where the graph holds only a/2: norm(a/2, 2.5e-4)"""
    nodes = """h = Mul(a, half) q = Mul(h, h) m = ReduceMean<axes = [1]>(q) e = Constant<value = float {0.00025}>()
        k = Add(m, e) r = Sqrt(k) out = Div(h, r)"""
    bounds = matches(op.RMSNormalization(x, axes=s, epsilon=t), nodes)
    assert {str(b["x"]): round(b["t"], 8) for b in bounds} == {"0.5*a": 0.00025, "a": 0.001}


# ---- every match is an equality

LEAVES = {name: np.array([0.3, -1.2, 2.0, 0.7]) * (i + 1) + i / 3 for i, name in enumerate("abcd")}
pieces = st.one_of(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([0.5, 2.0, 3.0, -1.0]))
expressions = st.recursive(
    pieces,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["Add", "Sub", "Mul", "Div"]), inner, inner), st.tuples(st.sampled_from(["Exp", "Tanh", "Neg"]), inner)
    ),
    max_leaves=7,
)


def as_term(expression: Any, algebra: Canonical) -> Term:
    if isinstance(expression, float):
        return algebra.number(expression)
    if isinstance(expression, str):
        return algebra.leaf(expression)
    name, *args = expression
    built = [as_term(a, algebra) for a in args]
    arithmetic = {"Add": algebra.add, "Sub": algebra.subtract, "Mul": algebra.multiply, "Div": algebra.divide, "Neg": algebra.negate}
    return arithmetic[name](*built) if name in arithmetic else algebra.operation(name, built)


def as_pattern(expression: Any, holes: dict[str, Pattern]) -> Pattern | float:
    if isinstance(expression, float):
        return expression
    if isinstance(expression, str):
        return holes[expression]
    name, *args = expression
    return Pattern(name, tuple(as_pattern(a, holes) for a in args))


class Terms:
    """As much of a view as the matcher needs."""

    def __init__(self, algebra: Canonical) -> None:
        self.algebra = algebra
        self.values: dict[Term, list[Any]] = {}

    def multiples(self, term: Term) -> list[float]:
        return [1.0]


def shuffled(expression: Any, rng: random.Random) -> Any:
    """The expression with the operands of sums and products exchanged at random."""
    if not isinstance(expression, tuple):
        return expression
    name, *args = (shuffled(e, rng) if isinstance(e, tuple) else e for e in expression)
    if name in ("Add", "Mul") and rng.random() < 0.5:
        args = args[::-1]
    return (name, *args)


@seed(11)
@settings(max_examples=500, deadline=None, derandomize=True)
@given(expressions, expressions, st.integers(0, 9))
def test_every_match_is_an_equality(wanted: Any, other: Any, mixed: int) -> None:
    """A pattern matches the expression it was made from, spelled differently; and whatever it matches it is equal to."""
    algebra, holes = Canonical(), {n: Var(n) for n in "abcd"}
    pattern = as_pattern(wanted, holes)
    assume(isinstance(pattern, Pattern) and not isinstance(pattern, Var))
    assert isinstance(pattern, Pattern)
    (choice,) = choices(pattern, Canonical())
    matcher = Matcher(Terms(algebra))  # type: ignore[arg-type]
    own = as_term(shuffled(wanted, random.Random(mixed)), algebra)
    for term in (own, as_term(other, algebra)):
        for bound in matcher.match(choice.term, term):
            filled = {hole: _value(bound[name]) for name, hole in holes.items() if name in bound}
            with np.errstate(all="ignore"):
                got, want = evaluate(choice.term, filled | {h: 0.0 for h in holes.values() if h not in filled}), _value(term)
            got, want = np.broadcast_arrays(got, want)
            real = np.isfinite(want) & np.isfinite(got)
            np.testing.assert_allclose(got[real], want[real], rtol=5e-3, atol=1e-3)


def _value(term: Term) -> Any:
    with np.errstate(all="ignore"):
        return evaluate(term, LEAVES)


# ---- patterns


def test_more_than_256_alternatives_are_refused() -> None:
    pattern: Pattern = x
    for i in range(9):
        pattern = op.Exp(pattern) + optional(Var(f"v{i}"))
    with pytest.raises(RuleError, match="256"):
        choices(pattern, Canonical())


def test_a_pattern_that_is_optional_as_a_whole_is_refused() -> None:
    with pytest.raises(RuleError, match="optional"):
        choices(optional(op.Exp(x)), Canonical())


def test_an_exponent_is_no_scalar() -> None:
    with pytest.raises(RuleError, match="exponent"):
        choices(op.Pow(x, s), Canonical())


@pytest.mark.parametrize(
    "pattern",
    [0.5 * x * (1 + op.Erf(x / math.sqrt(2))), op.Erf(x * math.sqrt(0.5)) * x * 0.5 + x / 2, x / 2 * (op.Erf(0.70710678 * x) + 1.0)],
)
def test_a_pattern_may_be_spelled_like_a_graph(pattern: Pattern) -> None:
    (choice,) = choices(pattern, Canonical())
    assert choice.term.op == "Gelu" and choice.term.args[0].tag is x


# ---- where things are found


def test_find_gives_each_place_once_per_alternative() -> None:
    view = graph("e = Exp(a) f = Exp(b) out = Add(e, f)")
    rule = Rule(before=op.Exp(x), after=target("").Exp(x), name="exp")
    assert sorted(str(hit.term) for hit in find(view, [rule])) == ["Exp(a)", "Exp(b)"]


def test_a_pattern_of_a_leaf_finds_no_input() -> None:
    view = graph("out = Exp(a)")
    rule = Rule(before=x * y, after=target("").Mul(x, y), name="mul")
    assert [hit.term.op for hit in find(view, [rule]) if hit.term.op == LEAF] == []


def test_progress_says_how_far_and_what_stopped_it() -> None:
    view = graph("t = Tanh(a) e = Exp(t) out = Add(e, b)")
    (choice,) = choices(op.Exp(op.Erf(x)) + y, Canonical())
    trace = progress(view, choice.term, view.terms[view.graph.values["out"]])
    assert (trace.size, trace.matched) == (3, 2) or trace.matched < trace.size
    assert "Erf" in trace.expected and "Tanh" in trace.found


@pytest.mark.parametrize(
    ("pattern", "nodes", "wanted"),
    [
        (optional(y) - op.Exp(x), "e = Exp(a) out = Neg(e)", {"x": "a"}),
        (optional(y) / op.Exp(x), "e = Exp(a) out = Reciprocal(e)", {"x": "a"}),
    ],
)
def test_a_missing_first_operand_leaves_the_negative_or_the_reciprocal(pattern: Pattern, nodes: str, wanted: dict[str, str]) -> None:
    assert wanted in [names(bound) for bound in matches(pattern, nodes)]
