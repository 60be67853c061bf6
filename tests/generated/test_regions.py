"""Which nodes become one operator, which do not, and why."""

from __future__ import annotations

import pytest

from tests.generated.harness import apart, generate, kept, programs


def test_a_chain_with_several_readers_inside_is_one_operator() -> None:
    model, report = generate("g (float[b,8] x, float[8] w) => (float[b,8] y) { a = Mul(x, w) t = Tanh(a) s = Sub(t, a) y = Add(s, x) }")
    assert (len(programs(model)), kept(model)) == (1, [])
    assert report.fused[0].target == "FusedElementwise[Mul+Tanh+Sub+Add]"


def test_what_others_read_is_a_further_output() -> None:
    text = "g (float[4,8] x) => (float[4,8] y, float[8,8] z) { a = Exp(x) y = Neg(a) t = Transpose<perm=[1,0]>(a) z = MatMul(t, a) }"
    model, _ = generate(text)
    (program,) = programs(model)
    assert program.endswith("-> v1, v0")
    assert kept(model) == ["Transpose", "MatMul"]


def test_a_smaller_value_that_others_read_stays_outside() -> None:
    text = "g (float[4,8] x, float[8] w) => (float[4,8] y, float[8] e) { e = Exp(w) n = Neg(e) a = Mul(x, n) y = Tanh(a) }"
    model, _ = generate(text)
    assert kept(model) == ["Exp"]
    assert [p.splitlines()[0] for p in programs(model)] == ["x0:float x1:float"]


def test_a_smaller_value_is_computed_inside_where_nobody_else_reads_it() -> None:
    model, _ = generate("g (float[4,8] x, float[8] w) => (float[4,8] y) { e = Exp(w) a = Mul(x, e) y = Tanh(a) }")
    assert (len(programs(model)), kept(model)) == (1, [])


def test_a_way_through_another_node_is_never_closed_to_a_circle() -> None:
    text = """g (float[8,8] x) => (float[8,8] y) {
        a = Exp(x) b = Neg(a) m = MatMul(b, b) c = Tanh(m) d = Sub(c, a) y = Abs(d)
    }"""
    model, _ = generate(text)
    assert kept(model) == ["MatMul"]
    assert len(programs(model)) == 2


def test_groups_that_read_each_other_are_not_joined() -> None:
    """Each pair alone could be one, but not both: a1 -> b1 and b2 -> a2 through products."""
    text = """g (float[8,8] x, float[8,8] z) => (float[8,8] y, float[8,8] w) {
        a1 = Exp(x) b2 = Tanh(z) m = MatMul(a1, z) n = MatMul(b2, x) b1 = Mul(m, b2) a2 = Mul(n, a1) y = Abs(a2) w = Neg(b1)
    }"""
    model, _ = generate(text)
    assert kept(model).count("MatMul") == 2


def test_no_region_is_larger_than_it_may_be() -> None:
    steps = " ".join(f"v{i + 1} = {'Sin' if i % 2 else 'Cos'}(v{i})" for i in range(20))
    text = f"g (float[4,8] v0) => (float[4,8] v20) {{ {steps} }}"
    model, report = generate(text, max_fusion_size=8)
    assert max(len(d.nodes) for d in report.fused) == 8
    assert len(programs(model)) == 3


def test_views_that_broadcasting_makes_needless_vanish() -> None:
    text = """g (float[b,4,8] x, float[8] w) => (float[b,4,8] y) <int64[1] zero = {0}, int64[3] shape = {1, 1, 8}> {
        u = Unsqueeze(w, zero) r = Reshape(u, shape) i = Identity(r) a = Mul(x, i) y = Tanh(a)
    }"""
    model, _ = generate(text)
    assert kept(model) == []


def test_a_view_that_moves_axes_stays() -> None:
    text = (
        "g (float[4,8] x, float[4] w) => (float[4,8] y) <int64[1] one = {1}> { e = Exp(w) u = Unsqueeze(e, one) a = Mul(x, u) y = Tanh(a) }"
    )
    model, _ = generate(text)
    assert kept(model) == ["Exp", "Unsqueeze"]


def test_an_expand_vanishes_only_where_another_operand_has_its_shape() -> None:
    inside = "g (float[4,8] x, float[8] w) => (float[4,8] y) <int64[2] s = {4, 8}> { e = Expand(w, s) a = Mul(x, e) y = Tanh(a) }"
    alone = "g (float[8] w) => (float[4,8] y) <int64[2] s = {4, 8}> { e = Expand(w, s) a = Exp(e) y = Tanh(a) }"
    assert kept(generate(inside)[0]) == []
    assert kept(generate(alone)[0]) == ["Expand"]


def test_a_concat_is_read_by_the_operator_that_reads_it() -> None:
    text = """g (float[b,1,8] c, float[b,n,8] x, float[8] w) => (float[b,m,8] y, float[b,m,8] j) {
        e = Exp(x) j = Concat<axis=1>(c, e) a = Mul(j, w) y = Tanh(a)
    }"""
    model, report = generate(text)
    assert kept(model) == ["Exp"]
    assert report.fused[0].target == "FusedElementwise[Concat+Mul+Tanh]"
    assert "v0:float = Concat(x0, x1, -2)" in programs(model)[0]


