"""Blocks per SM: NVIDIA's rules, row by row of a table made with them, and the textbook's simpler ones."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices, find
from onnxfuse.cost.occupancy import MAX_REGISTERS, Occupancy, occupancy, textbook_occupancy

TABLE = list(csv.DictReader(Path(__file__).with_name("occupancy.csv").open()))
GPUS = [device for device in devices().values() if isinstance(device, Gpu)]


def gpu(name: str) -> Gpu:
    device = find(name)
    assert isinstance(device, Gpu)
    return device


@pytest.mark.parametrize("key", sorted({row["device"] for row in TABLE}))
def test_blocks_equal_the_table_of_nvidias_rules(key: str) -> None:
    rows = [{name: int(cell) for name, cell in row.items() if name != "device"} for row in TABLE if row["device"] == key]
    assert len(rows) >= 50
    for row in rows:
        blocks = row.pop("blocks")
        assert occupancy(gpu(key), **row).blocks == blocks, row


def test_table_has_every_compute_capability() -> None:
    assert {gpu(row["device"]).compute_capability for row in TABLE} == {g.compute_capability for g in GPUS}


@pytest.mark.parametrize("rule", [occupancy, textbook_occupancy])
def test_textbook_registers_give_8_and_5_blocks(rule: Callable[..., Occupancy]) -> None:
    few, many = (rule(gpu("a100"), threads=256, registers=registers) for registers in (32, 48))
    assert (few.blocks, many.blocks) == (8, 5)
    assert 1 - many.warps / few.warps == 0.375


def test_registers_are_handed_out_in_units() -> None:
    assert [occupancy(gpu("a100"), threads=256, registers=r).blocks for r in (40, 41, 48)] == [6, 5, 5]


def test_32_kib_blocks_on_a100_are_5_in_the_textbook_and_4_in_fact() -> None:
    a100 = gpu("a100")
    assert textbook_occupancy(a100, threads=256, registers=32, smem=32 * 1024).blocks == 5
    assert occupancy(a100, threads=256, registers=32, smem=32 * 1024).blocks == 4
    assert occupancy(a100, threads=256, registers=32, smem=31 * 1024).blocks == 5


@pytest.mark.parametrize(("name", "kib"), [("v100", 96), ("a100", 164), ("h100", 228)])
def test_shared_memory_per_sm_is_the_textbooks(name: str, kib: int) -> None:
    assert gpu(name).smem_per_sm == kib * 1024
    assert gpu(name).registers_per_sm == 65536


@pytest.mark.parametrize("device", GPUS, ids=lambda g: g.key)
def test_more_registers_or_memory_never_raise_blocks(device: Gpu) -> None:
    rng = random.Random(5)
    for _ in range(200):
        threads, registers = rng.randint(1, 1024), rng.randint(1, MAX_REGISTERS)
        smem, barriers = rng.randrange(device.smem_per_block), rng.randint(0, 16)
        here = occupancy(device, threads=threads, registers=registers, smem=smem, barriers=barriers)
        assert (
            occupancy(device, threads=threads, registers=registers + rng.randint(1, 60), smem=smem, barriers=barriers).blocks <= here.blocks
        )
        assert (
            occupancy(device, threads=threads, registers=registers, smem=smem + rng.randint(1, 9999), barriers=barriers).blocks
            <= here.blocks
        )
        assert occupancy(device, threads=threads, registers=registers, smem=smem, barriers=barriers + 1).blocks <= here.blocks
        assert 0 <= here.fraction <= 1
        assert here.warps == here.blocks * -(-threads // 32)
        assert textbook_occupancy(device, threads=threads, registers=registers, smem=smem).blocks >= here.blocks


@pytest.mark.parametrize(
    ("asked", "limiter"),
    [
        ({"threads": 0, "registers": 32}, "threads"),
        ({"threads": 1025, "registers": 32}, "threads"),
        ({"threads": 256, "registers": 256}, "registers"),
        ({"threads": 1024, "registers": 65}, "registers"),
        ({"threads": 256, "registers": 32, "smem": 163 * 1024 + 1}, "smem"),
    ],
)
def test_kernel_that_cannot_start_says_why(asked: dict[str, int], limiter: str) -> None:
    found = occupancy(gpu("a100"), **asked)
    assert (found.blocks, found.fraction, found.limiter) == (0, 0.0, limiter)


def test_largest_shared_memory_still_starts() -> None:
    for device in GPUS:
        assert occupancy(device, threads=32, registers=32, smem=device.smem_per_block).blocks == 1, device.key
