"""Times on a CPU: node overhead, levels of memory, rates of single ops, threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from onnxfuse.cost.count import work
from onnxfuse.cost.cpu import cpu_time, element_ns, kernel_ns, memory_us, product_gflops
from onnxfuse.cost.device import Cache, Cpu
from onnxfuse.cost.model import Model, fuse
from onnxfuse.cost.work import Work

CPU = Cpu(
    key="test",
    name="test",
    confidence="high",
    sources=("made up for tests, two cores",),
    cores=2,
    simd_bits=256,
    fma_units=2,
    clock_ghz=3.0,
    caches=(Cache(1, 32768, 1, 100.0), Cache(2, 2**20, 1, 80.0), Cache(3, 2**23, 2, 30.0)),
    memory_gbs=10.0,
    memory_gbs_all=15.0,
    gemm_gflops=90.0,
    node_us=0.25,
    operand_us=0.1,
    fused_node_us=0.3,
    fused_operand_us=0.1,
    rates={"Erf": 0.4, "Pow": 5.0, "Pow:2": 1.5, "Transpose": 0.2},
    fused_rates={"Erf": 0.3},
)


def unary(op: str, elements: int, **how: float) -> Work:
    return work(op, [(elements,)], [(elements,)], "float")


@pytest.mark.parametrize(
    ("size", "threads", "level", "gbs"),
    [
        (8192, 1, "L1", 100),
        (40960, 1, "L2", 80),
        (16384, 2, "L1", 200),
        (2**18, 1, "L2", 80),
        (2**19, 2, "L2", 160),
        (2**21, 1, "L3", 30),
        (2**24, 1, "DRAM", 10),
        (2**24, 2, "DRAM", 15),
    ],
)
def test_bytes_come_from_the_level_that_has_room_for_them(size: int, threads: int, level: str, gbs: float) -> None:
    assert memory_us(CPU, size, threads) == (level, pytest.approx(size / gbs / 1e3))


def test_level_that_is_crowded_misses_in_part() -> None:
    """2^20 bytes fill L2: a quarter hits there, the rest comes from L3."""
    assert memory_us(CPU, 2**20, 1) == ("L3", pytest.approx(2**20 * (0.25 / 80 + 0.75 / 30) / 1e3))
    each = [memory_us(CPU, 2**10 * size, 1)[1] / size for size in range(1, 2**15, 97)]
    assert all(few <= more * (1 + 1e-9) for few, more in pairwise(each))  # more bytes never come faster


def test_kernel_of_ours_takes_what_was_measured() -> None:
    cpu = replace(CPU, kernel_rates={"Gelu:special/2": 0.5, "Gelu:special/3": 0.6, "Norm/4": 0.3, "Norm:special/4": 0.8})
    parts = [unary("Erf", 1000), unary("Mul", 1000)]
    known, other = (fuse(name, parts, bytes_read=4000, bytes_written=4000, operands=2) for name in ("Gelu", "Other"))
    assert [kernel_ns(replace(known, operands=count), cpu) for count in (1, 2, 3, 9)] == [0.5, 0.5, 0.6, 0.6]
    assert [kernel_ns(replace(known, name="Norm", special=count), cpu) for count in (0, 1000)] == [0.3, 0.8]
    assert kernel_ns(other, cpu) is None
    assert cpu_time(known, cpu, threads=1).compute_us == pytest.approx(0.5)
    assert cpu_time(other, cpu, threads=1).compute_us == pytest.approx(1000 * (0.3 + 1 / 48) / 1e3)


def test_time_is_the_node_and_the_longer_of_computing_and_moving() -> None:
    copy = cpu_time(unary("Relu", 10**5), CPU, threads=1)
    assert copy.total_us == pytest.approx(0.25 + memory_us(CPU, 8 * 10**5, 1)[1])
    assert copy.limiter == "memory (L3)"
    erf = cpu_time(unary("Erf", 10**4), CPU, threads=1)
    assert erf.total_us == pytest.approx(0.25 + 4)
    assert erf.limiter == "compute"
    far = cpu_time(unary("Erf", 10**6), CPU, threads=1)
    beyond = far.memory_us - 8e6 / 80e3  # what the rate was measured at: bytes from L2
    assert far.total_us == pytest.approx(0.25 + 400 + 1.5 * beyond)
    assert cpu_time(unary("Relu", 16), CPU).limiter == "node overhead"


def test_operands_cost_a_call_more() -> None:
    assert [cpu_time(work("Sum", [(4,)] * count, [(4,)], "float"), CPU).node_us for count in (1, 2, 4)] == pytest.approx([0.25, 0.35, 0.55])
    parts = [unary("Relu", 4)]
    ours = [fuse("f", parts, bytes_read=16, bytes_written=16, operands=count) for count in (2, 5)]
    assert [cpu_time(kernel, CPU).node_us for kernel in ours] == pytest.approx([0.5, 0.8])


def test_product_runs_at_the_measured_rate() -> None:
    kernel = work("MatMul", [(512, 512), (512, 512)], [(512, 512)], "float")
    assert cpu_time(kernel, CPU, threads=1).compute_us == pytest.approx(2 * 512**3 / 90e3)
    slow = replace(CPU, gemm_rates={"MatMul": 45.0})
    assert cpu_time(kernel, slow, threads=1).compute_us == pytest.approx(2 * 512**3 / 45e3)


def test_product_goes_by_its_rows() -> None:
    cpu = replace(CPU, gemm_rates={"MatMul/1": 10.0, "MatMul/16": 40.0, "MatMul/256": 90.0, "Linear/4": 60.0})

    def rate(rows: int, op: str = "MatMul", batch: int = 1) -> float:
        sides = [(batch, rows, 64), (batch, 64, 32)] if batch > 1 else [(rows, 64), (64, 32)]
        return product_gflops(work(op, sides, [(*sides[0][:-1], 32)], "float"), cpu)

    assert [rate(rows) for rows in (1, 4, 16, 64, 256, 999)] == pytest.approx([10, 20, 40, 60, 90, 90])
    assert rate(4, "Gemm") == pytest.approx(20)
    assert rate(4, batch=3) == cpu.gemm_gflops
    ours = fuse("Linear", [work("MatMul", [(1, 64), (64, 32)], [(1, 32)], "float")], bytes_read=4, bytes_written=4)
    assert (product_gflops(ours, cpu), product_gflops(replace(ours, name="Other"), cpu)) == (60.0, cpu.gemm_gflops)


def test_products_on_amx_pay_for_what_they_lay_out() -> None:
    plain = replace(CPU, gemm_rates={"Linear/64": 60.0, "Linear/256": 120.0})
    tiles = replace(plain, amx=True)

    def compute_us(cpu: Cpu, rows: int, cols: int) -> float:
        product = replace(work("MatMul", [(rows, 1024), (1024, cols)], [(rows, cols)], "float"), fused=True, name="Linear")
        return cpu_time(product, cpu, threads=1).compute_us

    assert compute_us(tiles, 256, 1024) == compute_us(plain, 256, 1024)
    assert compute_us(tiles, 256, 128) > compute_us(plain, 256, 128)
    assert compute_us(tiles, 256, 2048) < compute_us(plain, 256, 2048)
    assert compute_us(tiles, 64, 128) == compute_us(plain, 64, 128)
    assert compute_us(tiles, 256, 64) == pytest.approx(2 * compute_us(plain, 256, 64))  # at the rate of few rows


def test_single_row_waits_for_its_weights() -> None:
    assert cpu_time(work("MatMul", [(1, 4096), (4096, 4096)], [(1, 4096)], "float"), CPU, threads=1).limiter == "memory (DRAM)"


def test_ops_have_rates_of_their_own_and_fused_ones_others() -> None:
    assert element_ns("Pow", CPU, fused=False) == 5.0
    assert element_ns("Pow:2", CPU, fused=False) == 1.5
    assert element_ns("Pow:3", CPU, fused=False) == 5.0
    assert element_ns("Erf", CPU, fused=False) == 0.4
    assert element_ns("Erf", CPU, fused=True) == 0.3
    assert element_ns("Add", CPU, fused=True) == element_ns("Pow:2", CPU, fused=True) == 1 / 48
    assert element_ns("Frobnicate", CPU, fused=False) == 1.0


def test_fused_attention_runs_at_its_part_of_the_product() -> None:
    q = (1, 8, 512, 64)
    ours = work("Attention", [q, q, q], [q], "float", domain="ai.onnxfuse")
    assert ours.fused
    time = cpu_time(ours, CPU, threads=1)
    assert time.compute_us == pytest.approx(ours.gemm_flops / (0.75 * 90e3) + 8 * 512 * CPU.attention_row_us)
    assert time.node_us == pytest.approx(0.3 + 4 * 0.1 + CPU.attention_us)


def test_halves_cost_the_runtime_twice_their_bytes() -> None:
    half, single = (work("Relu", [(10**6,)], [(10**6,)], dtype) for dtype in ("float16", "float"))
    assert cpu_time(half, CPU, threads=1).memory_us == cpu_time(single, CPU, threads=1).memory_us
    assert cpu_time(replace(half, fused=True), CPU, threads=1).memory_us < cpu_time(single, CPU, threads=1).memory_us


def test_threads_share_large_work_and_not_small() -> None:
    large, small = unary("Erf", 10**6), unary("Erf", 1000)
    assert cpu_time(large, CPU).compute_us == cpu_time(large, CPU, threads=1).compute_us / 2
    assert cpu_time(small, CPU).threads == 1
    assert cpu_time(large, CPU, threads=16).threads == 2
    assert Model(CPU, threads=1).time_us(large) > Model(CPU).time_us(large)


def test_basic_is_the_textbooks_formula() -> None:
    kernel = unary("Relu", 10**7)
    assert cpu_time(kernel, CPU, mode="basic", threads=1).total_us == pytest.approx(8e7 / 10e3)
    busy = replace(kernel, flops=10**10)
    assert cpu_time(busy, CPU, mode="basic").total_us == pytest.approx(1e10 / (2 * 96e3))


@pytest.mark.parametrize("elements", [16, 1000, 10**5, 10**7])
def test_pointwise_chain_pays_at_every_size(elements: int) -> None:
    parts = [unary(op, elements) for op in ("Mul", "Add", "Relu", "Neg")]
    fused = fuse("f", parts, bytes_read=4 * elements, bytes_written=4 * elements)
    price = Model(CPU).price(parts, [fused])
    assert price.worth
    assert price.terms["unfused.node_us"] - price.terms["fused.node_us"] == 0.5


def test_tiny_saving_counts_the_nodes() -> None:
    parts = [unary("Relu", 16) for _ in range(3)]
    price = Model(CPU).price(parts, [fuse("f", parts, bytes_read=64, bytes_written=64)])
    assert price.saved_us == pytest.approx(0.25, abs=0.01)
    pair = Model(CPU).price(parts[:2], [fuse("f", parts[:2], bytes_read=64, bytes_written=64)])
    assert not pair.worth


def test_layout_change_costs_a_transpose() -> None:
    parts = [unary("Relu", 10**4) for _ in range(3)]
    fused = fuse("f", parts, bytes_read=40000, bytes_written=40000)
    price = Model(CPU, threads=1).price(parts, [fused], extra_reorder_bytes=4 * 10**6)
    assert price.terms["reorder_us"] == pytest.approx(0.25 + max(10**6 * 0.2e-3, memory_us(CPU, 8 * 10**6, 1)[1]))
    assert not price.worth
