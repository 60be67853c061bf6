"""Decisions: the ones that are known, on every device; what a price holds; laws that hold for any kernel."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from onnxfuse.cost.attention_io import AttentionShape
from onnxfuse.cost.budgets import MAX_NODES, MAX_OPERANDS, Checks
from onnxfuse.cost.compiling import compile_ms
from onnxfuse.cost.count import work
from onnxfuse.cost.count_attention import attention_work
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices
from onnxfuse.cost.model import Compiled, Model, Price, Work, fuse
from onnxfuse.errors import UsageError

Case = tuple[list[Work], Work]
DEVICES = devices()
GPUS = [key for key, device in DEVICES.items() if isinstance(device, Gpu)]
BIG = (32, 1024, 1024)  # 64 MiB of float16


def chain(ops: list[str], inputs: int, shape: tuple[int, ...], dtype: str = "float16") -> Case:
    """Ops one after the other on tensors of one shape, each with so many inputs, and the one kernel that does them all."""
    parts = [work(op, [shape] * inputs, [shape], dtype, name=op) for op in ops]
    size = parts[0].bytes_written
    outside = 1 + len(ops) * (inputs - 1)
    return parts, fuse("fused", parts, bytes_read=outside * size, bytes_written=size, operands=outside + 1)


def gemm_bias_gelu(n: int = 4096) -> Case:
    square = (n, n)
    parts = [
        work("MatMul", [square, square], [square], "float16"),
        work("Add", [square, (n,)], [square], "float16"),
        work("Gelu", [square], [square], "float16"),
    ]
    return parts, fuse("fused", parts, bytes_read=parts[0].bytes_read + 2 * n, bytes_written=2 * n * n, operands=4)


def attention(length: int, heads: int = 16, head_dim: int = 64) -> Case:
    q, scores = (1, heads, length, head_dim), (1, heads, length, length)
    parts = [
        work("MatMul", [q, (1, heads, head_dim, length)], [scores], "float16"),
        work("Softmax", [scores], [scores], "float16"),
        work("MatMul", [scores, q], [q], "float16"),
    ]
    return parts, attention_work("fused", AttentionShape(length, length, head_dim, heads=heads), "float16", fused=True)


CHAIN = chain(["Mul", "Add", "Exp", "Neg"], 1, BIG)
TINY = chain(["Mul"] * 4, 1, (4096,))
FAN_IN = chain(["Add"] * 23, 2, BIG)
CASES: dict[str, tuple[Case, dict[str, Any], set[str]]] = {  # name: the kernels, how they are priced, the GPUs that refuse
    "chain of 4": (CHAIN, {}, set()),
    "tiny chain": (TINY, {}, set()),
    "chain of 64": (chain(["Mul"] * 64, 1, BIG), {}, set()),
    "chain of 65": (chain(["Mul"] * 65, 1, BIG), {}, set(GPUS)),
    "product with bias and gelu": (gemm_bias_gelu(), {}, set()),
    "attention of 4096": (attention(4096), {}, set()),
    "attention of 128": (attention(128), {}, set()),
    "24 inputs": (FAN_IN, {}, {"b200", "gb200", "b300", "gb300"}),
    "tiny pair with a layout change of 8 MiB": (chain(["Mul"] * 2, 1, (65536,)), {"extra_reorder_bytes": 8 << 20}, set(GPUS)),
    "tiny chain compiled for 100 runs": (TINY, {"compile_ms": compile_ms(4, "nvrtc"), "expected_runs": 100.0}, set(GPUS)),
    "tiny chain compiled for 1e6 runs": (TINY, {"compile_ms": compile_ms(4, "nvrtc"), "expected_runs": 1e6}, set()),
}


def priced(case: Case, device: str, *, mode: Any = "extended", expected_runs: float = inf, **how: Any) -> Price:
    before, after = case
    return Model(device, mode, expected_runs).price(before, [after], **how)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", GPUS)
def test_decision_is_the_known_one(device: str, name: str) -> None:
    case, how, refusing = CASES[name]
    price = priced(case, device, **how)
    assert price.worth == (device not in refusing), price.reason()


@pytest.mark.parametrize(("device", "least"), [("a100-sxm-40", 4), ("a100-sxm-80", 4), ("h100-sxm", 4), ("h200-sxm", 4), ("b200", 4)])
def test_attention_of_4096_is_rated_above_4(device: str, least: float) -> None:
    assert priced(attention(4096), device).speedup > least


def test_attention_on_b200_waits_for_exp() -> None:
    assert priced(attention(4096), "b200").limiter == "sfu"


def test_wide_fan_in_is_refused_for_its_registers() -> None:
    price = priced(FAN_IN, "b200")
    assert price.terms["fused.registers"] == 224
    assert price.terms["fused.occupancy"] == 0.125
    assert price.limiter == "memory"
    assert price.terms["basic.fused_us"] < price.terms["basic.unfused_us"]  # the textbook would have taken it


def test_basic_does_not_see_the_launch_and_extended_does() -> None:
    basic, extended = (priced(TINY, "h100", mode=mode) for mode in ("basic", "extended"))
    assert basic.unfused_us < 0.1
    assert 3 * 3.0 < extended.saved_us < 3 * 3.0 + 2.0


def test_basic_is_the_textbooks_formula() -> None:
    gpu = DEVICES["a100-sxm-80"]
    assert isinstance(gpu, Gpu)
    kernel = Work("k", 10**12, 0, 10**9, 10**9, "pointwise", 10**6, "float", compiled=Compiled(registers=64, threads=256))
    model = Model(gpu, "basic")
    assert model.time_us(kernel) == pytest.approx(max(1e12 / (19.5e12 * 0.5), 2e9 / 2039e9) * 1e6)
    starved = replace(kernel, compiled=Compiled(registers=255, threads=256))
    assert model.time_us(starved) == pytest.approx(1e12 / (19.5e12 * 0.25) * 1e6)


def test_price_keeps_every_term() -> None:
    price = priced(CHAIN, "a100", extra_reorder_bytes=1000, compile_ms=5, expected_runs=10)
    for side in ("unfused", "fused"):
        assert {f"{side}.{term}_us" for term in ("total", "launch", "memory", "alu", "sfu", "tensor")} <= set(price.terms)
    assert price.terms["compile_us"] == 500
    assert price.unfused_us == price.terms["unfused.total_us"]
    assert price.fused_us == pytest.approx(price.terms["fused.total_us"] + price.terms["reorder_us"] + 500)
    assert price.saved_bytes == 6 * (64 << 20) - 2000
    assert price.saved_launches == 3
    assert price.saved_us == price.unfused_us - price.fused_us


def test_reason_has_the_numbers() -> None:
    good, bad = priced(CHAIN, "a100").reason(), priced(TINY, "a100", compile_ms=1e6, expected_runs=1.0).reason()
    assert good.startswith("worth it: ")
    assert "saves 403 MB and 3 launches, limited by memory" in good
    assert bad.startswith("not worth it: ")


def test_saving_within_the_margin_is_not_taken() -> None:
    before = [work("Add", [BIG, BIG], [BIG], "float16")]
    model = Model("a100")
    full = model.times(before)["total_us"]
    for part, worth in ((0.01, False), (0.03, True)):
        fused = replace(before[0], bytes_read=round(before[0].bytes_read * (1 - part * 1.5)))
        price = model.price(before, [fused])
        assert price.worth == worth
        assert price.saved_us == pytest.approx(part * full, rel=0.1)


@pytest.mark.parametrize("check", ["semantics_match", "shape_supported", "onchip_fit", "backend_lowered"])
def test_check_that_fails_refuses_whatever_is_saved(check: str) -> None:
    price = priced(CHAIN, "a100", fits=Checks(**{check: False, "failures": ("because",)}))  # type: ignore[arg-type]  # a mapping of both kinds
    assert price.saved_us > 0
    assert (price.worth, price.checks[check], price.reason()) == (False, False, "because")
    unexplained = priced(CHAIN, "a100", fits=Checks(**{check: False}))  # type: ignore[arg-type]  # as above
    assert unexplained.reason() == f"{check} does not hold"


def test_reorder_bytes_are_priced_and_no_veto() -> None:
    free, paid = priced(CHAIN, "a100"), priced(CHAIN, "a100", extra_reorder_bytes=1 << 20)
    assert paid.worth
    assert 0 < paid.fused_us - free.fused_us < 10
    assert paid.checks == free.checks


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nodes": MAX_NODES + 1}, "65 nodes > 64"),
        ({"operands": MAX_OPERANDS + 1}, "97 operands > 96"),
        ({"live": 300}, "registers .estimated. > 255"),
        ({"compiled": Compiled(registers=32, smem=200_000)}, "200000 bytes of shared memory .compiled. > 166912"),
    ],
)
def test_budgets_come_before_time(change: dict[str, Any], says: str) -> None:
    before, fused = CHAIN
    price = Model("a100").price(before, [replace(fused, **change)])
    assert not price.worth
    assert not price.checks["onchip_fit"]
    with pytest.raises(UsageError, match=says):
        raise UsageError(price.reason())


def test_budgets_bind_only_what_is_generated() -> None:
    before, fused = CHAIN
    assert Model("a100").price(before, [replace(fused, nodes=999, fused=False)]).worth


def test_most_nodes_are_the_users_choice() -> None:
    before, fused = chain(["Mul"] * 65, 1, BIG)
    assert Model("a100", max_nodes=65).price(before, [fused]).worth
    assert not Model("a100", max_nodes=3).price(*[[w] for w in (before[0], replace(fused, nodes=4))]).worth


def test_kernel_that_cannot_start_takes_forever() -> None:
    _, fused = CHAIN
    model = Model("a100")
    assert model.time_us(replace(fused, compiled=Compiled(registers=128, threads=1024))) == inf


def test_compiled_facts_replace_the_estimate() -> None:
    _, fused = FAN_IN
    before, _ = FAN_IN
    guessed = Model("b200").price(before, [fused])
    known = Model("b200").price(before, [replace(fused, compiled=Compiled(registers=64))])
    assert "an estimate: no compiled kernel for sm_100" in guessed.notes[0]
    assert known.notes == ()
    assert known.terms["fused.registers"] == 64
    assert known.worth


def test_spills_cost() -> None:
    before, fused = CHAIN
    clean, spilled = (Model("a100").time_us(replace(fused, compiled=Compiled(64, spill_bytes=spill))) for spill in (0, 64))
    assert spilled > clean


def test_profile_of_low_confidence_is_noted() -> None:
    assert any("a10g is of low confidence" in note for note in priced(CHAIN, "a10g").notes)


def test_graph_launches_are_cheaper() -> None:
    before, fused = TINY
    assert Model("a100", graph=True).price(before, [fused]).unfused_us < Model("a100").price(before, [fused]).unfused_us


def test_small_intermediates_are_read_from_l2() -> None:
    small, large = chain(["Mul"] * 2, 1, (4, 1024, 1024)), chain(["Mul"] * 2, 1, BIG)
    assert priced(large, "a100").speedup > priced(small, "a100").speedup


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["basic", "extended"])
def test_more_work_never_takes_less_time(device: str, mode: Any) -> None:
    model = Model(device, mode)
    kernel = work("Exp", [(64, 1000)], [(64, 1000)], "float")
    base = model.time_us(kernel)
    more = [
        replace(kernel, flops=kernel.flops * 10**6, parts=(("Exp", kernel.elements * 10**6),)),
        replace(kernel, bytes_read=kernel.bytes_read * 1000),
        replace(kernel, bytes_written=kernel.bytes_written * 1000),
    ]
    assert all(model.time_us(harder) > base for harder in more)


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_free_but_for_the_node(device: str) -> None:
    view = work("Reshape", [BIG, (1,)], [BIG], ["float", "int64", "float"])
    model = Model(device)
    node = model.times([view]).get("node_us", 0.0)
    assert model.time_us(view) == node < 1


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_takes_no_time(device: str) -> None:
    price = Model(device).price([], [])
    assert (price.unfused_us, price.fused_us, price.worth, price.limiter) == (0, 0, False, "nothing")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"device": "a100", "mode": "guess"}, "mode must be 'basic' or 'extended'; got 'guess'"),
        ({"device": "a100", "expected_runs": 0}, "expected_runs must be at least 1; got 0"),
        ({"device": "a100", "max_nodes": 0}, "max_nodes must be at least 1"),
        ({"device": "a100", "threads": -1}, "threads at least 0"),
        ({"device": "b1"}, "'b1' is unknown"),
    ],
)
def test_bad_arguments_say_what_must_hold(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Model(**arguments)