def test_what_a_concat_reads_stays_outside_of_its_region() -> None:
    """Even where it could be broadcast to the shape of that."""
    text = """g (float[7,8] x, float[1,8] z) => (float[8,8] y) <float[1,8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        a = Exp(z) b = Mul(a, z) j = Concat<axis=0>(b, x) c = Add(j, w) y = Abs(c)
    }"""
    model, _ = generate(text)
    assert (len(programs(model)), kept(model)) == (2, [])


def test_a_concat_of_many_or_of_few_numbers() -> None:
    many = ", ".join(["x"] * 9)
    found = apart(f"g (float[4,8] x) => (float[4,72] y) {{ j = Concat<axis=1>({many}) a = Exp(j) y = Neg(a) }}")
    assert "a Concat of 9 is left as it is" in found["j"]
    model, _ = generate(
        "g (float[4,8] x) => (float[5,8] y) <float[1,8] w = {1,1,1,1,1,1,1,1}> { j = Concat<axis=0>(w, x) a = Exp(j) y = Neg(a) }"
    )
    assert (len(programs(model)), kept(model)) == (1, [])
    model, _ = generate("g (float[4] x) => (float[5] y) <float[1] w = {3}> { j = Concat<axis=0>(w, x) a = Exp(j) y = Mul(a, w) }")
    assert (len(programs(model)), kept(model)) == (1, [])


# ---- rows


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_with_what_stands_around_it_is_one_operator(op: str) -> None:
    text = f"g (float[b,4,8] x, float[8] m) => (float[b,4,8] y) {{ a = Add(x, m) s = {op}<axis=-1>(a) y = Neg(s) }}"
    model, report = generate(text)
    assert kept(model) == []
    assert report.fused[0].target == f"FusedReduction[Add+{op}+Neg]"


def test_a_softmax_of_an_old_opset_goes_over_all_axes_from_its_own_on() -> None:
    text = (
        '<opset_import: ["" : 11], ir_version: 8> g (float[2,4,8] x) => (float[2,4,8] y) { a = Exp(x) s = Softmax<axis=1>(a) y = Neg(s) }'
    )
    model, _ = generate(text)
    assert [a.i for n in model.graph.node for a in n.attribute if a.name == "axes"] == [2]


NORM = """g (float[b,4,8] x, float[8] w) => (float[b,4,8] y{more}) <int64[1] last = {{-1}}, float eps = {{0.001}}> {{
    q = Mul(x, x) m = ReduceMean<keepdims={keep}>(q, last) {view} e = Add({m}, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, w)
}}"""


def test_a_norm_without_a_name_is_one_operator() -> None:
    model, _ = generate(NORM.format(more="", keep=1, view="", m="m"))
    assert kept(model) == []
    assert "ReduceMean" in programs(model)[0]


def test_axes_that_a_reduction_loses_and_that_are_put_back_are_never_lost() -> None:
    model, _ = generate(NORM.format(more="", keep=0, view="u = Unsqueeze(m, last)", m="u"))
    assert kept(model) == []


def test_what_is_left_of_rows_can_be_an_output() -> None:
    model, _ = generate(NORM.format(more=", float[b,4,1] r", keep=1, view="", m="m"))
    assert kept(model) == []
    assert len(programs(model)[0].splitlines()[-1].split(",")) == 2


@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp"]
)
def test_every_reduction_of_trailing_axes_is_taken(op: str) -> None:
    text = f"g (float[3,4,8] x) => (float[3,1,1] y) <int64[2] axes = {{1, 2}}> {{ a = Abs(x) s = {op}<keepdims=1>(a, axes) y = Exp(s) }}"
    model, _ = generate(text)
    assert kept(model) == []


@pytest.mark.parametrize(
    ("body", "value", "words"),
    [
        ("a = Exp(x) z = CumSum(a, one) y = Neg(z)", "z", "cumulative"),
        ("a = Exp(x) z = ReduceSum<keepdims=1>(a, axis) y = Sub(a, z)", "z", "must be the last ones; they are [0] of 2"),
        ("a = Exp(x) z = Softmax<axis=0>(a) y = Neg(z)", "z", "its row must be the last axis"),
        ("z = MatMul(x, x) y = Neg(z)", "z", "neither pointwise nor a reduction of rows"),
        (
            "z = MatMul(x, x) y = Neg(z)",
            "y",
            "nothing that it could be computed with stands next to it, or is of one shape with it: it reads MatMul and is an output",
        ),
        ("z = Transpose(x) y = Neg(z)", "z", "neither pointwise"),
    ],
)
def test_explain_says_why_a_node_is_in_no_region(body: str, value: str, words: str) -> None:
    text = f"g (float[8,8] x) => (float[8,8] y) <int64 one = {{1}}, int64[1] axis = {{0}}> {{ {body} }}"
    assert words in apart(text)[value]


