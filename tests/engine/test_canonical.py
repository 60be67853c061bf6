"""The canonical view: spellings of one computation are one term, and look-alikes are not."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from onnxfuse.canonical import View
from onnxfuse.graph import Value
from onnxfuse.term import Term
from tests.engine import harness

HALVES = "float half = {0.5}, float two = {2.0}, float[1] half1 = {0.5}, float[1,1] half11 = {0.5}, float one = {1.0}, float zero = {0.0}"
AXES = "int64[1] last = {-1}, int64[1] second = {1}, int64[1] first = {0}"
NUMBERS = f"<{HALVES}, float three = {{3.0}}, float tiny = {{1e-12}}, int64 itwo = {{2}}, {AXES}, int64[2] shape = {{2, 8}}>"
X = "(float[2,8] x, float[2,8] z, bool[2,8] c) => (float[2,8] a, float[2,8] b)"


def value(view: View, name: str) -> Value:
    return view.graph.values[name]


def terms(text: str, opset: int = 17) -> tuple[Term, Term]:
    """The terms of the values `a` and `b` of a graph."""
    view = harness.view(text, opset=opset)
    first, second = view.term(value(view, "a")), view.term(value(view, "b"))
    assert first is not None and second is not None
    return first, second


def of_x(a: str, b: str) -> tuple[str, str]:
    return f"g {X} {NUMBERS} {{ {a} }}", f"g {X} {NUMBERS} {{ {b} }}"


SAME = {
    "half of x": ("a = Mul(x, half)", "b = Div(x, two)"),
    "rank of a constant": ("a = Mul(x, half)", "b = Mul(half11, x)"),
    "constant node": ("a = Mul(x, half)", "h = Constant<value = float {0.5}>() b = Mul(x, h)"),
    "constant as a float attribute": ("a = Mul(x, half)", "h = Constant<value_float = 0.5>() b = Mul(x, h)"),
    "constant through a cast": ("a = Mul(x, half)", "h = Constant<value = double {0.5}>() i = Cast<to = 1>(h) b = Mul(x, i)"),
    "constant expanded": ("a = Mul(x, half)", "h = Expand(half, shape) b = Mul(h, x)"),
    "constant of a shape": ("a = Mul(x, two)", "h = ConstantOfShape<value = float[1] {2.0}>(shape) b = Mul(x, h)"),
    "computed constant": ("a = Mul(x, half)", "f = Mul(half, half) h = Sqrt(f) b = Mul(x, h)"),
    "square": ("a = Mul(x, x)", "b = Pow(x, two)"),
    "square with a whole exponent": ("a = Mul(x, x)", "b = Pow(x, itwo)"),
    "reciprocal": ("a = Reciprocal(x)", "b = Div(one, x)"),
    "sum of three": ("s = Add(x, z) a = Add(s, half)", "b = Sum(half, z, x)"),
    "difference": ("a = Sub(x, z)", "n = Neg(z) b = Add(n, x)"),
    "identity": ("a = Neg(x)", "i = Identity(x) b = Neg(i)"),
    "dropout": ("a = Neg(x)", "i = Dropout(x) b = Neg(i)"),
    "dropout that is switched off": ("a = Neg(x)", "t = Constant<value = bool {0}>() i = Dropout(x, , t) b = Neg(i)"),
    "casts that widen and come back": ("a = Neg(x)", "w = Cast<to = 11>(x) n = Neg(w) b = Cast<to = 1>(n)"),
    "transposed twice": ("a = Neg(x)", "t = Transpose(x) u = Transpose<perm = [1, 0]>(t) b = Neg(u)"),
    "reshaped and back": ("a = Neg(x)", "f = Flatten<axis = 0>(x) r = Reshape(f, shape) b = Neg(r)"),
    "unsqueezed and squeezed": ("a = Neg(x)", "u = Unsqueeze(x, first) s = Squeeze(u, first) b = Neg(s)"),
    "zero added": ("a = Neg(x)", "s = Add(x, zero) b = Neg(s)"),
    "one multiplied": ("a = Neg(x)", "s = Mul(one, x) b = Neg(s)"),
    "mean by the other axis number": ("a = ReduceMean<axes = [1]>(x)", "b = ReduceMean<axes = [-1], keepdims = 1>(x)"),
    "mean by sum": ("a = ReduceMean<axes = [1]>(x)", "e = Constant<value = float {8.0}>() s = ReduceSum(x, last) b = Div(s, e)"),
    "mean put back": ("a = ReduceMean<axes = [1]>(x)", "m = ReduceMean<axes = [1], keepdims = 0>(x) b = Unsqueeze(m, second)"),
    "mean reshaped back": (
        "a = ReduceMean<axes = [1]>(x)",
        "m = ReduceMean<axes = [1], keepdims = 0>(x) s = Constant<value = int64[2] {2, 1}>() b = Reshape(m, s)",
    ),
    "squares summed": ("b = ReduceSumSquare<axes = [-1]>(x)", "q = Mul(x, x) a = ReduceSum(q, last)"),
    "two norm": ("b = ReduceL2<axes = [-1]>(x)", "q = Mul(x, x) s = ReduceSum(q, second) a = Sqrt(s)"),
    "sigmoid": ("a = Sigmoid(x)", "n = Neg(x) e = Exp(n) p = Add(e, one) b = Reciprocal(p)"),
    "sigmoid by tanh": ("a = Sigmoid(x)", "h = Mul(x, half) t = Tanh(h) p = Add(one, t) b = Mul(p, half)"),
    "softplus": ("a = Softplus(x)", "e = Exp(x) p = Add(one, e) b = Log(p)"),
    "negated condition": ("a = Where(c, x, z)", "n = Not(c) b = Where(n, z, x)"),
    "relu by clip": ("a = Relu(x)", "b = Clip(x, zero)"),
    "hard sigmoid by clip": (
        "a = HardSigmoid<alpha = 0.5, beta = 0.5>(x)",
        "h = Mul(x, half) s = Add(h, half) b = Clip(s, zero, one)",
    ),
    "softmax": ("a = Softmax(x)", "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) b = Div(e, s)"),
    "softmax of scores that are scaled": (
        "h = Mul(x, half) a = Softmax(h)",
        "h = Mul(x, half) m = ReduceMax<axes = [1]>(h) d = Sub(h, m) e = Exp(d) s = ReduceSum(e, last) b = Div(e, s)",
    ),
    "softmax without its default": ("a = Softmax(x)", "b = Softmax<axis = 1>(x)"),
    "gelu": (
        "a = Gelu(x)",
        "@20 r = Constant<value = float {1.41421356}>() d = Div(x, r) e = Erf(d) p = Add(e, one) m = Mul(p, x) b = Mul(half, m)",
    ),
    "swish of a multiple": (
        "d = Mul(x, two) s = Sigmoid(d) a = Mul(s, x)",
        "d = Add(x, x) n = Neg(d) e = Exp(n) p = Add(one, e) b = Div(x, p)",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_spellings_of_one_computation_are_one_term(name: str) -> None:
    first, second = SAME[name]
    second, opset = (second[3:], 20) if second.startswith("@20") else (second, 17)
    # both in one graph, whose algebra then says that they are one; names of the second are changed
    both = " ".join(f"{line}" for line in (first, _renamed(second)))
    a, b = terms(f"g {X} {NUMBERS} {{ {both} }}", opset)
    assert a is b, f"{a}  {b}"


def _renamed(text: str) -> str:
    """The nodes with another name for each value that is made and is not the last."""
    model = harness.parse(f"g {X} {NUMBERS} {{ {text} }}", opset=20)
    made = {o for n in model.graph.node for o in n.output} - {"a", "b"}
    for node in model.graph.node:
        node.input[:] = [f"{i}_" if i in made else i for i in node.input]
        node.output[:] = [f"{o}_" if o in made else o for o in node.output]
    return onnx.printer.to_text(model.graph).split("{\n", 1)[1].rsplit("}", 1)[0]


DIFFERENT = {
    "another constant": ("a = Mul(x, half)", "b = Mul(x, two)"),
    "tiny addend": ("a = Neg(x)", "s = Add(x, tiny) b = Neg(s)"),
    "quotient turned": ("a = Div(x, z)", "b = Div(z, x)"),
    "difference turned": ("a = Sub(x, z)", "b = Sub(z, x)"),
    "root of the square": ("a = Neg(x)", "s = Mul(x, x) r = Sqrt(s) b = Neg(r)"),
    "square of the root": ("a = Neg(x)", "r = Sqrt(x) s = Mul(r, r) b = Neg(s)"),
    "itself taken away": ("a = Sub(x, x)", "b = Sub(z, z)"),
    "mean over another axis": ("a = ReduceMean<axes = [1]>(x)", "b = ReduceMean<axes = [0]>(x)"),
    "mean over all axes": ("a = ReduceMean<axes = [1]>(x)", "b = ReduceMean(x)"),
    "mean that is not put back": ("a = ReduceMean<axes = [1]>(x)", "b = ReduceMean<axes = [1], keepdims = 0>(x)"),
    "mean put elsewhere": ("a = ReduceMean<axes = [1]>(x)", "m = ReduceMean<axes = [1], keepdims = 0>(x) b = Unsqueeze(m, first)"),
    "transposed": ("a = Neg(x)", "s = Constant<value = int64[2] {8, 2}>() r = Reshape(x, s) t = Transpose(r) b = Neg(t)"),
    "sum of a square": ("a = ReduceSumSquare<axes = [-1]>(x)", "s = ReduceSum(x, last) b = Mul(s, s)"),
    "negative of sigmoid": ("a = Sigmoid(x)", "e = Exp(x) p = Add(e, one) b = Reciprocal(p)"),
    "sigmoid of two": ("a = Sigmoid(x)", "n = Neg(x) e = Exp(n) p = Add(e, two) b = Reciprocal(p)"),
    "softmax over the other axis": ("a = Softmax(x)", "b = Softmax<axis = 0>(x)"),
    "softmax over a sum elsewhere": (
        "a = Softmax(x)",
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, first) b = Div(e, s)",
    ),
    "softmax without its maximum": ("a = Softmax(x)", "e = Exp(x) s = ReduceSum(e, last) b = Div(e, s)"),
    "condition turned": ("a = Where(c, x, z)", "b = Where(c, z, x)"),
    "dropout in training": ("a = Neg(x)", "t = Constant<value = bool {1}>() i = Dropout(x, , t) b = Neg(i)"),
    "random": ("a = RandomNormalLike(x)", "b = RandomNormalLike(x)"),
    "rounded to whole numbers": ("a = Neg(x)", "i = Cast<to = 7>(x) f = Cast<to = 1>(i) b = Neg(f)"),
    "relu of another bound": ("a = Relu(x)", "b = Clip(x, tiny)"),
    "padded on the other side": (
        "z3 = Expand(zero, three3) z5 = Expand(zero, five5) p = Concat<axis = 1>(z3, x, z5) a = Neg(p)",
        "z3 = Expand(zero, three3) z5 = Expand(zero, five5) p = Concat<axis = 1>(z5, x, z3) b = Neg(p)",
    ),
    "filled and raised": (
        "z3 = Expand(zero, three3) e = Exp(z3) z5 = Expand(two, five5) f = Neg(z5) p = Concat<axis = 1>(e, x, f) a = Neg(p)",
        "z3 = Expand(zero, five5) e = Exp(z3) z5 = Expand(two, three3) f = Neg(z5) p = Concat<axis = 1>(e, x, f) b = Neg(p)",
    ),
    "softmax of something repeated": (
        "r = ReduceMean<axes = [0]>(x) a = Softmax<axis = 0>(r)",
        "r = ReduceMean<axes = [0]>(x) o = Expand(one, shape) w = Mul(r, o) b = Softmax<axis = 0>(w)",
    ),
    "product with a larger constant": (
        "t = Transpose(x) o = Expand(one, three3) a = MatMul(t, o)",
        "t = Transpose(x) o = Expand(one, five5) b = MatMul(t, o)",
    ),
    "mean of several tensors": (
        "p = Add(x, x) q = Mul(z, three) m = Mean(p, q) a = Neg(m)",
        "m = Mean(x, z) six = Constant<value = float {6.0}>() s = Mul(m, six) b = Neg(s)",
    ),
    "lifted to another rank": ("a = Neg(x)", "o = Constant<value = float[1,1,1] {1.0}>() m = Mul(x, o) b = Neg(m)"),
}
LARGER = NUMBERS.replace(">", ", int64[2] three3 = {2, 3}, int64[2] five5 = {2, 5}>")


@pytest.mark.parametrize("name", DIFFERENT)
def test_look_alikes_are_different_terms(name: str) -> None:
    first, second = DIFFERENT[name]
    for text in (first, second):  # each is a valid graph of its own
        assert harness.parse(f"g {X} {LARGER} {{ {text} }}").graph.node
    renamed = second
    model = harness.parse(f"g {X} {LARGER} {{ {first} {_all_renamed(renamed)} }}")
    view = harness.views(model)[0]
    a, b = view.term(value(view, "a")), view.term(value(view, "b"))
    assert a is not b, f"{a}  {b}"


def _all_renamed(text: str) -> str:
    model = harness.parse(f"g {X} {LARGER} {{ {text} }}")
    made = {o for n in model.graph.node for o in n.output} - {"a", "b"}
    for node in model.graph.node:
        node.input[:] = [f"{i}_" if i in made else i for i in node.input]
        node.output[:] = [f"{o}_" if o in made else o for o in node.output]
    return onnx.printer.to_text(model.graph).split("{\n", 1)[1].rsplit("}", 1)[0]


@pytest.mark.parametrize(("text", "held"), [("1e-12", 0.0), ("-1e9", -math.inf), ("0.5", 0.5), ("1e-5", 1.0013580322265625e-05)])
def test_a_constant_is_worth_what_a_cast_leaves_of_it(text: str, held: float) -> None:
    """A mask of -1e9 is -inf in float16, and an epsilon of 1e-12 is none."""
    view = harness.view(
        f"g (float[2,8] x) => (float16[2,8] a) <float k = {{{text}}}> {{ h = Cast<to = 10>(k) i = Cast<to = 10>(x) a = Mul(i, h) }}"
    )
    number = view.number(value(view, "h"))
    assert number == held


@pytest.mark.parametrize(
    "nodes",
    [
        "s = ReduceSum(x, axes) y = Div(x, s)",
        "e = Exp(x) s = ReduceSum(e, axes) y = Div(e, s)",
        "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, axes) y = Div(e, s)",
        "q = Mul(x, x) s = ReduceSum(q, axes) r = Sqrt(s) y = Div(x, r)",
        "m = Mean(x, z) r = Sqrt(m) y = Div(x, r)",
        "m = Mean(x) q = Mul(m, m) n = Mean(q) r = Sqrt(n) y = Div(x, r)",
        "a = Add(x, x) t = Constant<value = float {3.0}>() c = Mul(z, t) m = Mean(a, c) s = Sigmoid(m) y = Mul(m, s)",
        "l = Clip(x, low) m = Mean(l, z) s = Sigmoid(m) y = Mul(s, m)",
        "b = Clip(x, low) c = Reciprocal(b) y = Mul(x, c)",
        "q = Mul(x, x) m = ReduceMean<axes = [1]>(q) r = Sqrt(m) b = Clip(r, low) y = Div(x, b)",
        "n = LayerNormalization<axis = 1, stash_type = 10>(x, w) s = Sigmoid(n) y = Mul(n, s)",
        "t = Concat<axis = 1>(x, z) u = Split<axis = 1>(t) y = Neg(u)",
    ],
)
def test_operators_whose_form_is_not_known_are_left_alone(nodes: str) -> None:
    """Axes and bounds that only a run tells; ONNX's Mean, which is no reduction."""
    text = f"g (float[2,8] x, float[2,8] z, float[8] w, float low, int64[1] axes) => (float[2,8] y) {{ {nodes} }}"
    model = harness.parse(text.replace("u = Split<axis = 1>", "u, v = Split<axis = 1>"))
    values = {**harness.feed(model), "axes": np.array([1], np.int64), "low": np.array(0.5, np.float32)}
    harness.assert_same_numbers(model, harness.fuse(model).model, values)


@pytest.mark.parametrize("nodes", ["r = Reshape(x, one)", "e = Exp(x) r = Reshape(e, one)", "r = Unsqueeze(x, first)"])
def test_a_number_that_becomes_a_row_has_no_last_axis_to_keep(nodes: str) -> None:
    text = f"g (float x) => (float[1] y) <int64[1] one = {{1}}, int64[1] first = {{0}}> {{ {nodes} y = Softmax<axis = -1>(r) }}"
    model = harness.parse(text)
    harness.assert_same_numbers(model, harness.fuse(model).model)
