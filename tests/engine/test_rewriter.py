"""The rewriter: what no fusion takes stays byte for byte, and nothing of what it takes is left behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import api, graph
from onnxfuse.op import DOMAIN, VERSION
from onnxfuse.pattern import Scalar, Var, op, target
from onnxfuse.rewriter import rewrite
from onnxfuse.rule import Rule
from tests.engine.harness import GELU_CONSTANTS, assert_fuses, assert_same_numbers, feed, fuse, gelu, parse, run

x = Var("x")
TWO_GELUS = (
    f"g (float[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{ a = Sin(x) {gelu('a', 'b')} c = Cos(b) {gelu('c', 'd', 'k')} y = Sinh(d) }}"
)


def bytes_of(protos: Sequence[onnx.NodeProto]) -> list[bytes]:
    return [p.SerializeToString(deterministic=True) for p in protos]


def decorated(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with names, documentation and metadata on everything."""
    model.doc_string, model.producer_name, model.producer_version, model.model_version, model.domain = "doc", "us", "7", 3, "org.us"
    model.metadata_props.add(key="who", value="us")
    model.graph.doc_string = "graph doc"
    model.graph.metadata_props.add(key="where", value="here")
    for number, node in enumerate(model.graph.node):
        node.name, node.doc_string = f"node {number}", f"doc {number}"
        node.metadata_props.add(key="line", value=str(number))
        node.metadata_props.add(key="module", value="mlp")
        model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [2, 8]))
        model.graph.value_info[-1].doc_string = f"about {node.output[0]}"
    return model


def test_nothing_chosen_is_the_same_model_byte_for_byte() -> None:
    model = decorated(parse(TWO_GELUS))
    assert rewrite(graph.load(model), []).proto.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_the_model_that_is_rewritten_is_not_changed() -> None:
    model = decorated(parse(TWO_GELUS))
    before = model.SerializeToString(deterministic=True)
    assert fuse(model, "gelu").own == ["Gelu", "Gelu"]
    assert model.SerializeToString(deterministic=True) == before


def test_untouched_nodes_keep_their_bytes_and_their_order() -> None:
    model = decorated(parse(TWO_GELUS))
    after = fuse(model, "gelu").model
    kept = [n for n in after.graph.node if n.domain != DOMAIN]
    assert bytes_of(kept) == bytes_of([n for n in model.graph.node if n.op_type in ("Sin", "Cos", "Sinh")])
    assert [n.op_type for n in after.graph.node] == ["Sin", "Gelu", "Cos", "Gelu", "Sinh"]
    assert [i.SerializeToString() for i in after.graph.input] == [i.SerializeToString() for i in model.graph.input]
    assert [o.SerializeToString() for o in after.graph.output] == [o.SerializeToString() for o in model.graph.output]


def test_what_is_said_of_the_model_and_the_graph_stays() -> None:
    model = decorated(parse(TWO_GELUS))
    after = fuse(model, "gelu").model
    for name in ("doc_string", "producer_name", "producer_version", "model_version", "domain"):
        assert getattr(after, name) == getattr(model, name)
    assert list(after.metadata_props) == list(model.metadata_props)
    assert after.graph.doc_string == "graph doc" and list(after.graph.metadata_props) == list(model.graph.metadata_props)


def test_what_is_said_of_values_that_are_gone_goes_and_the_rest_stays() -> None:
    after = fuse(decorated(parse(TWO_GELUS)), "gelu").model
    assert [v.name for v in after.graph.value_info] == ["a", "b", "c", "d", "y"]
    assert [v.doc_string for v in after.graph.value_info] == [f"about {n}" for n in "abcdy"]


def test_the_new_node_keeps_what_all_it_replaces_agree_on() -> None:
    model = decorated(parse(TWO_GELUS))
    made = [n for n in fuse(model, "gelu").model.graph.node if n.domain == DOMAIN]
    assert [[(p.key, p.value) for p in n.metadata_props] for n in made] == [[("module", "mlp")]] * 2
    assert [n.doc_string for n in made] == ["", ""]
    assert len({n.name for n in made}) == 2


def test_quantization_annotations_of_values_that_are_gone_go() -> None:
    model = parse(TWO_GELUS)
    for name in ("a", "g2"):
        model.graph.quantization_annotation.add(tensor_name=name)
    assert [q.tensor_name for q in fuse(model, "gelu").model.graph.quantization_annotation] == ["a"]


