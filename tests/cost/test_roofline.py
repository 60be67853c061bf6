"""The terms of the extended model, one at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from math import ceil

import pytest

from onnxfuse.cost.count import work
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices, find
from onnxfuse.cost.gemm import plan
from onnxfuse.cost.registers import estimate_registers, live_words
from onnxfuse.cost.roofline import coalescing, dram_gbs, gpu_time, occupancy_factor, wave_tail
from onnxfuse.cost.work import Compiled, Gemm, Work

GPUS = [device for device in devices().values() if isinstance(device, Gpu)]
A100, H100 = (device for device in map(find, ("a100", "h100")) if isinstance(device, Gpu))


def pointwise(elements: int, dtype: str = "float16") -> Work:
    return work("Mul", [(elements,)], [(elements,)], dtype)


def test_occupancy_factor_has_a_floor_of_a_quarter() -> None:
    assert [occupancy_factor(o) for o in (0.0, 0.125, 0.25, 0.5, 1.0)] == [0.25, 0.25, 0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("blocks", "resident", "tail"), [(1, 100, 1), (100, 100, 1), (101, 100, 200 / 101), (150, 100, 200 / 150), (200, 100, 1)]
)
def test_last_wave_takes_as_long_as_a_full_one(blocks: int, resident: int, tail: float) -> None:
    assert wave_tail(blocks, resident) == pytest.approx(tail)
    assert wave_tail(blocks, resident) == max(1.0, ceil(blocks / resident) * resident / blocks if blocks > resident else 1.0)


@pytest.mark.parametrize(("run", "used"), [(0, 1), (64, 1), (4, 1 / 16), (96, 0.75), (128, 1), (65, 65 / 128)])
def test_short_runs_waste_transactions(run: int, used: float) -> None:
    assert coalescing(run) == pytest.approx(used)


def test_large_copy_reaches_the_bandwidth_that_a_copy_reaches() -> None:
    kernel = pointwise(2**28)
    time = gpu_time(kernel, A100)
    assert kernel.bytes / time.memory_us / 1e3 == pytest.approx(A100.memory_gbs * A100.memory_efficiency)
    assert time.limiter == "memory"
    assert time.tail == pytest.approx(1.0, abs=0.01)


def test_few_blocks_cannot_fill_the_memory() -> None:
    kernel = pointwise(2**28)
    assert [dram_gbs(kernel, A100, blocks, 2, 1024) for blocks in (1, 10)] == pytest.approx([1.41 * 32, 10 * 1.41 * 32])
    assert dram_gbs(kernel, A100, 1000, 2, 1024) == A100.memory_gbs * A100.memory_efficiency


def test_few_bytes_in_flight_cannot_hide_the_latency() -> None:
    kernel = pointwise(2**28)
    full, starved = (dram_gbs(kernel, H100, 10**6, blocks, 256) for blocks in (8, 1))
    assert full == H100.memory_gbs * H100.memory_efficiency
    assert starved == pytest.approx(132 * 256 * 16 * 2 / 700)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.key)
def test_matrix_kernels_are_not_derated_by_occupancy(gpu: Gpu) -> None:
    square = (8192, 8192)
    kernel = work("MatMul", [square, square], [square], "float16")
    time = gpu_time(kernel, gpu)
    assert time.occupancy.fraction < 0.3
    best = kernel.gemm_flops / (gpu.peak("float16") * 1e6 * gpu.tensor_efficiency)
    assert time.tensor_us == pytest.approx(best * time.tail)
    assert gpu_time(kernel, gpu, mode="basic").tensor_us == pytest.approx(
        best * gpu.tensor_efficiency / occupancy_factor(time.occupancy.fraction)
    )


def test_lanes_are_derated_by_occupancy() -> None:
    kernel = replace(pointwise(2**24), parts=(("Erf", 2**24),))
    full, quarter = (gpu_time(replace(kernel, compiled=Compiled(registers)), A100) for registers in (32, 128))
    assert quarter.alu_us / quarter.tail == pytest.approx(4 * full.alu_us / full.tail)


def test_exp_is_bound_by_the_special_units() -> None:
    kernel = replace(pointwise(2**24), parts=(("Exp", 2**24),))
    time = gpu_time(kernel, H100)
    assert time.sfu_us == pytest.approx(2**24 / (132 * 16 * 1.98e3) * time.tail)
    assert time.sfu_us > time.alu_us


def test_kernel_time_is_launch_and_the_longer_term_and_a_part_of_the_shorter() -> None:
    rng = random.Random(3)
    for _ in range(50):
        kernel = replace(pointwise(rng.randint(1, 2**26)), parts=(("Exp", rng.randint(1, 2**28)),))
        time = gpu_time(kernel, A100)
        busy = max(time.alu_us, time.sfu_us, time.tensor_us)
        assert time.total_us == pytest.approx(A100.launch_us + max(time.memory_us, busy) + 0.05 * min(time.memory_us, busy))


def test_tiles_follow_the_rows_and_small_ones_run_slower() -> None:
    assert [plan(Gemm(1, m, 4096, 4096), H100).rate for m in (1, 16, 17, 33, 64, 65)] == [0.63, 0.63, 0.63, 1.0, 1.0, 1.0]
    assert plan(Gemm(1, 1, 4096, 4096), H100).padded_flops == 2 * 16 * 4096 * 4096
    assert plan(Gemm(1, 128, 128, 64), H100).padded_flops == Gemm(1, 128, 128, 64).flops


def test_single_row_is_split_over_all_sms() -> None:
    assert plan(Gemm(1, 1, 4096, 4096), H100).blocks >= H100.sms
    assert plan(Gemm(1, 1, 128, 128), H100).blocks == 1
    one = work("MatMul", [(1, 8192), (8192, 8192)], [(1, 8192)], "float16")
    assert gpu_time(one, H100).limiter == "memory"


def test_product_of_one_tile_reads_nothing_again() -> None:
    assert plan(Gemm(8, 128, 128, 64), A100).reread_elements == 0
    assert plan(Gemm(1, 512, 512, 64), A100).reread_elements == 2 * 512 * 64


def test_large_product_runs_about_as_fast_as_measured() -> None:
    """An H200 took 769 to 798 TFLOP/s: what blocks share is read again from L2, however long k is."""
    square = work("MatMul", [(8192, 8192)] * 2, [(8192, 8192)], "bfloat16")
    h200 = next(gpu for gpu in GPUS if gpu.key == "h200-sxm")
    assert 0.85 * 769 < square.gemm_flops / gpu_time(square, h200).total_us / 1e6 < 1.1 * 798


def test_attention_meets_l2_while_the_heads_that_run_fit() -> None:
    q = (1, 64, 4096, 64)
    kernel = work("Attention", [q, q, q], [q], "float16")
    assert kernel.bytes_read > A100.l2_bytes
    time = gpu_time(kernel, A100)
    first = kernel.bytes / dram_gbs(kernel, A100, kernel.blocks, time.occupancy.blocks, 256)
    assert time.memory_us == pytest.approx((first + kernel.reread_bytes / A100.l2_gbs) / 1e3)
    assert gpu_time(replace(kernel, sharers=0), A100).memory_us > time.memory_us


@pytest.mark.parametrize(("words", "registers"), [(0, 32), (1, 32), (21, 32), (22, 40), (192, 224), (220, 256), (300, 352)])
def test_registers_are_estimated_in_steps_of_eight(words: int, registers: int) -> None:
    assert estimate_registers(words) == registers


def test_more_live_values_never_take_fewer_registers() -> None:
    estimates = [estimate_registers(words) for words in range(400)]
    assert estimates == sorted(estimates)
    assert live_words(2, 8, "float16") == live_words(2, 8, "float") == 16
    assert live_words(2, 8, "double") == 32


# Live 32-bit values: registers that ptxas 13.0 gave kernels of 4 to 24 inputs, the fewest and the most over sm_80, 90 and 100.
COMPILED = {24: (32, 40), 32: (32, 48), 48: (56, 64), 64: (72, 79), 96: (111, 127), 128: (149, 151), 192: (223, 225)}


@pytest.mark.parametrize("words", COMPILED)
def test_estimate_is_near_the_compilers_figures(words: int) -> None:
    fewest, most = COMPILED[words]
    assert fewest - 8 <= estimate_registers(words) <= most + 8
