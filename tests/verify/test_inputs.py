"""Inputs are made up by what the graph does with them, and given ones are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxfuse import graph
from onnxfuse import runtime as session
from onnxfuse.errors import UsageError, VerificationError
from onnxfuse.inputs import Maker, feeds, load_feeds, trials
from onnxfuse.inputs.roles import Kind, roles
from onnxfuse.inputs.sizes import Refusal, carry, evaluate, settle
from onnxfuse.inputs.sketch import sketch
from onnxfuse.inputs.values import Regime
from onnxfuse.verify.runs import Runner

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD}\n{text}")


def kind(text: str, name: str = "m") -> Kind:
    return roles(sketch(model(text)))[name].kind


EMBED = """g (int64[batch,seq] input_ids, int64[batch,seq] position_ids) => (float[batch,seq,2] y)
<float[5,2] words = {1,2,3,4,5,6,7,8,9,10}, float[9,2] places = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}, int64 two = {2}> {
    flat = Unsqueeze(input_ids, axis)  a = Gather(words, input_ids)  p = Add(position_ids, two)  b = Gather(places, p)  y = Add(a, b)
}""".replace("flat = Unsqueeze(input_ids, axis)  ", "")


def test_indices_stay_below_the_rows_of_their_table() -> None:
    for feed in feeds(model(EMBED), seed=1):
        assert feed["input_ids"].min() >= 0
        assert feed["input_ids"].max() < 5


def test_positions_increase_and_stay_below_the_table_after_an_offset() -> None:
    for feed in feeds(model(EMBED), seed=1, shapes={"seq": 6}):
        assert (np.diff(feed["position_ids"], axis=-1) == 1).all()
        assert feed["position_ids"].max() < 9 - 2


def test_positions_start_after_the_past() -> None:
    text = """g (float[b,past_len,2] past_key, int64[b,seq] position_ids) => (float[b,seq] y, float[b,past_len,2] z) {
        y = Cast <to = 1> (position_ids)  z = Identity(past_key) }"""
    for feed in feeds(model(text), seed=0):
        assert feed["position_ids"][0, 0] == feed["past_key"].shape[1]


MASKS = {
    "subtracted": "int64[b,s] m) => (float[b,s] y) { f = Cast <to = 1> (m)  o = Constant <value = float {1.0}> ()  y = Sub(o, f) }",
    "compared": "int64[b,s] m) => (bool[b,s] y) { o = Constant <value = int64 {0}> ()  y = Equal(m, o) }",
    "made a truth": "int64[b,s] m) => (bool[b,s] y) { y = Cast <to = 9> (m) }",
    "summed up": "int64[b,s] m) => (int64[b,s] y) { a = Constant <value = int64 {1}> ()  y = CumSum(m, a) }",
    "chosen by": "bool[b,s] m, float[b,s] x) => (float[b,s] y) { l = Constant <value = float {-1000000000.0}> ()  y = Where(m, x, l) }",
    "negated": "bool[b,s] m) => (bool[b,s] y) { y = Not(m) }",
    "made a filler": """int64[b,s] m) => (float[b,s] y) { f = Cast <to = 1> (m)  o = Constant <value = float {1.0}> ()
        c = Constant <value = float {10000.0}> ()  d = Sub(f, o)  y = Mul(d, c) }""",
    "a float": "float[b,s] m) => (float[b,s] y) { o = Constant <value = float {1.0}> ()  y = Sub(o, m) }",
}


@pytest.mark.parametrize("use", MASKS)
def test_a_mask_is_known_by_its_use(use: str) -> None:
    made = model("g (" + MASKS[use])
    assert kind("g (" + MASKS[use]) is Kind.KEEP
    holes, ones, some = (feed["m"].astype(np.int64) for feed in feeds(made, seed=3))
    assert set(np.unique(holes)) == {0, 1}
    assert (holes[..., :1] == 1).all()
    assert (holes[..., 1:] == 1).any(), "padding is not only on the right"
    assert ones.all()
    assert set(np.unique(some)) == {0, 1}
    assert some.any(-1).all()


def test_a_mask_of_what_to_leave_out_is_inverted() -> None:
    by_use = "g (bool[b,s] m, float[b,s] x) => (float[b,s] y) { l = Constant <value = float {-inf}> ()  y = Where(m, l, x) }"
    assert kind(by_use) is Kind.DROP
    factor = "g (float[b,s] m) => (float[b,s] y) { c = Constant <value = float {-10000.0}> ()  y = Mul(m, c) }"
    assert kind(factor) is Kind.DROP
    assert kind("g (bool[b,s] key_padding_mask) => (bool[b,s] y) { y = Not(key_padding_mask) }", "key_padding_mask") is Kind.DROP
    assert not feeds(model(by_use), seed=0)[1]["m"].any()


def test_a_mask_that_is_added_in_front_of_a_softmax_has_fillers() -> None:
    text = """g (float[b,4,s,8] q, float[b,1,s,s] m) => (float[b,4,s,s] y) {
        k = Transpose <perm = [0,1,3,2]> (q)  a = MatMul(q, k)  d = Add(a, m)  y = Softmax(d) }"""
    assert kind(text) is Kind.ADDITIVE
    assert kind(text, "q") is Kind.FLOAT
    holes, ones, _ = feeds(model(text), seed=0)
    assert np.isneginf(holes["m"]).any()
    assert np.isfinite(holes["m"]).any(-1).all()
    assert np.isfinite(ones["m"]).all()


def test_a_residual_is_no_mask() -> None:
    assert kind("g (float[n,8] x, float[n,8] m) => (float[n,8] y) { a = Add(x, m)  y = Relu(a) }") is Kind.FLOAT


def test_dead_rows_are_masked_as_a_whole() -> None:
    text = "g (float[b,s,t] x, float[b,s,t] m) => (float[b,s,t] y) { a = Add(x, m)  y = Softmax(a) }"
    maker = Maker(model(text), {})
    feed = maker.feed({"b": 2, "s": 5, "t": 7}, Regime("dead", masks="dead"), 0)
    dead = np.isneginf(feed["m"]).all(-1)
    assert dead.any()
    assert not dead.all()


def test_an_input_seen_only_inside_a_loop_or_a_branch_is_followed() -> None:
    text = """g (bool c, int64[n] ids) => (float[n,2] y) <float[3,2] table = {1,2,3,4,5,6}> {
        y = If (c) <then_branch = t () => (float[n,2] a) { a = Gather(table, ids) },
                    else_branch = e () => (float[n,2] b) { b = Gather(table, ids) }> }"""
    assert all(feed["ids"].max() < 3 for feed in feeds(model(text), seed=0))


def test_an_input_carried_through_a_loop_is_followed() -> None:
    text = """g (int64[n] ids, int64 turns) => (int64[n] last) <float[3,2] table = {1,2,3,4,5,6}> {
        one = Constant <value = int64 {1}> ()  c = Cast <to = 9> (one)
        last = Loop (turns, c, ids) <body = b (int64 i, bool c0, int64[n] now) => (bool c1, int64[n] next) {
            c1 = Identity(c0)  a = Gather(table, now)  next = Identity(now) }> }"""
    assert all(feed["ids"].max() < 3 for feed in feeds(model(text), seed=0))


def test_an_input_of_a_local_function_is_followed() -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (int64[n] ids) => (float[n,2] y) <float[3,2] table = {1,2,3,4,5,6}> { y = local.Look(table, ids) }
        <domain: "local", opset_import: ["": 17]> Look (table, ids) => (y) { y = Gather(table, ids) }"""
    )
    assert all(feed["ids"].max() < 3 for feed in feeds(made, seed=0))