# ---- initializers


def test_initializers_that_lose_their_last_reader_go_and_unused_ones_stay() -> None:
    model = parse(TWO_GELUS)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "never used"))
    assert [t.name for t in fuse(model, "gelu").model.graph.initializer] == ["never used"]


def test_a_dead_node_of_the_model_stays() -> None:
    text = f"g (float[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{ dead = Sin(x) {gelu('x', 'y')} }}"
    assert fuse(parse(text), "gelu").ops == ["Sin", "Gelu"]


def test_a_tied_weight_stays_for_its_other_reader() -> None:
    text = """g (float[2,8] x) => (float[2,8] y, float[2,8] z)
    <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] v = {8, 7, 6, 5, 4, 3, 2, 1}> {
        s = Add(x, w) t = Sigmoid(s) y = Mul(s, t) z = Add(x, v) q = Mul(w, v)
    }"""
    before = parse(text)
    after = fuse(before, Rule(before=op.Swish(x + Var("b", constant=True), alpha=Scalar("a")), after=_biased(), name="r")).model
    assert [t.name for t in after.graph.initializer] == ["w", "v"]
    assert_same_numbers(before, after)


def _biased() -> object:
    from onnxfuse.custom_ops.silu.op import SILU

    return SILU(x, Var("b"), alpha=Scalar("a"))


@pytest.mark.parametrize("ir", [4, 8, 10])
def test_an_initializer_that_the_caller_may_override_is_no_constant(ir: int) -> None:
    text = f"g (float[2,8] x, float root_half) => (float[2,8] y) {GELU_CONSTANTS} {{ {gelu('x', 'y')} }}"
    model = parse(text, ir_version=ir)
    done = fuse(model)
    assert done.chosen == [] and [i.name for i in done.model.graph.input] == ["x", "root_half"]


@pytest.mark.parametrize("opset", [11, 13])
def test_initializers_that_ir_3_lists_as_inputs_are_constants(opset: int) -> None:
    """And leave the inputs: from IR 4 on that would make them defaults that a caller may override."""
    text = f"g (float[2,8] x, float root_half, float one, float half) => (float[2,8] y) {GELU_CONSTANTS} {{ {gelu('x', 'y')} }}"
    model = parse(text, opset=opset, ir_version=3)
    done = assert_fuses(model, "gelu", into=["Gelu"])
    assert [i.name for i in done.model.graph.input] == ["x"]
    assert done.model.ir_version == 8
    assert [n.op_type for n in api.optimize(model, level="all").model.graph.node] == ["Gelu"]  # verified


def test_a_sparse_initializer_is_a_value_like_any_other() -> None:
    text = f"g (float[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{ s = Mul(x, sparse) {gelu('s', 'y')} }}"
    model = onnx.ModelProto()
    model.CopyFrom(parse(text.replace("float half", "float[8] sparse = {0, 0, 0, 0, 0, 0, 0, 0}, float half")))
    dense = next(t for t in model.graph.initializer if t.name == "sparse")
    model.graph.initializer.remove(dense)
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [3.0, 5.0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [2], [1, 6]), [8]))
    done = fuse(model, "gelu")
    assert done.ops == ["Mul", "Gelu"] and [s.values.name for s in done.model.graph.sparse_initializer] == ["sparse"]
    np.testing.assert_allclose(run(done.model, feed(model))[0], run(model, feed(model))[0], atol=1e-5)


# ---- names, bodies, imports