# ---- sizes

NUMBERS = "int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, int64[1] rest = {4}, int64[1] three = {3}"
SIZES = f"""g (float[batch,seq,12] x) => (float[batch,3,seq,4] y) <{NUMBERS}> {{
    m = Exp(x) s = Shape(m) b = Gather(s, zero) bu = Unsqueeze(b, axis) s2 = Shape(m) t = Gather(s2, one) tu = Unsqueeze(t, axis)
    shape = Concat<axis=0>(bu, tu, three, rest) r = Reshape(m, shape) y = Transpose<perm=[0,2,1,3]>(r)
}}"""


def test_shape_arithmetic_is_read_off_the_inputs() -> None:
    model, report = generate(SIZES)
    assert kept(model) == ["Exp", "Reshape", "Transpose"]
    assert "Dim(x0, 0)" in programs(model)[0]
    assert report.fused[0].rule == "fused_sizes"


def test_sizes_stay_where_the_runtime_keeps_them_on_a_gpu() -> None:
    model, _ = generate(SIZES, device="a100")
    assert programs(model) == []


def test_a_size_that_no_input_tells_stays() -> None:
    text = """g (float[n] x) => (int64[1] y) {
        z = NonZero(x) s = Shape(z) i = Constant<value = int64[1] {1}>() g = Gather(s, i) t = Constant<value = int64[1] {2}>() y = Mul(g, t)
    }"""
    model, _ = generate(text)
    assert programs(model) == []


def test_sizes_may_start_from_another_operator_than_a_shape() -> None:
    text = "g (float[n,4] x) => (float[n,4] z, int64 y) <int64 two = {2}> { z = Exp(x) s = Size(z) m = Mul(s, two) y = Neg(m) }"
    model, report = generate(text)
    assert kept(model) == ["Exp"]
    assert "Dim(x0, 0)" in programs(model)[0]


def test_groups_that_read_the_same_large_value_are_one() -> None:
    text = "g (float[b,8] x, float[8] w) => (float[b,8] y, float[b,8] z) { c = Cos(x) y = Mul(c, w) s = Sin(x) z = Mul(s, w) }"
    model, _ = generate(text)
    assert (len(programs(model)), kept(model)) == (1, [])


def test_groups_that_read_the_same_value_stay_apart_where_one_waits_for_the_other() -> None:
    text = "g (float[8,8] x) => (float[8,8] y) { c = Cos(x) a = Neg(c) m = MatMul(a, a) s = Sub(m, x) y = Abs(s) }"
    model, _ = generate(text)
    assert len(programs(model)) == 2


@pytest.mark.parametrize("shape", ["8,8", "n,n", "1,8,8", "8,8,8"])
def test_a_reduction_that_loses_its_axis_is_not_taken_for_one_that_keeps_it(shape: str) -> None:
    """What is left of the rows lies along the last axis then."""
    text = f"""<opset_import: ["" : 17]> g (float[{shape}] x) => (float[{shape}] y) {{
        a = Constant<value = int64[1] {{-1}}>() q = Mul(x, x) v = ReduceSum<keepdims = 0>(q, a) r = Sqrt(v) y = Sub(x, r)
    }}"""
    model, _ = generate(text)
    assert not any("ReduceSum" in program for program in programs(model))


@pytest.mark.parametrize(("given", "left"), [("2,a,1", "2,a"), ("1", ""), ("2,a,4", "2,a")])
def test_a_result_that_has_lost_an_axis_is_not_given_with_it(given: str, left: str) -> None:
    """Nor where the axis has one element, so that a row is as large as the whole."""
    made = f"float[{left}]" if left else "float"
    model, _ = generate(
        f"g (float[{given}] x) => ({made} y) <int64[1] a = {{-1}}> {{ q = Exp(x) r = Neg(q) y = ReduceL1<keepdims=0>(r, a) }}"
    )
    assert "ReduceL1" in kept(model)


def test_what_is_joined_and_read_itself_is_no_row() -> None:
    text = """g (float[1,1,1] x) => (float[1,3,1] j, float[1,3,1] d, float[1,1,1] r) <int64[2] a = {-2, -1}> {
        e = Elu(x) w = Neg(e) j = Concat<axis=-2>(w, w, e) d = Sub(j, e) r = ReduceL2<keepdims=1>(j, a)
    }"""
    model, _ = generate(text)
    assert not any("/row" in program for program in programs(model) if "Concat" in program)


def test_nothing_is_made_of_float16_alone_for_a_cpu() -> None:
    """The runtime runs it in float32 between products that it runs so, whatever types a program has written down."""
    text = "g (float16[4,8] x, float16[8,8] w) => (float16[4,8] y) { a = MatMul(x, w) t = Tanh(a) m = Mul(t, a) y = MatMul(m, w) }"
    model, _ = generate(text)
    assert programs(model) == []
    assert "it is float16 throughout" in apart(text)["m"]