def test_a_count_of_turns_is_small_and_positive() -> None:
    text = """g (int64 turns, float[2] x) => (float[2] y) { go = Constant <value = int64 {1}> ()  c = Cast <to = 9> (go)
        y = Loop (turns, c, x) <body = b (int64 i, bool c0, float[2] a) => (bool c1, float[2] z) { c1 = Identity(c0)  z = Add(a, a) }> }"""
    assert kind(text, "turns") is Kind.SIZE
    assert all(1 <= int(feed["turns"]) <= 4 for feed in feeds(model(text), seed=0))


def test_sizes_are_awkward_and_differ() -> None:
    text = """g (float[batch,past_len,4] past_key, int64[batch,seq] ids, int64[batch,total_len] attention_mask) => (int64[batch,seq] y) {
        y = Neg(ids) }"""
    made = Maker(model(text), {}).assignments()
    assert [s["total_len"] == s["past_len"] + s["seq"] for s in made] == [True] * 3
    assert made[0] == {"batch": 2, "past_len": 5, "seq": 7, "total_len": 12}
    assert any(s["seq"] == 1 for s in made)
    assert any(s["past_len"] == 0 for s in made)
    assert any(s["batch"] == 1 for s in made)


@pytest.mark.parametrize(
    ("dim", "number"), [("past + seq", 12), ("2*seq", 14), ("(seq + 1)//2", 4), ("max(seq, past)", 7), ("a-b.c", None), (3, 3)]
)
def test_a_size_that_is_an_expression_is_worked_out(dim: Any, number: int | None) -> None:
    assert evaluate(dim, {"past": 5, "seq": 7}) == number


def test_an_expression_in_the_inputs_follows_its_symbols() -> None:
    made = model("g (float[n] x, float[n] z) => (float[n] y) { y = Neg(x) }")
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*n + 1"
    for feed in feeds(made, seed=0):
        assert feed["z"].shape[0] == 2 * feed["x"].shape[0] + 1


