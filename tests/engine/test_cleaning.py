"""`--clean` takes away what is not needed, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfuse import cleaning, graph
from onnxfuse.cleaning import Cleaned
from onnxfuse.ruletest import parse
from tests.engine.harness import feed, run

# what goes, by reason, and the operators that are left
CLEANED = {
    "a shape that is known": (
        "g (float[2,3] x) => (int64[2] y, float[2,3] z) { s = Shape(x)  y = Identity(s)  z = Relu(x) }",
        {"known sizes": 2},
        ["Relu"],
    ),
    "sizes that a Reshape works out by itself": (
        """g (float[b,6] x) => (float[b,2,3] y) <int64[1] i = {0}, int64[2] r = {2, 3}> {
            s = Shape(x)  b = Gather(s, i)  t = Concat <axis = 0> (b, r)  y = Reshape(x, t)
        }""",
        {"unread": 3},
        ["Reshape"],
    ),
    "sizes that stay where they are": (
        """g (float[b,s,6] x) => (float[b,s,2,3] y) <int64[2] i = {0, 1}, int64[2] r = {2, 3}> {
            s = Shape(x)  b = Gather(s, i)  t = Concat <axis = 0> (b, r)  y = Reshape(x, t)
        }""",
        {"unread": 3},
        ["Reshape"],
    ),
    "constants": (
        """g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> { c = Mul(a, b)  d = Exp(c)  y = Add(x, d) }""",
        {"constants": 2},
        ["Add"],
    ),
    "computed twice": (
        "g (float[2] x) => (float[2] y) { a = Exp(x)  b = Exp(x)  c = Sin(a)  d = Sin(b)  y = Add(c, d) }",
        {"computed twice": 2},
        ["Exp", "Sin", "Add"],
    ),
    "a pair that undoes itself": (
        """g (float[2,3,4] x) => (float[2,3,4] y) {
            a = Transpose <perm = [1, 2, 0]> (x)  b = Transpose <perm = [2, 0, 1]> (a)  y = Exp(b)
        }""",
        {"no effect": 1, "unread": 1},
        ["Exp"],
    ),
    "a cast to what it is": ("g (float[2] x) => (float[2] y) { a = Cast <to = 1> (x)  y = Exp(a) }", {"no effect": 1}, ["Exp"]),
    "nobody reads it": ("g (float[2] x) => (float[2] y) { a = Exp(x)  b = Sin(a)  y = Exp(x) }", {"unread": 2}, ["Exp"]),
}
KEPT = {
    "a cast that rounds": "g (float[2] x) => (float[2] y) { a = Cast <to = 10> (x)  b = Cast <to = 1> (a)  y = Exp(b) }",
    "numbers that differ each time": """g (float[2] x) => (float[2] y) {
        a = RandomNormalLike(x)  b = RandomNormalLike(x)  c = Sub(a, b)  y = Mul(x, c)
    }""",
    "what the model gives by two names": "g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x)  z = Exp(x) }",
    "sizes that nobody can say": """g (float[b,s] x) => (float[s,b] y) <int64[2] i = {1, 0}> {
        s = Shape(x)  t = Gather(s, i)  y = Reshape(x, t)
    }""",
    "what is quantised": """g (float[2] x) => (float[2] y) <uint8[2] w = {1, 2}, float s = {0.5}, uint8 z = {0}> {
        d = DequantizeLinear(w, s, z)  y = Add(x, d)
    }""",
    "what grows": """g (float[2000,2000] x) => (float[2000,2000] y) <float[1,2000] a = {0}, int64[2] n = {2000, 2000}> {
        b = Expand(a, n)  y = Add(x, b)
    }""",
}


def cleaned(model: onnx.ModelProto) -> Cleaned:
    result = cleaning.clean(graph.load(model))
    onnx.checker.check_model(result.proto)
    return result


def operators(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("text,gone,left", CLEANED.values(), ids=CLEANED)
def test_goes_and_every_number_stays(text: str, gone: dict[str, int], left: list[str]) -> None:
    model = parse(text)
    result = cleaned(model)
    assert result.gone == Counter(gone) and operators(result.proto) == left
    for a, b in zip(run(model, feed(model, 1)), run(result.proto, feed(model, 1)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert sum(cleaned(result.proto).gone.values()) == 0  # nothing left to do


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_stays(text: str) -> None:
    if "2000" in text:
        text = text.replace("float[1,2000] a = {0}", f"float[1,2000] a = {{{', '.join(['1'] * 2000)}}}")
    model = parse(text)
    result = cleaned(model)
    assert sum(result.gone.values()) == 0 and operators(result.proto) == operators(model)


def test_empty_inputs_are_reshaped_as_before() -> None:
    for name in ("sizes that a Reshape works out by itself", "sizes that stay where they are"):
        model = parse(CLEANED[name][0])
        feeds = feed(model, 1, b=0)
        for a, b in zip(run(model, feeds), run(cleaned(model).proto, feeds), strict=True):
            assert a.shape == b.shape


def test_what_a_branch_reads_stays() -> None:
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["b"], ["n"])], "branch", [], [onnx.helper.make_tensor_value_info("n", onnx.TensorProto.FLOAT, [2])]
    )
    model = parse("g (float[2] x, bool c) => (float[2] y) { a = Exp(x)  b = Exp(x)  y = Add(a, b) }")
    model.graph.node[-1].CopyFrom(onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    result = cleaned(model)
    assert operators(result.proto) == ["Exp", "If"] and result.gone == Counter(unread=1)


def test_weights_in_other_files_stay_there(tmp_path: Path) -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { b = Neg(a)  y = Add(x, b) }")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "a"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    result = cleaning.clean(graph.load(tmp_path / "m.onnx"))
    assert operators(result.proto) == ["Neg", "Add"]