def test_new_names_are_new_in_every_graph_and_function() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2,8] x, bool c) => (float[2,8] y, float[2,8] z) {GELU_CONSTANTS} {{
        {gelu("x", "Gelu_0")}
        y = If (c) <then_branch = t () => (float[2,8] p) {{ Gelu_1 = Exp(Gelu_0) p = local.f(Gelu_1) }},
                    else_branch = e () => (float[2,8] q) {{ q = Neg(x) }}>
        z = Neg(Gelu_0)
    }}
    <domain: "local", opset_import: ["" : 17]> f (v) => (w) {{ Gelu_2 = Exp(v) w = Neg(Gelu_2) }}"""
    after = assert_fuses(text, "gelu", into=["Gelu"]).model
    (made,) = [n for n in after.graph.node if n.op_type == "Gelu"]
    assert made.name not in {"", "Gelu_0", "Gelu_1", "Gelu_2"}


def test_equal_uses_share_one_body() -> None:
    after = fuse(parse(TWO_GELUS), "gelu").model
    assert [(f.domain, f.name, f.overload) for f in after.functions] == [(DOMAIN, "Gelu", "")]
    assert after.ir_version == 8
    assert {o.domain: o.version for o in after.opset_import} == {"": 17, DOMAIN: VERSION}


def test_uses_with_another_meaning_get_a_body_of_their_own() -> None:
    """Told apart by name: older runtimes know no overloads."""
    text = (
        """g (float[2,8] x) => (float[2,8] y) <float one = {1.0}, float half = {0.5}, float root_half = {0.70710678}, float c = {0.044715},
        float k = {0.7978845608}, float three = {3.0}> {
        q1 = Pow(x, three) q2 = Mul(q1, c) q3 = Add(x, q2) q4 = Mul(q3, k) q5 = Tanh(q4) q6 = Add(q5, one) q7 = Mul(x, q6) z = Mul(q7, half)
    """
        + gelu("z", "y")
        + "}"
    )
    model = parse(text)
    done = assert_fuses(model, "gelu", into=["Gelu", "Gelu_2"])
    assert sorted(f.name for f in done.model.functions) == ["Gelu", "Gelu_2"]
    assert sorted(n.op_type for n in done.model.graph.node) == ["Gelu", "Gelu_2"]
    assert done.model.ir_version == 8


@pytest.mark.parametrize("ir", [4, 6, 8, 9, 10, 11])
def test_the_ir_version_rises_no_further_than_bodies_need(ir: int) -> None:
    assert fuse(parse(TWO_GELUS, opset=13, ir_version=ir), "gelu").model.ir_version == max(ir, 8)


def test_a_contrib_op_needs_no_body_and_no_newer_ir() -> None:
    rule = Rule(before=op.Swish(x, alpha=Scalar("alpha")), after=target("com.microsoft").QuickGelu(x, alpha=Scalar("alpha")), name="quick")
    model = parse("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", opset=13, ir_version=7)
    after = fuse(model, rule).model
    assert len(after.functions) == 0 and after.ir_version == 7
    assert {o.domain: o.version for o in after.opset_import} == {"": 13, "com.microsoft": 1}
    assert_same_numbers(model, after)


def test_a_second_pass_uses_the_bodies_that_are_there() -> None:
    first = fuse(parse(TWO_GELUS), "gelu").model
    more = onnx.ModelProto()
    more.CopyFrom(first)
    more.graph.node[-1].op_type = "Sigmoid"  # a SiLU now
    more.graph.node[-1].output[0] = "s"
    more.graph.node.append(helper.make_node("Mul", ["d", "s"], ["y"]))
    done = assert_fuses(more, into=["Gelu", "Gelu", "Silu"])
    assert sorted(f.name for f in done.model.functions) == ["Gelu", "Silu"]


def test_a_model_without_our_ops_imports_nothing_of_ours() -> None:
    assert [o.domain for o in fuse(parse("g (float[2,8] x) => (float[2,8] y) { y = Sin(x) }")).model.opset_import] == [""]


# ---- control flow and functions


def test_branches_are_rewritten_and_what_they_read_from_outside_stays() -> None:
    text = f"""g (float[2,8] x, bool c) => (float[2,8] y) {GELU_CONSTANTS} {{
        a = Sin(x)
        y = If (c) <then_branch = t () => (float[2,8] p) {{ {gelu("a", "p")} }}, else_branch = e () => (float[2,8] q) {{ q = Neg(a) }}>
    }}"""
    model = parse(text)
    feeds = [{**feed(model), "c": np.array(c)} for c in (True, False)]
    done = fuse(model, "gelu")
    assert done.own == ["Gelu"]
    assert_same_numbers(model, done.model, *feeds)
    assert len(done.model.graph.initializer) == 0


def test_nested_branches_are_rewritten() -> None:
    text = f"""g (float[2,8] x, bool c) => (float[2,8] y) {GELU_CONSTANTS} {{
        y = If (c) <then_branch = t () => (float[2,8] p) {{
            {gelu("x", "inner")}
            p = If (c) <then_branch = tt () => (float[2,8] pp) {{ {gelu("inner", "pp", "k")} }},
                        else_branch = te () => (float[2,8] pq) {{ pq = Neg(x) }}>
        }}, else_branch = e () => (float[2,8] q) {{ {gelu("x", "q", "m")} }}>
    }}"""
    model = parse(text)
    done = fuse(model, "gelu")
    assert done.own == ["Gelu"] * 3
    assert_same_numbers(model, done.model, *[{**feed(model), "c": np.array(c)} for c in (True, False)])


def test_a_loop_body_is_rewritten() -> None:
    text = f"""g (float[2,8] x, int64 n) => (float[2,8] y) {GELU_CONSTANTS} {{
        go = Constant<value = bool {{1}}>()
        y = Loop (n, go, x) <body = b (int64 i, bool on, float[2,8] v) => (bool on_out, float[2,8] w) {{
            on_out = Identity(on) {gelu("v", "w")}
        }}>
    }}"""
    model = parse(text)
    done = fuse(model, "gelu")
    assert done.own == ["Gelu"]
    assert_same_numbers(model, done.model, {**feed(model), "n": np.array(3)}, {**feed(model), "n": np.array(0)})


def test_a_scan_body_is_rewritten() -> None:
    text = f"""g (float[2] start, float[5,2] xs) => (float[2] last, float[5,2] ys) {GELU_CONSTANTS} {{
        last, ys = Scan (start, xs) <num_scan_inputs = 1, body = b (float[2] v, float[2] e) => (float[2] w, float[2] out) {{
            u = Add(v, e) {gelu("u", "w")} out = Identity(w)
        }}>
    }}"""
    assert_fuses(text, "gelu", into=["Gelu"])


FUNCTION = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2,8] x) => (float[2,8] y) {{ a = local.act(x) y = local.act(a) }}
    <domain: "local", opset_import: ["" : 17]> act (v) => (w) {{
        root_half = Constant<value = float {{0.70710678}}>()
        one = Constant<value = float {{1.0}}>() half = Constant<value = float {{0.5}}>()
        {gelu("v", "w")}
    }}"""


def test_a_function_without_types_is_left_alone_and_valid() -> None:
    """Shapes in a function depend on the call; what is fused in it must be right for all."""
    model = parse(FUNCTION)
    done = fuse(model, "gelu")
    assert_same_numbers(model, done.model)


def test_a_function_with_types_is_rewritten() -> None:
    model = parse(FUNCTION)
    infos = {"v": (2, 8), **{f"g{i}": (2, 8) for i in range(1, 5)}, "w": (2, 8)}
    for name, shape in infos.items():
        model.functions[0].value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    done = fuse(model, "gelu")
    assert_same_numbers(model, done.model)
    if done.own:
        act = next(f for f in done.model.functions if f.name == "act")
        assert [n.op_type for n in act.node] == ["Gelu"]
        assert DOMAIN in {o.domain for o in act.opset_import}


@pytest.mark.parametrize(
    ("inner", "given"),
    [
        ("s = Softmax<axis: int = @a>(v) w = Mul(s, v)", "a = 0"),
        ("i = Constant<value = int64[1] {0}>() s = ReduceMean<keepdims: int = @a>(v, i) w = Mul(s, v)", "a = 0"),
        ("s = Gelu<approximate: string = @a>(v) w = Neg(s)", 'a = "tanh"'),
        ("q = Mul(v, v) s = LayerNormalization<epsilon: float = @a>(v, v0) w = Neg(s)", "a = 0.5"),
        ("s = Concat<axis: int = @a>(v, v) w = Neg(s)", "a = 0"),
        ("s = Transpose<perm: ints = @a>(v) w = Neg(s)", "a = [0, 1]"),
        ("s = HardSigmoid<alpha: float = @a>(v) w = Mul(s, v)", "a = 0.25"),
        ("c = Constant<value_float: float = @a>() s = Mul(v, c) w = Sigmoid(s)", "a = 2.0"),
        ("s = Elu<alpha: float = @a>(v) w = Neg(s)", "a = 0.5"),
    ],
)
def test_attributes_that_the_caller_of_a_function_gives_are_left_to_it(inner: str, given: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 20, "local" : 1]>
        g (float[2,8] x, float[8] x0) => (float[?,?] y) {{ y = local.f<{given}>(x, x0) }}
        <domain: "local", opset_import: ["" : 20]> f <a> (v, v0) => (w) {{ {inner} }}"""
    model = parse(text)
    done = fuse(model)
    assert_same_numbers(model, done.model)
