"""Equal questions get one answer; what is different in meaning is a different question."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxfuse.verify import Difference, Verdicts, fingerprint

TEXT = """<ir_version: 10, opset_import: ["": 17, "o": 1]> g (float[batch,seq,8] x, float[8] w) => (float[batch,seq,8] y)
<float eps = {0.00001}> { n = LayerNormalization <axis = -1, epsilon = 0.1> (x, w)  y = Add(n, eps) }"""


def model(text: str = TEXT) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def with_weights(values: Any) -> onnx.ModelProto:
    made = model()
    made.graph.initializer.append(numpy_helper.from_array(values, "big"))
    return made


def test_names_do_not_count() -> None:
    other = TEXT.replace("batch", "rows").replace("seq", "length").replace(" x", " input").replace("(x", "(input").replace("eps ", "e ")
    other = other.replace(", eps)", ", e)").replace("g (", "h (")
    made = model(other)
    made.graph.node[0].name = "a name"
    made.graph.node[0].doc_string = "a text"
    assert fingerprint(made) == fingerprint(model())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("axis = -1", "axis = 1"),
        ("epsilon = 0.1", "epsilon = 0.01"),
        ("{0.00001}", "{0.000001}"),
        ("Add(n, eps)", "Sub(n, eps)"),
        ("Add(n, eps)", "Add(eps, n)"),
        ("float[8] w", "float[1] w"),
        ("float[8] w", "float16[8] w"),
        ("[batch,seq,8] x", "[seq,seq,8] x"),
        ("[batch,seq,8] x", "[2,seq,8] x"),
        ('"": 17', '"": 18'),
    ],
)
def test_what_has_a_meaning_counts(old: str, new: str) -> None:
    assert fingerprint(model(TEXT.replace(old, new))) != fingerprint(model())


def test_of_large_weights_only_type_and_shape_count() -> None:
    rng = np.random.default_rng(0)
    one, two = (with_weights(rng.standard_normal((16, 16)).astype(np.float32)) for _ in range(2))
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(with_weights(rng.standard_normal((16, 17)).astype(np.float32)))
    assert fingerprint(one) != fingerprint(with_weights(rng.standard_normal((16, 16)).astype(np.float16)))


@pytest.mark.parametrize("filler", [-np.inf, -1e9, -65504, 0])
def test_a_mask_counts_by_value(filler: float) -> None:
    causal = np.where(np.tri(16, dtype=np.bool_), np.float32(1), np.float32(filler))
    assert fingerprint(with_weights(causal)) != fingerprint(with_weights(causal.T.copy()))


def test_large_integers_count_by_value() -> None:
    steps = np.arange(256)
    assert fingerprint(with_weights(steps)) != fingerprint(with_weights(steps[::-1].copy()))


def test_the_place_of_external_data_stands_for_it() -> None:
    made = [with_weights(np.arange(256, dtype=np.float32)) for _ in range(3)]
    for one, offset in zip(made, ("0", "0", "4096"), strict=True):
        tensor = one.graph.initializer[-1]
        onnx.external_data_helper.set_external_data(tensor, "w.bin", offset=int(offset), length=1024)
        tensor.ClearField("raw_data")
    assert fingerprint(made[0]) == fingerprint(made[1]) != fingerprint(made[2])


def test_bodies_count() -> None:
    prints = set()
    for body in ("y = Neg(x)", "y = Abs(x)"):
        made = model()
        made.functions.append(onnx.parser.parse_function(f'<domain: "o", opset_import: ["": 17]> F (x) => (y) {{ {body} }}'))
        prints.add(fingerprint(made))
    assert len(prints | {fingerprint(model())}) == 3


def test_an_equal_pair_is_asked_once() -> None:
    asked: list[str] = []

    def validate() -> Difference | None:
        asked.append("asked")
        return Difference("no") if len(asked) == 1 else None

    verdicts = Verdicts()
    other = model(TEXT.replace("epsilon = 0.1", "epsilon = 0.2"))
    assert verdicts.get(model(), model(), validate) == Difference("no")
    assert verdicts.get(model(), model(), validate) == Difference("no")
    assert verdicts.get(model(), other, validate) is None
    assert len(asked) == 2
