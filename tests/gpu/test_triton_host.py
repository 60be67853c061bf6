"""What lies between a node and kernels that were compiled before: which is found, which is taken, what it is started with.

The kernels are stand-ins; what those of Triton compute is tested beside them.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfuse import custom_ops
from onnxfuse.case import Case
from onnxfuse.op import Op
from tests.compiled.client import choices
from tests.gpu import standins
from tests.gpu.client import LIBRARY, Client, Ran
from tests.gpu.conftest import compiler
from tests.gpu.runtime import CUDA
from tests.gpu.test_forms import run
from tests.ops import harness

OPS = ("Attention", "GatedLinear", "Linear")
EVERY = standins.every()
ATTENTION = next(op for op, _ in custom_ops.all_cases() if op.name == "Attention")
RNG = np.random.default_rng(11)
Start = Callable[..., Client]


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config) -> bytes:
    """A library with all stand-ins."""
    return standins.compiled(EVERY, Path(str(pytestconfig.cache.mkdir("onnxfuse-standins"))), compiler())


@pytest.fixture(scope="module")
def listed(fakes: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A process with two devices, and stand-ins for what kernel_triton.py lists for these."""
    folder, cache = tmp_path_factory.mktemp("listed"), Path(str(pytestconfig.cache.mkdir("onnxfuse-standins")))
    for arch in (90, 80):
        kernels = [kernel for op in OPS for kernel in standins.listed(op, arch)]
        standins.write(folder, kernels, arch, standins.compiled(kernels, cache, compiler()))
    client = Client(fakes, kernels=str(folder), devices="90,80")
    yield client
    client.close()