def test_the_refusal_names_the_size_to_change() -> None:
    def attempt(sizes: dict[str, int]) -> Refusal | None:
        if sizes["a"] != sizes["b"]:
            return Refusal(1, f"cannot broadcast: {sizes['a']} by {sizes['b']}")
        if sizes["c"] != sizes["a"] + sizes["d"]:
            return Refusal(2, "no luck")
        return None

    settled = settle({"a": 7, "b": 11, "c": 3, "d": 5}, {"a": 7}, attempt)
    assert settled == {"a": 7, "b": 7, "c": 12, "d": 5}


def test_a_search_that_finds_nothing_ends_with_the_refusal() -> None:
    assert settle({"a": 7, "b": 11}, {}, lambda _: Refusal(0, "never")) == Refusal(0, "never")


def test_numbers_in_names_are_no_sizes_and_a_1_is_changed_last() -> None:
    """What EmbedLayerNorm says of a table of 64 positions, where a batch of 3 or 128 would only fail further on."""

    def attempt(sizes: dict[str, int]) -> Refusal | None:
        if sizes["batch"] != 1:
            return Refusal(5, "node_GatherND_74: invalid index found, index = 1")
        return None if sizes["seq"] == 64 else Refusal(1, f"EmbedLayerNorm_0: ids_3 must broadcast to ids [1,{sizes['seq']}]; got [1,64]")

    assert settle({"batch": 1, "seq": 128}, {}, attempt) == {"batch": 1, "seq": 64}


def test_what_was_learnt_holds_for_other_sizes() -> None:
    settled, tried = {"a": 7, "b": 7, "c": 12, "d": 5, "e": 8}, {"a": 7, "b": 11, "c": 3, "d": 5, "e": 17}
    assert carry(settled, tried, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}) == {"a": 1, "b": 1, "c": 5, "d": 4, "e": 8}


def runner(made: onnx.ModelProto) -> Runner:
    return Runner(session.session(made, ["CPUExecutionProvider"], optimizations=False, threads=1), made)


