"""What shape inference promises of whole models: which sizes are equal, what a model may add, and that nothing makes it fail."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import graph, shapes, symbolic
from onnxfuse.symbolic import symbol
from tests.graph.shape_cases import CASES
from tests.graph.test_shape_rules import parse

B, S, P = symbol("b"), symbol("s"), symbol("p")


def infer(text: str, *, opset: int = 20, rest: str = "") -> graph.Model:
    """A model from text, inferred; `rest` holds functions."""
    imports = f'"" : {opset}, "lib" : 1, "other" : 1'
    model = graph.load(onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\ng {text}\n{rest}"))
    shapes.infer(model)
    return model


def shape(model: graph.Model, name: str) -> tuple[symbolic.Dim, ...] | None:
    return model.main.values[name].shape


def declare(model: onnx.ModelProto, name: str, dims: list[int | str | None], dtype: int = TensorProto.FLOAT) -> graph.Model:
    model.graph.value_info.append(helper.make_tensor_value_info(name, dtype, dims))
    loaded = graph.load(model)
    shapes.infer(loaded)
    return loaded


def test_a_past_makes_the_keys_longer() -> None:
    model = infer("(float[b,4,p,8] past, float[b,4,s,8] k) => (y) { y = Concat <axis = 2> (past, k) }")
    assert shape(model, "y") == (B, 4, P + S, 8)
    assert repr(model.main.values["y"]) == "Value('y', float[b,4,p+s,8])"


def test_two_spellings_of_a_head_split_have_one_shape() -> None:
    model = infer("""(float[b,s,768] x) => (y, z)
        <int64 i = {0}, int64 j = {1}, int64[1] axis = {0}, int64[2] heads = {12, 64}, int64[4] t = {0, 0, 12, -1}> {
        d = Shape (x)
        e = Gather (d, i)
        f = Gather (d, j)
        g = Unsqueeze (e, axis)
        h = Unsqueeze (f, axis)
        n = Concat <axis = 0> (g, h, heads)
        y = Reshape (x, n)
        z = Reshape (x, t)
    }""")
    assert shape(model, "y") == shape(model, "z") == (B, S, 12, 64)
    assert model.main.values["n"].elements == (B, S, 12, 64)


def test_sizes_nobody_says_are_equal_differ() -> None:
    model = infer("(float[b,8] x, float[s,8] z) => (y) { y = Add (x, z) }")
    (rows, columns) = shape(model, "y") or ()
    assert rows == symbolic.broadcast(B, S) and rows not in (B, S)
    assert columns == 8


def test_unnamed_input_sizes_are_symbols_of_their_own() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, "x.0"]) for name in ("x", "z")]
    model = graph.load(helper.make_model(helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])))
    shapes.infer(model)
    x, z = shape(model, "x"), shape(model, "z")
    assert x is not None and z is not None
    assert len({x[0], z[0], symbol("x.0")}) == 3
    assert x[1] == z[1] == symbol("x.0")
    assert all(symbolic.is_named(d) for d in (*x, *z))


def test_an_input_without_a_shape_stays_unknown() -> None:
    inputs = [onnx.helper.make_value_info("x", helper.make_tensor_type_proto(TensorProto.FLOAT, None))]
    proto = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", inputs, [onnx.ValueInfoProto(name="y")]))
    model = graph.load(proto)
    shapes.infer(model)
    assert shape(model, "y") is None
    assert model.main.values["y"].dtype == TensorProto.FLOAT


CUSTOM = "(float[b,s] x) => (y) { q = lib.Mystery (x) y = Relu (q) }"
COMPRESS = "(float[b,s] x, bool[s] c) => (y) { q = Compress <axis = 1> (x, c) y = Relu (q) }"


def proto(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20, "lib" : 1]>\ng {text}')


def test_a_model_says_what_an_unknown_op_makes() -> None:
    model = declare(proto(CUSTOM), "q", ["b", 7], TensorProto.FLOAT16)
    assert shape(model, "y") == (B, 7)
    assert model.main.values["y"].dtype == TensorProto.FLOAT16


def test_a_model_names_a_size_that_depends_on_data() -> None:
    assert shape(declare(proto(COMPRESS), "q", ["b", "kept"]), "y") == (B, symbol("kept"))
    assert shape(declare(proto(COMPRESS), "q", ["b", 3]), "y") == (B, 3)


def test_what_is_inferred_wins_over_what_a_model_says() -> None:
    text = "(float[b,s] x) => (y) { q = Relu (x) y = Relu (q) }"
    assert shape(declare(proto(text), "q", ["other", 9]), "y") == (B, S)
    assert shape(declare(proto(text), "q", [1, 2, 3]), "y") == (B, S)


def test_a_model_says_that_an_axis_is_never_empty() -> None:
    text = "(float[b,s] x) => (y) <int64[1] o = {0}, int64[1] n = {1}, int64[1] a = {1}> { q = Slice (x, o, n, a) y = Relu (q) }"
    assert shape(infer(text), "y") == (B, symbolic.minimum(S, 1))
    assert shape(declare(proto(text), "q", ["b", 1]), "y") == (B, 1)


def test_contents_are_noted_of_small_integer_vectors_only() -> None:
    model = infer("""(float[b,s] x) => (y, n)
        <int64[2,2] m = {1, 2, 3, 4}, int64[3] v = {1, 2, 3}, bool[1] t = {1}, float[2] f = {1, 2}> {
        y = Shape (x)
        n = Cast <to = 1> (y)
    }""")
    elements = {name: value.elements for name, value in model.main.values.items()}
    assert elements == {"x": None, "m": None, "v": (1, 2, 3), "t": (1,), "f": None, "y": (B, S), "n": None}


def test_a_constant_that_a_caller_may_override_has_no_contents() -> None:
    overridable = proto("(float[b,s] x, int64[2] n) => (y) { y = ConstantOfShape (n) }")
    overridable.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "n"))
    model = graph.load(overridable)
    shapes.infer(model)
    assert model.main.values["n"].elements is None
    found = shape(model, "y")
    assert found is not None and len(found) == 2 and not any(isinstance(d, int) for d in found)


def test_weights_in_files_are_not_read(tmp_path: Path) -> None:
    source = proto("(float[b,4] x) => (y, z) { y = MatMul (x, w) z = Reshape (x, n) }")
    for name, array in (("w", np.zeros((4, 8), np.float32)), ("n", np.array([-1, 2]))):
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path / "m.onnx"
    onnx.save(source, path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    model = graph.load(path)
    shapes.infer(model)
    assert shape(model, "y") == (B, 8)
    found = shape(model, "z")
    assert found is not None and len(found) == 2 and not any(map(symbolic.is_named, found))  # its target is lost with the file


TWICE = '<domain: "lib", opset_import: ["" : 20]> Twice (a) => (c) { n = Shape (a) q = Concat <axis = -1> (a, a) c = Relu (q) }'


def test_a_function_called_once_has_the_types_of_its_call() -> None:
    model = infer("(float[b,s] x) => (y) { y = lib.Twice (x) }", rest=TWICE)
    (body,) = model.functions
    assert shape(model, "y") == body.values["c"].shape == (B, 2 * S)
    assert body.values["n"].elements == (B, S)


def test_a_function_called_twice_has_what_its_calls_share() -> None:
    model = infer("(float[b,s] x, float[b,8] z) => (y, v) { y = lib.Twice (x) v = lib.Twice (z) }", rest=TWICE)
    assert shape(model, "y") == (B, 2 * S)
    assert shape(model, "v") == (B, 16)
    inside = model.functions[0].values["a"]
    assert inside.dtype == TensorProto.FLOAT and inside.shape is not None
    assert inside.shape[0] == B and not symbolic.is_named(inside.shape[1])


def test_a_function_knows_its_attributes_in_each_call() -> None:
    body = """<domain: "lib", opset_import: ["" : 20]> Sum <axis> (a) => (c) {
        n = Constant <value_int: int = @axis> ()
        i = Constant <value_ints = [1]> ()
        m = Reshape (n, i)
        c = ReduceSum (a, m)
    }"""
    model = infer("(float[b,s,8] x) => (y, v) { y = lib.Sum <axis = 1> (x) v = lib.Sum <axis = 2> (x) }", rest=body)
    assert shape(model, "y") == (B, 1, 8)
    assert shape(model, "v") == (B, S, 1)


def test_functions_may_call_functions() -> None:
    outer = '<domain: "other", opset_import: ["" : 20, "lib" : 1]> Four (a) => (c) { q = lib.Twice (a) c = lib.Twice (q) }'
    model = infer("(float[b,s] x) => (y) { y = other.Four (x) }", rest=f"{TWICE}\n{outer}")
    assert shape(model, "y") == (B, 4 * S)
    by_name = {f.name: f for f in model.functions}
    assert by_name["function other::Four"].values["c"].shape == (B, 4 * S)
    inner = by_name["function lib::Twice"].values["a"].shape
    assert inner is not None and inner[0] == B and not symbolic.is_named(inner[1])


def test_a_function_that_calls_itself_ends() -> None:
    body = '<domain: "lib", opset_import: ["" : 20, "lib" : 1]> Again (a) => (c) { c = lib.Again (a) }'
    model = infer("(float[b,s] x) => (y) { y = lib.Again (x) }", rest=body)
    assert shape(model, "y") is None


def test_what_a_loop_grows_has_another_size_in_every_iteration() -> None:
    model = infer("""(float[b,s] x) => (y) <int64 count = {3}, bool go = {1}> {
        y = Loop (count, go, x) <body = l (int64 i, bool c, float[b,s] a) => (k, n) { k = Identity (c) n = Concat <axis = 1> (a, x) }>
    }""")
    (body,) = model.main.nodes[-1].subgraphs
    inside, coming, final = body.values["a"].shape, body.values["n"].shape, shape(model, "y")
    assert inside is not None and coming is not None and final is not None
    assert inside[0] == coming[0] == final[0] == B
    assert coming[1] == inside[1] + S
    assert len({inside[1], coming[1], final[1], S}) == 4


def test_branches_share_what_they_agree_on() -> None:
    model = infer("""(float[b,s] x, bool c) => (y) {
        y = If (c) <then_branch = t () => (u) { u = Concat <axis = 1> (x, x) }, else_branch = e () => (v) { v = Relu (x) }>
    }""")
    rows, columns = shape(model, "y") or ()
    assert rows == B and columns not in (S, 2 * S)


ODD_ATTRIBUTES = (0, -7, 3.5, "x", [1, 0], [9, 9, 9], [0.5])
ODD_SHAPES: tuple[list[int | str], ...] = ([], ["b"], [0, 0, 0], [3, 4], ["s", 1, 1, 1, 1])


def damage(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change one thing for the worse: an attribute, an operand, a constant or the shape of an input."""
    node = rng.choice(list(model.graph.node))
    kind = rng.randrange(6)
    if kind == 0 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 1 and node.attribute:
        attribute = rng.choice(node.attribute)
        attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice(ODD_ATTRIBUTES)))
    elif kind == 2 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", *(i.name for i in model.graph.input)])
    elif kind == 3 and node.input:
        del node.input[-1]
    elif kind == 4 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        array = numpy_helper.to_array(tensor)
        odd = np.resize(array, rng.choice([(), (0,), (1,), (2,), (2, 2)])) * rng.choice([0, 1, 5])
        tensor.CopyFrom(numpy_helper.from_array(odd.astype(array.dtype), tensor.name))
    elif model.graph.input:
        info = rng.choice(model.graph.input)
        info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, rng.choice(ODD_SHAPES)))


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_model_is_unknown_and_no_error(name: str) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        source = parse(CASES[name])
        for _ in range(rng.randint(1, 3)):
            damage(source, rng)
        model = graph.load(source)
        shapes.infer(model)
        for value in model.main.values.values():
            assert value.shape is None or all(d >= 0 for d in value.shape if isinstance(d, int))