@pytest.fixture(scope="module")
def folder(image: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kernels, for two architectures."""
    made = tmp_path_factory.mktemp("kernels")
    for arch in (80, 90):
        standins.write(made, EVERY, arch, image)
    return made


@pytest.fixture(scope="module")
def node(fakes: Path, folder: Path) -> Iterator[Client]:
    client = Client(fakes, kernels=str(folder))
    yield client
    client.close()


@pytest.fixture
def start(fakes: Path) -> Iterator[Start]:
    """Starts further processes, and ends them."""
    clients: list[Client] = []

    def make(**options: Any) -> Client:
        clients.append(Client(fakes, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def names(client: Client, device: int = 0) -> set[str]:
    entry = {"onnxfuse.providers": f"{CUDA}:{device},CPUExecutionProvider"}
    return {name for name, provider, _ in client.ask("registered", entry) if provider == CUDA and name in OPS}


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def attend(client: Client, attributes: dict[str, Any], *inputs: Any, outputs: list[str | None] | None = None, **options: Any) -> Ran:
    """Run Attention on q, k, v, mask, past_key, past_value, sink; those left out are not given."""
    padded = [*inputs, *[None] * (7 - len(inputs))]
    kind = {"float32": "float"}.get(inputs[0].dtype.name, inputs[0].dtype.name)
    return client.run("Attention", {**ATTENTION.attributes, **attributes}, padded, outputs or [kind, None, None], **options)


def linear(client: Client, x: Any, weight: Any, *added: Any, **attributes: Any) -> Ran:
    defaults = {"activation": "none", "activation_alpha": 1.0, "activation_beta": 0.0, "alpha": 1.0, "trans_weight": 0, "residual_last": 0}
    kind = {"float32": "float"}.get(x.dtype.name, x.dtype.name)
    return client.run("Linear", {**defaults, **attributes}, [x, weight, *added, *[None] * (2 - len(added))], [kind])


def kernels(ran: Ran) -> list[str]:
    return [event["kernel"] for event in ran.launches if event["event"] == "launch"]


def arguments(launch: dict[str, Any]) -> dict[str, Any]:
    """By name, in the order in which the kernel has them."""
    (kernel,) = (k for k in EVERY if k.name == launch["kernel"])
    return dict(zip([name for name, _ in kernel.kinds()], launch["arguments"], strict=True))


# --- numbers


def _uses() -> list[Any]:
    uses = [(op, case) for op, case in custom_ops.all_cases() if op.name in OPS]
    kinds = list(standins.TYPES)
    return [pytest.param(op, case, kinds[i % 3], i // 3 % 2, id=f"{op.name}-{kinds[i % 3]}-{case}") for i, (op, case) in enumerate(uses)]


@pytest.mark.parametrize(("op", "case", "kind", "device"), _uses())
def test_a_node_gives_the_numbers_of_its_body(listed: Client, op: Op, case: Case, kind: str, device: int) -> None:
    got, ran = run(listed, op, case, kind, device=device)
    harness.assert_close(got, harness.exact(op, case, kind), op.tolerance[kind])
    assert {event["event"] for event in ran.made} <= {"load"}, "the making of a node starts nothing"
    assert {event["event"] for event in ran.launches} <= {"launch"}, "what the model tells is loaded when the node is made"


def _fitting(op: str, kind: str) -> Iterator[Case]:
    """Uses whose sizes, strides and addresses suit every kernel: those of some head sizes, of some numbers of rows, of whatever comes."""
    if op == "GatedLinear":
        for rows, depth, trans in itertools.product((3, 20, 40), (128, 136, 7), (0, 1)):
            weight = (32, depth) if trans else (depth, 32)
            yield Case(
                {"x": (rows, depth), "weight": weight, "bias": (32,)}, {"trans_weight": trans, "activation": "gelu", "gate_first": trans}
            )
        return
    if op == "Linear":
        for rows, depth, trans in itertools.product((3, 20, 40), (128, 136, 7), (0, 1)):
            weight = (16, depth) if trans else (depth, 16)
            yield Case({"x": (rows, depth), "weight": weight, "bias": (16,)}, {"trans_weight": trans, "activation": "silu"})
        for trans in (0, 1):  # depth enough for descriptors, too many rows for parts
            yield Case({"x": (300, 2048), "weight": (8, 2048) if trans else (2048, 8)}, {"trans_weight": trans})
        for rows, trans in itertools.product((3, 40), (0, 1)):  # depth enough for parts
            weight = (16, 1024) if trans else (1024, 16)
            yield Case({"x": (rows, 1024), "weight": weight, "residual": (rows, 16)}, {"trans_weight": trans, "activation": "gelu"})
        return
    for head in (32, 24, 64, 56, 128, 96, 256, 200, 264):
        many = {"q": (1, 5, 3, head), "k": (1, 5, 16, head), "v": (1, 5, 16, head)}
        few = {"q": (1, 2, 1, head), "k": (1, 1, 272, head), "v": (1, 1, 272, head)}
        yield from (Case(many, {"causal": 2}), Case(many, {"softcap": 2.0}), Case(few))
        for mask in ("bool", "float", kind):
            for shape in ((3, 16), (1, 1, 1, 16)):
                yield Case({**many, "mask": shape}, types={"M": mask})
            ragged = {"q": (1, 5, 3, head), "k": (1, 5, 17, head), "v": (1, 5, 17, head)}
            yield Case({**ragged, "mask": (3, 17)}, types={"M": mask})
            yield Case({**few, "mask": (1, 272)}, types={"M": mask})
    for size in (64, 128):  # keys enough for descriptors, too many queries for parts
        yield Case({"q": (1, 1, 66, size), "k": (1, 1, 1024, size), "v": (1, 1, 1024, size)})
    yield Case({**many, "past_key": (1, 5, 8, head), "past_value": (1, 5, 8, head)})
    turned = {"q": (1, 5, 3, 16), "k": (1, 5, 16, 9), "v": (1, 5, 9, 16)}
    yield Case(turned, {"k_layout": "BHDS"})
    odd = {"q": (1, 5, 3, 7), "k": (1, 5, 9, 7), "v": (1, 5, 9, 7)}
    yield Case({**odd, "past_key": (1, 5, 8, 7), "past_value": (1, 5, 8, 7)})
    yield from (Case({**odd, "mask": (3, 9)}, types={"M": mask}) for mask in ("bool", *standins.TYPES))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", standins.TYPES)
@pytest.mark.parametrize("device", [0, 1])
def test_every_kernel_that_is_listed_is_taken_and_right(listed: Client, op: str, kind: str, device: int) -> None:
    """A kernel that is taken where what is fixed in it is wrong, or with too few blocks, gives other numbers."""
    definition = next(o for o, _ in custom_ops.all_cases() if o.name == op)
    taken: set[str] = set()
    for case in _fitting(op, kind):
        got, ran = run(listed, definition, case, kind, device=device)
        taken |= set(kernels(ran))
        harness.assert_close(got, harness.exact(definition, case, kind), definition.tolerance[kind])
    assert taken == wanted_of(op, kind, (90, 80)[device])


def wanted_of(op: str, kind: str, arch: int) -> set[str]:
    """All that are listed, but for those with specialised warps."""
    listed = [kernel for kernel in standins.listed(op, arch) if kernel.variant["dtype"] == kind]
    return {kernel.name for kernel in listed if not kernel.constants.get("SPECIALISED")}


def test_specialised_warps_are_taken_where_they_are_asked_for(start: Start, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    listed = standins.listed("Attention", 90)
    standins.write(tmp_path, listed, 90, standins.compiled(listed, Path(str(pytestconfig.cache.mkdir("onnxfuse-standins"))), compiler()))
    q, k = normal(1, 1, 70, 128, dtype=np.float16), normal(1, 1, 1024, 128, dtype=np.float16)
    for wish, name in (("1", "specialised"), ("0", "blocks")):
        client = start(kernels=str(tmp_path), devices="90")
        client.ask("set_variable", "ONNXFUSE_SPECIALISED", wish)
        (launch,) = attend(client, {}, q, k, k).launches
        assert launch["kernel"] == f"attention_float16_128_{name}"
        assert int(launch["arguments"][-2]) != 0, "the scratch memory that its facts ask for"
        assert int(launch["arguments"][-1]) == 0


SPLIT = {"q": (2, 6, 1, 8), "k": (2, 2, 300, 8), "v": (2, 2, 300, 5)}


@pytest.mark.parametrize("kind", standins.TYPES)
@pytest.mark.parametrize("case", [
    Case({**SPLIT, "sink": (6,)}, {"softcap": 2.0}),
    Case({**SPLIT, "past_key": (2, 2, 40, 8), "past_value": (2, 2, 40, 5)}, {"causal": 2, "window_left": 90}),
    Case({"q": (1, 6, 2, 8), "k": (1, 2, 130, 8), "v": (1, 2, 130, 8), "mask": (2, 130)}, {"causal": 2}, types={"M": "bool"}),
    Case({"q": (1, 6, 2, 8), "k": (1, 2, 130, 8), "v": (1, 2, 130, 8), "mask": (1, 1, 1, 130)}, types={"M": "float"}),
], ids=str)  # fmt: skip
def test_few_queries_are_split_over_keys_and_give_the_same(node: Client, case: Case, kind: str) -> None:
    got, ran = run(node, ATTENTION, case, kind)
    harness.assert_close(got, harness.exact(ATTENTION, case, kind), ATTENTION.tolerance[kind])
    mask = case.types["M"] if "mask" in case.shapes else "none"
    assert kernels(ran)[-2:] == [f"split_{kind}_{mask}", f"combine_{kind}"]


def test_rows_that_see_nothing_are_nan_or_nothing_when_split_too(node: Client) -> None:
    q, k, v, mask = normal(1, 1, 1, 8), normal(1, 1, 300, 8), normal(1, 1, 300, 8), np.zeros((1, 300), bool)
    for zero, want in ((0, np.nan), (1, 0.0)):
        ran = attend(node, {"zero_masked_rows": zero}, q, k, v, mask)
        assert kernels(ran) == ["split_float_bool", "combine_float"]
        np.testing.assert_array_equal(ran.outputs[0][0], np.full((1, 1, 1, 8), want, np.float32))


# --- what is started


def test_a_launch_has_the_grid_and_the_arguments_of_the_contract(node: Client) -> None:
    q, k, v = normal(2, 3, 70, 8), normal(2, 3, 77, 8), normal(2, 3, 77, 12)
    ran = attend(node, {"softcap": 3.0, "causal": 2, "y_layout": "BSE", "q_num_heads": 3}, q, k, v)
    (launch,) = ran.launches
    assert (launch["kernel"], launch["image"], launch["stream"], launch["device"]) == ("tile_float_none", "sm_90", 0x5000, 0)
    assert (launch["grid"], launch["threads"], launch["shared"]) == ([18 * 2 * 3 * 2, 1], 32, 0)  # tiles of 4 queries and 8 columns
    got = arguments(launch)
    pointers = [got.pop(name) for name in ("q", "k", "v", "y")]
    assert all(pointers) and len(set(pointers)) == 4
    assert [got.pop(name) for name in ("mask", "sink", "global_scratch", "profile_scratch")] == [0] * 4
    assert [float(got.pop(name)) for name in ("scale", "softcap", "mask_value")] == [pytest.approx(8**-0.5, 1e-5), 3.0, -np.inf]
    assert got == {
        "q_batch": 3 * 70 * 8, "q_head": 70 * 8, "q_row": 8, "k_batch": 3 * 77 * 8, "k_head": 77 * 8, "k_row": 8, "k_column": 1,
        "v_batch": 3 * 77 * 12, "v_head": 77 * 12, "v_row": 12, "mask_batch": 0, "mask_head": 0, "mask_row": 0, "mask_column": 0,
        "y_batch": 70 * 36, "y_head": 12, "y_row": 36, "heads": 3, "group": 1, "queries": 70, "keys": 77, "head_size": 8,
        "value_size": 12, "diagonal": 7, "left": 1 << 29, "right": 0, "zero_masked_rows": 0, "has_sink": 0,
    }  # fmt: skip


def test_packed_heads_are_strides_and_keys_by_column_are_turned(node: Client) -> None:
    (packed,) = attend(node, {"packed": "qkv", "q_num_heads": 6, "kv_num_heads": 2, "softcap": 1.0}, normal(2, 65, 100)).launches
    got = arguments(packed)
    assert (got["k"] - got["q"], got["v"] - got["q"]) == (6 * 10 * 4, 8 * 10 * 4)
    assert [got[f"{x}_{axis}"] for x in "qkv" for axis in ("batch", "head", "row")] == [6500, 10, 100] * 3
    assert (got["group"], got["head_size"]) == (3, 10)
    turned = attend(node, {"k_layout": "BHDS"}, normal(2, 2, 65, 9), normal(2, 2, 9, 33), normal(2, 2, 33, 9))
    assert kernels(turned) == ["join_float", "tile_float_none"], "keys by column are copied by row first"
    got = arguments(turned.launches[0])
    assert [got[f"fresh_{axis}"] for axis in ("batch", "head", "row", "column")] == [2 * 9 * 33, 9 * 33, 1, 33]
    got = arguments(turned.launches[1])
    assert (got["k_batch"], got["k_head"], got["k_row"], got["k_column"]) == (2 * 9 * 33, 9 * 33, 9, 1)


def test_masks_are_strides_and_what_is_broadcast_has_none(node: Client) -> None:
    q, k, v = normal(2, 3, 70, 8), normal(2, 3, 9, 8), normal(2, 3, 9, 8)
    for shape, want in (((70, 9), (0, 0, 9, 1)), ((2, 1, 1, 9), (9, 0, 0, 1)), ((1, 3, 70, 1), (0, 70, 1, 0))):
        (launch,) = attend(node, {}, q, k, v, normal(*shape)).launches
        assert launch["kernel"] == "tile_float_float"
        assert tuple(arguments(launch)[f"mask_{axis}"] for axis in ("batch", "head", "row", "column")) == want


def test_past_is_joined_into_present_or_into_scratch(node: Client) -> None:
    shapes = (2, 4, 65, 8), (2, 2, 7, 8), (2, 2, 7, 6)
    inputs = [*(normal(*s) for s in shapes), None, normal(2, 2, 5, 8), normal(2, 2, 5, 6)]
    want = [np.concatenate(pair, 2) for pair in ((inputs[4], inputs[1]), (inputs[5], inputs[2]))]
    asked = attend(node, {}, *inputs, outputs=["float"] * 3)
    assert kernels(asked)[:2] == ["join_float"] * 2
    for got, present in zip(asked.outputs[0][1:], want, strict=True):
        np.testing.assert_array_equal(got, present)
    assert asked.launches[0]["grid"] == [4 * 2 * 2, 1], "12 rows, 3 at a time, of 4 heads"
    silent = attend(node, {}, *inputs)
    np.testing.assert_array_equal(silent.outputs[0][0], asked.outputs[0][0])
    joins, attention = silent.launches[:2], arguments(silent.launches[2])
    assert [arguments(join)["present"] for join in joins] == [attention["k"], attention["v"]]
    assert (attention["k_batch"], attention["k_head"], attention["k_row"], attention["keys"]) == (2 * 12 * 8, 12 * 8, 8, 12)


def test_present_without_past_is_a_copy(node: Client) -> None:
    q, k, v = normal(1, 65, 2, 8), normal(1, 7, 2, 8), normal(1, 7, 2, 8)
    ran = attend(node, {f"{x}_layout": "BSHD" for x in "qkv"}, q, k, v, outputs=["float", "float", None])
    assert kernels(ran)[0] == "join_float"
    np.testing.assert_array_equal(ran.outputs[0][1], k.transpose(0, 2, 1, 3))
    assert arguments(ran.launches[1])["k_row"] == 16, "keys are read as they lie"


def test_nothing_is_started_for_nothing(node: Client) -> None:
    assert attend(node, {}, normal(2, 3, 0, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8)).launches == []
    assert linear(node, normal(0, 8), normal(8, 3)).launches == []
    no_depth = linear(node, normal(3, 0), normal(0, 4), np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(no_depth.outputs[0][0], np.tile(np.arange(4, dtype=np.float32), (3, 1)))


@pytest.mark.parametrize(("q", "attributes", "kernel"), [
    ((1, 1, 65, 64), {}, "fast_float16"),
    ((1, 1, 65, 60), {}, "tile_float16_none"),  # strides that are no multiples of 16
    ((1, 1, 65, 96), {}, "tile_float16_none"),  # heads too large
    ((1, 1, 65, 64), {"softcap": 0.5}, "tile_float16_none"),
    ((1, 1, 65, 64), {"causal": 1}, "fast_float16"),
])  # fmt: skip
def test_the_best_kernel_whose_conditions_hold_is_taken(node: Client, q: tuple[int, ...], attributes: dict[str, Any], kernel: str) -> None:
    x = normal(*q, dtype=np.float16)
    assert kernels(attend(node, attributes, x, x, x)) == [kernel]


def test_an_address_that_is_not_as_promised_takes_another_kernel(node: Client) -> None:
    x, weight = normal(64, 32), normal(32, 24)
    assert kernels(linear(node, x, weight)) == ["linear_fast_float"]
    inputs = normal(1, 65, 3 * 3 * 4), {"packed": "qkv", "q_num_heads": 3, "scale": 1.0}
    assert kernels(attend(node, inputs[1], inputs[0])) == ["tile_float_none"], "heads of 4: k is 48 bytes after q, its rows are 36 apart"


def test_more_shared_memory_than_usual_is_asked_for(node: Client) -> None:
    x = normal(1, 1, 70, 16)
    (launch,) = attend(node, {}, x, x, x).launches
    assert (launch["kernel"], launch["threads"], launch["shared"]) == ("fast_float", 64, 64 * 1024)


def test_linear_tells_activation_and_what_is_added(node: Client) -> None:
    x, weight, bias, residual = normal(2, 5, 8), normal(7, 8), normal(7), normal(2, 5, 7)
    for code, activation in enumerate(choices("linear", "activation")):
        chosen = {"activation": activation, "activation_beta": 1.0, "trans_weight": 1, "residual_last": 1, "alpha": 0.5}
        (launch,) = linear(node, x, weight, bias, residual, **chosen).launches
        got = arguments(launch)
        assert (launch["kernel"], launch["grid"]) == ("linear_float", [3, 1])
        assert (got["activation"], got["has_bias"], got["has_residual"], got["residual_last"], got["alpha"]) == (code, 1, 1, 1, "0.5")
        assert (got["rows"], got["columns"], got["depth"], got["weight_depth"], got["weight_column"]) == (10, 7, 8, 1, 8)
    got = arguments(linear(node, x, normal(8, 7)).launches[0])
    assert (got["has_bias"], got["bias"], got["has_residual"], got["residual"]) == (0, 0, 0, 0)


def test_y_may_lie_over_the_residual(node: Client) -> None:
    x, weight, residual = normal(9, 8), normal(8, 5), normal(9, 5)
    inputs, attributes = [x, weight, None, residual], {**next(op for op, _ in custom_ops.all_cases() if op.name == "Linear").attributes}
    apart, over = (node.run("Linear", attributes, inputs, ["float"], over=o).outputs[0][0] for o in ({}, {0: 3}))
    np.testing.assert_array_equal(apart, over)


def test_gated_linear_tells_its_halves_and_its_activation(node: Client) -> None:
    x, bias = normal(2, 5, 8), normal(14)
    for code, activation in enumerate(choices("gated_linear", "activation")):
        for first in (0, 1):
            attributes = {"activation": activation, "activation_alpha": 2.0, "trans_weight": first, "gate_first": first}
            weight = normal(14, 8) if first else normal(8, 14)
            (launch,) = node.run("GatedLinear", attributes, [x, weight, bias], ["float"]).launches
            got = arguments(launch)
            assert (launch["kernel"], launch["grid"]) == ("gated_linear_float", [3, 1])
            assert (got["activation"], got["activation_alpha"], got["has_bias"], got["columns"]) == (code, "2", 1, 7)
            assert (got["gate_column"], got["up_column"]) == ((0, 7) if first else (7, 0))
            assert (got["weight_depth"], got["weight_column"]) == ((1, 8) if first else (14, 1))


def registered(client: Client) -> Client:
    """With sessions for both devices behind it, and what was loaded for them forgotten."""
    assert names(client, 0) == names(client, 1) == set(OPS)
    client.ask("launches")
    return client


def test_threads_and_devices_share_what_is_loaded(start: Start, folder: Path) -> None:
    client = registered(start(kernels=str(folder)))
    x = normal(1, 2, 70, 16)
    first = attend(client, {}, x, x, x, threads=4, runs=12)
    assert [event["event"] for event in first.made] == ["load"]
    assert [event["event"] for event in first.launches] == ["launch"] * 12
    for outputs in first.outputs:
        np.testing.assert_array_equal(outputs[0], first.outputs[0][0])
    again = attend(client, {}, x, x, x)
    assert again.made == [], "another node finds the kernel loaded"
    other = attend(client, {}, x, x, x, device=1)
    assert [event["event"] for event in (*other.made, *other.launches)] == ["load", "launch"]
    assert [other.launches[0][name] for name in ("device", "image", "stream")] == [1, "sm_80", 0x5001]


def test_sizes_that_a_model_leaves_open_take_another_kernel_in_the_run(start: Start, folder: Path) -> None:
    client = registered(start(kernels=str(folder)))
    x = normal(1, 1, 70, 64, dtype=np.float16)
    declared = [[1, 1, "seq", "size"]] * 3 + [None] * 4
    ran = attend(client, {}, x, x, x, declared=declared)
    assert [event["event"] for event in ran.made] == ["load"]
    assert [event["event"] for event in ran.launches] == ["load", "launch"], "what was guessed is too large for the fast one"


# --- cuBLASLt instead

SUMS = [
    {"activation": activation, "residual": residual, "trans_weight": trans, "alpha": alpha}
    for activation, residual, trans, alpha in (
        ("none", None, 0, 1.0), ("none", "last", 1, 0.5), ("relu", "first", 0, 2.0), ("gelu_tanh", None, 1, 1.0), ("none", "first", 1, 1.0)
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def by_cublas(fakes: Path, folder: Path) -> Iterator[Client]:
    client = Client(fakes, kernels=str(folder), linear="cublaslt")
    yield client
    client.close()


@pytest.mark.parametrize("kind", standins.TYPES)
@pytest.mark.parametrize("use", SUMS, ids=str)
def test_cublaslt_gives_the_numbers_of_the_body(by_cublas: Client, kind: str, use: dict[str, Any]) -> None:
    residual = use["residual"]
    attributes = {**use, "residual_last": int(residual == "last")}
    del attributes["residual"]
    shapes = {"x": (2, 5, 34), "weight": (24, 34) if use["trans_weight"] else (34, 24), "bias": (24,)}
    op = next(op for op, _ in custom_ops.all_cases() if op.name == "Linear")
    case = Case(shapes | ({"residual": (2, 5, 24)} if residual else {}), attributes)
    for device in (0, 1):
        got, ran = run(by_cublas, op, case, kind, device=device)
        harness.assert_close(got, harness.exact(op, case, kind), op.tolerance[kind])
        assert [(event["event"], event["stream"]) for event in ran.launches] == [("product", 0x5000 + device)]


def test_what_cublaslt_has_not_runs_by_a_compiled_kernel(by_cublas: Client) -> None:
    x, weight, residual = normal(3, 34), normal(34, 24), normal(3, 24)
    assert kernels(linear(by_cublas, x, weight, activation="silu")) == ["linear_float"]
    assert kernels(linear(by_cublas, x, weight, activation="gelu")) == ["linear_float"]
    assert kernels(linear(by_cublas, x, weight, None, residual, activation="relu", residual_last=1)) == ["linear_float"]
    assert kernels(linear(by_cublas, normal(3, 33), normal(33, 24))) == ["linear_float"], "no way for an odd depth, says this stand-in"


def test_what_cublaslt_refuses_runs_by_a_compiled_kernel_and_is_told_once(start: Start, folder: Path) -> None:
    client = start(kernels=str(folder), linear="cublaslt")
    x, weight = normal(3, 34), normal(34, 24)
    for _ in range(2):
        client.ask("fail", "cublasLtMatmul", 13)
        np.testing.assert_allclose(linear(client, x, weight).outputs[0][0], x @ weight, rtol=1e-4, atol=1e-4)
    assert client.close().count("cuBLASLt: cublasLtMatmul failed with 13. What it refuses runs by compiled kernels") == 1


def test_y_of_cublaslt_may_lie_over_the_residual(by_cublas: Client) -> None:
    op = next(op for op, _ in custom_ops.all_cases() if op.name == "Linear")
    inputs = [normal(9, 8), normal(8, 6), normal(6), normal(9, 6)]
    apart, over = (by_cublas.run("Linear", op.attributes, inputs, ["float"], over=o) for o in ({}, {0: 3}))
    assert apart.launches[0]["event"] == "product"
    np.testing.assert_array_equal(apart.outputs[0][0], over.outputs[0][0])


def test_cublaslt_that_is_wanted_and_not_there_is_told_once(start: Start, folder: Path, fakes: Path, tmp_path: Path) -> None:
    client = start(kernels=str(folder), linear="cublaslt")
    client.ask("set_variable", "ONNXFUSE_CUBLASLT", str(tmp_path / "none.so"))
    for _ in range(2):
        assert kernels(linear(client, normal(3, 34), normal(34, 24))) == ["linear_float"]
    said = client.close()
    assert said.count("cuBLASLt, which ONNXFUSE_LINEAR or measured times ask for, is not found (") == 1


def measured(folder: Path, rows: int, compiled: float, cublaslt: float, *, device: str = "Fake GPU 0") -> None:
    """Times of a product with 34 of depth and 24 columns, beside the kernels."""
    time = {"dtype": "float", "rows": rows, "columns": 24, "depth": 34, "trans_weight": 0}
    times = [{**time, "compiled_us": compiled, "cublaslt_us": cublaslt}, {**time, "rows": 64, "compiled_us": 1, "cublaslt_us": 2}]
    (folder / "linear.sm_90.times").write_text(json.dumps({"schema": 1, "device": device, "times": times}))


@pytest.mark.parametrize(("rows", "compiled", "cublaslt", "setting", "kernel"), [
    (8, 2.0, 1.0, "", "product"),
    (16, 2.0, 1.0, "", "product"),
    (2, 2.0, 1.0, "", "launch"),  # too far from what is asked
    (8, 1.0, 2.0, "", "launch"),
    (8, 2.0, 1.0, "compiled", "launch"),
    (8, 1.0, 2.0, "cublaslt", "product"),
])  # fmt: skip
def test_the_measured_times_of_what_is_nearest_choose(
    start: Start, image: bytes, tmp_path: Path, rows: int, compiled: float, cublaslt: float, setting: str, kernel: str
) -> None:
    standins.write(tmp_path, EVERY, 90, image)
    measured(tmp_path, rows, compiled, cublaslt)
    client = start(kernels=str(tmp_path), linear=setting, devices="90")
    x, weight = normal(8, 34), normal(34, 24)
    ran = linear(client, x, weight)
    assert [event["event"] for event in ran.launches] == [kernel]
    np.testing.assert_allclose(ran.outputs[0][0], x @ weight, rtol=1e-4, atol=1e-4)
    assert [event["event"] for event in linear(client, normal(64, 34), weight).launches] == [
        "product" if setting == "cublaslt" else "launch"
    ]


def test_times_of_another_device_and_damaged_ones_choose_nothing(start: Start, image: bytes, tmp_path: Path) -> None:
    for place in ("other", "damaged"):
        standins.write(tmp_path / place, EVERY, 90, image)
        measured(tmp_path / place, 8, 2.0, 1.0, device="NVIDIA L4")
    (tmp_path / "damaged" / "linear.sm_90.times").write_text('{"schema": 1}')
    client = start(kernels=f"{tmp_path / 'other'}:{tmp_path / 'damaged'}", devices="90")
    assert kernels(linear(client, normal(8, 34), normal(34, 24))) == ["linear_float"]
    said = client.close()
    assert said.count("the measured times") == 1 and "damaged/linear.sm_90.times cannot be used:" in said


# --- what is found


def test_without_kernels_both_run_by_their_bodies_and_the_warning_says_how_to_build(start: Start) -> None:
    client = start()
    assert names(client) == names(client) == set()
    said = client.close()
    how = "by their function bodies: Attention, GatedLinear, Linear. Compile their kernels with `onnxfuse kernels build --arch sm_90`"
    assert said.count(how) == 1


def test_folders_are_beside_the_library_the_cache_and_the_environment(start: Start, image: bytes, fakes: Path, tmp_path: Path) -> None:
    places = {
        "library": tmp_path / "lib" / "kernels",
        "home": tmp_path / "home" / "onnxfuse" / "kernels",
        "kernels": tmp_path / "more",
    }
    (tmp_path / "lib").mkdir()
    shutil.copy(fakes / LIBRARY, tmp_path / "lib" / "lib.so")
    options: dict[str, Any] = {
        "library": tmp_path / "lib" / "lib.so",
        "home": tmp_path / "home",
        "kernels": f"/no:{places['kernels']}",
    }
    # The first of them wins: each lacks what is in those before.
    for place, threads, archs in (("kernels", 96, (80, 90, 100)), ("home", 64, (90, 100)), ("library", 32, (100,))):
        for arch in archs:
            standins.write(places[place], [replace(kernel, threads=threads) for kernel in EVERY], arch, image)
    client = start(**options, devices="80,90,100")
    x = normal(1, 1, 70, 16)
    for device, threads in enumerate((96, 64, 32)):
        assert names(client, device) == set(OPS)
        assert attend(client, {}, x, x, x, device=device).launches[0]["threads"] == threads


def test_the_nearest_architecture_is_taken(start: Start, image: bytes, tmp_path: Path) -> None:
    for arch in (80, 89, 90, 100):
        standins.write(tmp_path, EVERY, arch, image)
    # Code of 9.0 and later is for one architecture alone.
    wanted = {75: None, 80: "sm_80", 86: "sm_80", 89: "sm_89", 90: "sm_90", 100: "sm_100", 103: None, 120: None}
    client = start(kernels=str(tmp_path), devices=",".join(map(str, wanted)))
    x = normal(1, 1, 70, 16)
    for device, taken in enumerate(wanted.values()):
        assert names(client, device) == (set(OPS) if taken else set())
        assert not taken or attend(client, {}, x, x, x, device=device).launches[0]["image"] == taken


def test_a_kernel_that_needs_more_memory_than_a_device_has_is_not_for_it(start: Start, image: bytes, tmp_path: Path) -> None:
    standins.write(tmp_path, [replace(kernel, shared=160 * 1024 if "fast" in kernel.name else 0) for kernel in EVERY], 80, image)
    x = normal(1, 1, 70, 16)
    client = start(kernels=str(tmp_path), devices="80,86")
    for device, kernel in enumerate(("fast_float", "tile_float_none")):
        assert kernels(attend(client, {}, x, x, x, device=device)) == [kernel]


def test_a_set_that_lacks_what_some_node_may_need_is_not_registered(start: Start, image: bytes, tmp_path: Path) -> None:
    lacking = {80: ("tile_bfloat16_float16", "Attention"), 90: ("join_float", "Attention"), 100: ("linear_float16", "Linear")}
    for arch, (missing, _) in lacking.items():
        standins.write(tmp_path, [kernel for kernel in EVERY if kernel.name != missing], arch, image)
    client = start(kernels=str(tmp_path), devices=",".join(map(str, lacking)))
    for device, (_, lost) in enumerate(lacking.values()):
        assert names(client, device) == set(OPS) - {lost}
    said = client.close()
    for arch, (_, lost) in lacking.items():
        assert f"(sm_{arch}) these operators run by their function bodies: {lost}. Compile their kernels with" in said


def test_without_kernels_for_it_nothing_is_split(start: Start, image: bytes, tmp_path: Path) -> None:
    for arch, missing in ((80, "split"), (90, "combine")):
        standins.write(tmp_path, [kernel for kernel in EVERY if kernel.role != missing], arch, image)
    client, q, k = start(kernels=str(tmp_path), devices="80,90"), normal(1, 1, 1, 9), normal(1, 1, 300, 9)
    for device in (0, 1):
        assert kernels(attend(client, {}, q, k, k, device=device)) == ["tile_float_none"]


Damage = Callable[[Path], object]


def with_text(change: Callable[[str], str]) -> Damage:
    return lambda path: path.write_text(change(path.read_text()))


def with_facts(**changes: Any) -> Damage:
    return with_text(lambda text: json.dumps({**json.loads(text), **changes}, ensure_ascii=False))


DAMAGES: dict[str, Damage] = {
    "byte .* must be '}'": with_text(lambda text: text[:-1]),
    "byte 0 must be a digit": with_text(lambda _: ""),
    "must be an object, got an array": with_text(lambda _: "[]"),
    "byte .* must be its end": with_text(lambda text: text + "x"),
    "behind a name that is not there already": with_text(lambda _: '{"op": 1, "op": 1}'),
    "no deeper than 8 values": with_text(lambda _: "[" * 100),
    "an escape other than": with_text(lambda text: text.replace("fast", "fast\\u0041")),
    "its schema is of another version": with_facts(schema=2),
    "must be a number from 1 to 1024, got the number 4096": with_facts(block=[4096, 1, 1]),
    "must be a number from 0 to 2147483647, got a string much": with_facts(shared="much"),
    "must be a number from 0 to 2147483647, got the number 1.5": with_facts(rank=1.5),
    "must be a number from 0 to 65536, got the number 100000": with_facts(scratch=100000),
    "must be a string, got the word null": with_facts(entry=None),
    r"'c\?{39}\.\.\.' is not known to this version": with_facts(arguments=[{"name": "cé" + "?" * 99, "kind": "i32"}]),
    "'colour' is not known to this version": with_facts(arguments=[{"name": "colour", "kind": "i32"}]),
    "'prime' is not known to this version": with_facts(conditions=[{"name": "keys", "prime": 1}]),
    "must be a number from 1 to 2147483647, got the number 0": with_facts(conditions=[{"name": "keys", "align": 0}]),
}
DAMAGED_CODE: dict[str, Damage] = {
    "cannot be read": lambda path: path.unlink(),
    "has another checksum": lambda path: path.write_bytes(path.read_bytes()[:-1]),
}


def test_damaged_files_are_left_out_and_told_once(start: Start, image: bytes, tmp_path: Path) -> None:
    """Each in a folder of its own, beside one with whole files but for this kernel."""
    (fast,) = (kernel for kernel in EVERY if kernel.name == "fast_float")
    for number, damage in enumerate(DAMAGES.values()):
        standins.write(tmp_path / f"damaged {number}", [fast], 90, image)
        damage(tmp_path / f"damaged {number}" / "fast_float.sm_90.json")
    for says, damage in DAMAGED_CODE.items():
        standins.write(tmp_path / says, [fast], 90, image)
        damage(tmp_path / says / "fast_float.sm_90.cubin")
    standins.write(tmp_path / "whole", [kernel for kernel in EVERY if kernel != fast], 90, image)
    client = start(kernels=":".join(map(str, tmp_path.iterdir())))
    x = normal(1, 1, 70, 16)
    assert names(client) == set(OPS), "what is left takes whatever comes"
    assert kernels(attend(client, {}, x, x, x)) == ["tile_float_none"]
    said = client.close()
    for number, says in enumerate(DAMAGES):
        place = re.escape(str(tmp_path / f"damaged {number}"))
        told = rf"1 of the compiled kernels in {place} cannot be used. The first is fast_float.sm_90.json: .*{says}"
        assert len(re.findall(told, said)) == 1, said
    for says in DAMAGED_CODE:
        assert said.count(f"the compiled kernel {tmp_path / says}/fast_float.sm_90.cubin {says}. It is left out; make it anew with") == 1
    assert said.count("with `onnxfuse kernels build --arch sm_90`") == len(DAMAGES) + len(DAMAGED_CODE)


def test_a_damaged_kernel_that_is_needed_leaves_the_next_or_none(start: Start, image: bytes, tmp_path: Path) -> None:
    for place in ("first", "second"):
        standins.write(tmp_path / place, EVERY, 90, image)
    (tmp_path / "first" / "linear_float.sm_90.cubin").write_bytes(b"")
    (tmp_path / "first" / "join_float.sm_90.cubin").write_bytes(b"")
    (tmp_path / "second" / "join_float.sm_90.cubin").write_bytes(b"")
    client = start(kernels=f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    assert names(client) == set(OPS) - {"Attention"}
    assert kernels(linear(client, normal(3, 5), normal(5, 3))) == ["linear_float"]


def test_a_file_half_written_or_of_another_kind_is_no_matter(start: Start, folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*.sm_90.*"):
        (tmp_path / file.name).symlink_to(file)
    for name in ("readme.txt", "x.json", "x.sm_90.cubin", ".sm_90.json.tmp"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.sm_80.json").mkdir()
    client = start(kernels=str(tmp_path))
    assert names(client) == set(OPS)
    assert "cannot be used" not in client.close()


# --- what goes wrong


def test_kernels_that_the_driver_does_not_take_are_not_registered(start: Start, tmp_path: Path) -> None:
    standins.write(tmp_path, EVERY, 90, bytes(100))
    client = start(kernels=str(tmp_path))
    assert names(client) == set()
    said = client.close()
    assert "Attention, GatedLinear, Linear. Their compiled kernels cannot be loaded (CUDA driver: cuModuleLoadData failed" in said
    assert "Compile them for this driver with `onnxfuse kernels build --arch sm_90`" in said


def test_what_the_driver_refuses_becomes_a_status(start: Start, folder: Path) -> None:
    client = start(kernels=str(folder))
    x = normal(1, 1, 70, 16)
    assert names(client) == set(OPS)
    client.ask("fail", "cuModuleLoadData", 719)
    with pytest.raises(RuntimeError, match="onnxfuse Attention 'tested': CUDA driver: cuModuleLoadData failed"):
        attend(client, {}, x, x, x, only_make=True)
    client.ask("fail", "cuLaunchKernel", 719)
    with pytest.raises(RuntimeError, match="Attention 'tested': CUDA driver: cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED"):
        attend(client, {}, x, x, x)
    assert attend(client, {}, x, x, x).launches, "and the next run is as good as ever"


def test_a_number_that_its_argument_cannot_hold_becomes_a_status(start: Start, image: bytes, tmp_path: Path) -> None:
    narrow = [replace(k, arguments=[(name, "i32" if name == "q" else kind) for name, kind in k.kinds()]) for k in EVERY if k.role == "tile"]
    standins.write(tmp_path, [*narrow, *(kernel for kernel in EVERY if kernel.role != "tile")], 90, image)
    x = normal(1, 1, 70, 16)
    with pytest.raises(RuntimeError, match=r"Attention 'tested': a size or a distance of elements is \d+, which must be below 2\^31"):
        attend(start(kernels=str(tmp_path)), {}, x, x, x)


def test_inputs_that_do_not_fit_become_a_status(node: Client) -> None:
    with pytest.raises(RuntimeError, match="onnxfuse Attention 'tested': q and k must have the same size"):
        attend(node, {}, normal(1, 1, 4, 8), normal(1, 1, 4, 7), normal(1, 1, 4, 8))
    with pytest.raises(RuntimeError, match="onnxfuse Linear 'tested': weight must have k = 8"):
        linear(node, normal(4, 8), normal(7, 3))