def first_output(made: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    result = runner(made)(feed)
    assert not isinstance(result, Refusal), result.text
    return result[0]


def test_a_size_that_was_baked_in_is_found() -> None:
    text = "g (float[b,s,8] x) => (float[b,c,d,e] y) { shape = Constant <value = int64[4] {-1, 6, 2, 4}> ()  y = Reshape(x, shape) }"
    made = model(text)
    found = feeds(made, seed=0, attempt=runner(made).share)
    assert len(found) == 3
    assert all(feed["x"].shape[1] % 6 == 0 or feed["x"].shape[0] * feed["x"].shape[1] % 6 == 0 for feed in found)


def test_what_the_first_search_learnt_is_used_by_the_next() -> None:
    text = "g (float[b,s,8] x, float[c,t,8] z) => (float[b,s,8] y) { v = Neg(x)  y = Add(v, z) }"
    made = model(text)
    run, calls = runner(made), [0]

    def attempt(feed: dict[str, Any]) -> Refusal | float:
        calls[0] += 1
        return run.share(feed)

    spent = []
    for _ in trials(Maker(made, {}), attempt, seed=0):
        spent.append(calls[0])
        calls[0] = 0
    assert spent[0] > 1, "there was nothing to learn"
    assert spent[1] == spent[2] == 1


def test_sizes_that_were_baked_in_together_are_found() -> None:
    text = "g (float[b,s,8] x) => (float[5,6,2,4] y) { shape = Constant <value = int64[4] {5, 6, 2, 4}> ()  y = Reshape(x, shape) }"
    made = model(text)
    for feed in feeds(made, seed=0, attempt=runner(made).share):
        assert feed["x"].shape[0] * feed["x"].shape[1] == 30


def test_sizes_that_may_be_broadcast_are_tried_both_ways() -> None:
    made = model("g (float[p,8] x, float[n,8] z) => (float[m,8] y) { y = Add(x, z) }")
    shapes = {(t.sizes["p"] > 1, t.sizes["n"] > 1) for t in trials(Maker(made, {}), runner(made).share, seed=0)}
    assert {(True, True), (False, True), (True, False)} <= shapes


def test_an_input_that_gives_nan_everywhere_is_turned_positive() -> None:
    made = model("g (float[n,8] x) => (float y) { l = Log(x)  y = ReduceSum <keepdims = 0> (l) }")
    assert all(np.isfinite(first_output(made, feed)).all() for feed in feeds(made, seed=0, attempt=runner(made).share))


def test_nothing_that_runs_is_an_error_that_says_what_to_do() -> None:
    made = model("g (float[n,4] x) => (float[n] y) { nine = Constant <value = int64 {9}> ()  y = Gather <axis = 1> (x, nine) }")
    with pytest.raises(VerificationError, match=r"no input that we made up runs.*--inputs"):
        feeds(made, seed=0, attempt=runner(made).share)


def test_a_default_is_used_and_once_overridden() -> None:
    made = model("g (float[n] x, float root) => (float[n] y) <float root = {2.0}> { y = Div(x, root) }")
    kept, also_kept, changed = feeds(made, seed=0)
    assert "root" not in kept
    assert "root" not in also_kept
    assert changed["root"] == np.float32(2.5)


def test_in_old_models_an_initializer_among_the_inputs_is_a_constant() -> None:
    made = model("g (float[n] x, float root) => (float[n] y) <float root = {2.0}> { y = Div(x, root) }")
    made.ir_version = 3
    assert all(feed.keys() == {"x"} for feed in feeds(made, seed=0))


@pytest.mark.parametrize(
    "dtype", ["float", "float16", "bfloat16", "double", "int8", "uint8", "int32", "int64", "bool", "string", "float8e4m3fn"]
)
def test_every_plain_type_is_made(dtype: str) -> None:
    made = model(f"g ({dtype}[n,3] x) => ({dtype}[n,3] y) {{ y = Identity(x) }}")
    for feed in feeds(made, seed=0):
        assert feed["x"].shape[1] == 3
        assert feed["x"].dtype == onnx.helper.tensor_dtype_to_np_dtype(made.graph.input[0].type.tensor_type.elem_type)


@pytest.mark.parametrize("declared", ["seq(float[n])", "optional(float[n])", "float"])
def test_what_cannot_be_made_up_is_asked_for(declared: str) -> None:
    made = model("g (float[n] x) => (float[n] y) { y = Identity(x) }")
    if declared == "float":
        made.graph.input[0].type.tensor_type.ClearField("shape")
    else:
        made.graph.input[0].type.CopyFrom(onnx.parser.parse_graph(f"g ({declared} x) => (float y) {{ y = Foo(x) }}").input[0].type)
    with pytest.raises(VerificationError, match=r"input 'x'.*--inputs"):
        feeds(made, seed=0)


def test_feeds_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    made = model(EMBED.replace("int64[batch,seq] position_ids)", "int64[batch,seq] position_ids, float[batch,9] x)"))
    one, two, other = feeds(made, seed=1), feeds(made, seed=1), feeds(made, seed=2)
    assert all(np.array_equal(a[k], b[k]) for a, b in zip(one, two, strict=True) for k in a)
    assert not np.array_equal(one[0]["x"], other[0]["x"])


def test_a_loaded_graph_will_do() -> None:
    made = model("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    assert len(feeds(graph.load(made), seed=0)) == 3


PAIR = "g (float[n,4] x, int64[n] k) => (float[n,4] y) { y = Neg(x) }"


def test_given_inputs_come_back_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((2, 4), np.float32), k=np.arange(2))
    (feed,) = load_feeds(tmp_path / "f.npz", model(PAIR))
    assert feed["x"].shape == (2, 4)
    assert feed["k"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 4), np.float32)}, r"input 'k' int64\[n\] is missing; the file has: x"),
        ({"x": np.ones((2, 4)), "k": np.arange(2)}, "'x' must be float32; got float64"),
        ({"x": np.ones(4, np.float32), "k": np.arange(2)}, r"must have 2 axes float\[n,4\]; got shape \[4\]"),
        ({"x": np.ones((2, 5), np.float32), "k": np.arange(2)}, "size 4 on axis 1"),
        ({"x": np.ones((2, 4), np.float32), "k": np.arange(2), "z": np.ones(1)}, "no input 'z'; it has: x, k"),
    ],
)
def test_given_inputs_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(UsageError, match=message):
        load_feeds(tmp_path / "f.npz", model(PAIR))


def test_a_file_that_holds_no_arrays_is_refused(tmp_path: Path) -> None:
    for name, data in (("text.npz", b"not an archive"), ("none.npz", None)):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=name):
            load_feeds(tmp_path / name, model(PAIR))


def test_the_items_of_a_sequence_are_numbered(tmp_path: Path) -> None:
    made = model("g (seq(float[n]) s) => (float[m] y) { y = ConcatFromSequence <axis = 0> (s) }")
    items: dict[str, Any] = {"s[0]": np.ones(1, np.float32), "s[1]": np.zeros(2, np.float32)}
    np.savez(tmp_path / "f.npz", **items)
    (feed,) = load_feeds(tmp_path / "f.npz", made)
    assert [len(item) for item in feed["s"]] == [1, 2]
    assert np.array_equal(first_output(made, feed), [1, 0, 0])


def test_text_is_read_as_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.array(["a", "bc"]))
    (feed,) = load_feeds(tmp_path / "f.npz", model("g (string[n] x) => (string[n] y) { y = Identity(x) }"))
    assert feed["x"].dtype == object
