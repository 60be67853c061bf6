"""The kernels of kernel_triton.py that are built: types, masks, sizes of blocks, and what must hold of a run for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxfuse.triton_kernel import BYTES, FARTHEST, POINTER_TYPES, UNLIMITED, Condition, Kernel, Role

TYPES = ("float16", "bfloat16", "float")
MASKS = ("none", "bool", "float", "float16", "bfloat16")
HEADS = {"float16": (32, 64, 128, 256), "bfloat16": (32, 64, 128, 256), "float": (32, 64, 128)}  # sizes that blocks are made for
LARGEST = 256
MOST_SPLITS = 128
MANY_KEYS = 1024  # with fewer, a block is done before its descriptors have paid
POINTERS = ("q", "k", "v", "y")
MASK_STRIDES = ("mask_batch", "mask_head", "mask_row")
INTEGERS = (
    *(f"{name}_{axis}" for name in POINTERS for axis in ("batch", "head", "row")), *MASK_STRIDES, "mask_column", "k_column",
    "heads", "group", "queries", "keys", "head_size", "value_size", "diagonal", "left", "right", "zero_masked_rows", "has_sink",
    "splits", "split_keys", "past_rows", "fresh_rows", "size", "fresh_batch", "fresh_head", "fresh_row", "fresh_column",
)  # fmt: skip
SMALL = (86, 89, 120)  # architectures with 99 KiB of shared memory a block
WIDE = (90, 100, 103)  # those whose products are taken from shared memory, not from registers
FAST = (100, 103)  # those whose products take less time than exponentials
SIMPLE = {"softcap": 0.0, "left": UNLIMITED, "GENERAL": False}
UNSUNK = {"sink": None, "has_sink": 0, "SINK": False}
UNMASKED: dict[str, Any] = {
    "mask": None,
    "mask_value": 0.0,
    "MASK": 0,
    "MASK_ROWS": False,
    **dict.fromkeys((*MASK_STRIDES, "mask_column"), 0),
}


@dataclass(frozen=True)
class Blocks:
    """rows: queries of a block; keys: taken at a time; warps of a block; stages: blocks of keys on their way."""

    rows: int
    keys: int
    warps: int
    stages: int


def kernels(arch: int) -> list[Kernel]:
    """All kernels for one architecture, 80 for sm_80."""
    found: list[Kernel] = []
    for dtype in TYPES:
        for mask in MASKS:
            if mask in ("none", "bool", "float", dtype):  # masks of yet another type take the slow one
                found += [k for head in HEADS[dtype] for k in _of_head(arch, dtype, mask, head)]
                found.append(_of_any_head(dtype, mask, is_aligned=True))
            found.append(_of_any_head(dtype, mask, is_aligned=False))
        found += [_combine(dtype), *_joins(dtype)]
    return found


def _of_head(arch: int, dtype: str, mask: str, head: int) -> Iterator[Kernel]:
    """Those for heads of up to `head`, the best first."""
    if mask == "none":
        yield from _blockwise(arch, dtype, head)
        yield _plain(arch, dtype, head, exact=True)
        yield _plain(arch, dtype, head, exact=False)
    else:
        yield _masked(arch, dtype, mask, head, by_rows=False)
        yield _masked(arch, dtype, mask, head, by_rows=True)
    yield _general(arch, dtype, mask, head)
    yield _split(dtype, mask, head)


def _plain(arch: int, dtype: str, head: int, *, exact: bool) -> Kernel:
    """Whole or causal attention with no mask. exact: for this size alone."""
    blocks = _blocks(arch, dtype, head, kind="plain" if exact else "padded")
    size = tuple(Condition(name, equals=head) for name in ("head_size", "value_size")) if exact else _up_to(dtype, head)
    constants = {**SIMPLE, **UNSUNK, **UNMASKED, **_sizes(blocks, head), "PADDED": not exact}
    if exact:
        constants |= {"head_size": head, "value_size": head}
    conditions = (*size, *_simple(), Condition("has_sink", equals=0), *_lying(dtype))
    is_busy = dtype != "float" and head >= 64 and arch not in FAST
    return _tile("" if exact else "_padded", dtype, "none", head, blocks, constants, conditions, rank=0 if exact else 1, busy=is_busy)


def _blockwise(arch: int, dtype: str, head: int) -> Iterator[Kernel]:
    """Whole or causal attention with no mask, by tensor descriptors, which pay where there are keys enough; with specialised warps only
    where that is asked for."""
    if arch != 90 or dtype == "float" or head != 128:
        return
    sizes = Condition("keys", min=MANY_KEYS), Condition("head_size", min=1)  # a descriptor has no axis of size 0
    conditions = (*_up_to(dtype, head), *_simple(), *_lying(dtype), Condition("has_sink", equals=0), *sizes)
    for is_specialised in (True, False):
        blocks = Blocks(128, 64, 4, 3) if is_specialised else Blocks(128, 64, 8, 3)
        constants = {**SIMPLE, **UNSUNK, **UNMASKED, **_sizes(blocks, head), "SPECIALISED": is_specialised}
        asked = (Condition("specialised", equals=1),) if is_specialised else ()
        suffix, rank = ("_specialised", -2) if is_specialised else ("_blocks", -1)
        found = _tile(suffix, dtype, "none", head, blocks, constants, (*conditions, *asked), rank=rank, busy=True)
        yield replace(found, function="attention_blocks")


def _masked(arch: int, dtype: str, mask: str, head: int, *, by_rows: bool) -> Kernel:
    """A mask, and maybe a sink. by_rows: it differs by query, and its rows are aligned; otherwise it is a vector of keys."""
    blocks = _blocks(arch, dtype, head, kind="rows" if by_rows else "keys")
    same = {"mask_column": 1} if by_rows else {"mask_column": 1, "mask_row": 0}
    constants = {**SIMPLE, **same, **_sizes(blocks, head), **_mask(mask, rows=by_rows), "SINK": True, "PADDED": True}
    lying = _aligned(mask, "mask", *MASK_STRIDES) if by_rows else ()
    conditions = (*_up_to(dtype, head), *_simple(), *(Condition(n, equals=v) for n, v in same.items()), *_lying(dtype), *lying)
    suffix = f"_{mask}{'_rows' if by_rows else ''}"
    return _tile(suffix, dtype, mask, head, blocks, constants, conditions, rank=1 if by_rows else 0)


def _general(arch: int, dtype: str, mask: str, head: int) -> Kernel:
    """Softcap, window and sink, with no mask or with one whose rows lie anywhere."""
    blocks = _blocks(arch, dtype, head, kind="general" if mask == "none" else "general mask")
    same = {} if mask == "none" else {"mask_column": 1}
    constants = {**same, **_sizes(blocks, head), **_mask(mask, rows=True), "GENERAL": True, "SINK": True, "PADDED": True}
    lying = () if mask == "none" else (Condition("mask_column", equals=1), Condition("mask_row", max=FARTHEST))
    suffix = "_general" if mask == "none" else f"_{mask}_general"
    return _tile(suffix, dtype, mask, head, blocks, constants, (*_up_to(dtype, head), *_lying(dtype), *lying), rank=2)


def _tile(
    suffix: str,
    dtype: str,
    mask: str,
    head: int,
    blocks: Blocks,
    constants: dict[str, Any],
    conditions: tuple[Condition, ...],
    *,
    rank: int,
    busy: bool = False,
    role: Role = "tile",
) -> Kernel:
    """rank: among those for heads of this size."""
    function = "attention" if role == "tile" else "split"
    tile = {"q": blocks.rows, "k": blocks.keys, "v": head}
    return Kernel(
        f"attention_{dtype}_{head}{suffix}", "Attention", role, function, {"dtype": dtype, "mask": mask}, _types(dtype, mask), constants,
        tile, conditions, 10 * head + rank, blocks.warps, blocks.stages, busy,
    )  # fmt: skip


def _of_any_head(dtype: str, mask: str, *, is_aligned: bool) -> Kernel:
    """Heads of any size, some columns at a time: `_large` where operands are aligned, `_any` takes everything, however it lies."""
    sizes = {"ROWS": 32, "KEYS": 32, "SIZE": 32, "VALUES": 64 if dtype != "float" else 32}
    if is_aligned:
        rows = 64 if dtype != "float" else 32 if mask == "none" else 16
        sizes = {"ROWS": rows, "KEYS": 32, "SIZE": 32 if dtype == "float" else 64, "VALUES": 256}
    constants = {**sizes, **_mask(mask, rows=True), "GENERAL": True, "SINK": True, "CHUNKED": True, "PADDED": True}
    lying = tuple(Condition(name, align=16 // BYTES[dtype]) for name in ("head_size", "value_size")) + _lying(dtype) if is_aligned else ()
    kind = "large" if is_aligned else "any"
    warps = 8 if is_aligned or (dtype != "float" and mask == "none") else 4  # so that nothing is spilled
    return Kernel(
        f"attention_{dtype}_{kind}{'' if mask == 'none' else f'_{mask}'}", "Attention", "tile", "attention",
        {"dtype": dtype, "mask": mask}, _types(dtype, mask), {**constants, "k_column": 1} if is_aligned else constants,
        {"q": sizes["ROWS"], "k": sizes["KEYS"], "v": sizes["VALUES"], "size": sizes["SIZE"]}, lying,
        rank=10 * LARGEST + (8 if is_aligned else 9), warps=warps, stages=2 if is_aligned else 1,
    )  # fmt: skip


def _split(dtype: str, mask: str, head: int) -> Kernel:
    """Few queries against some of the keys."""
    keys = min(64, 2048 // head) if dtype == "float" else {32: 32, 256: 16}.get(head, 64)
    blocks = Blocks(rows=16, keys=keys, warps=4, stages=2)
    every = {**_sizes(blocks, head), **_mask(mask, rows=True)}
    constants = {name: value for name, value in every.items() if name not in ("CHUNKED", "MASK_ROWS")}
    suffix = f"_split{'' if mask == 'none' else f'_{mask}'}"
    conditions = (*_up_to(dtype, head), *_lying(dtype, "qkv"))
    return _tile(suffix, dtype, mask, head, blocks, constants, conditions, rank=0, role="split")


def _combine(dtype: str) -> Kernel:
    types = {**_types(dtype, "none"), "partial": "*fp32", "stats": "*fp32"}
    constants = {"SPLITS": MOST_SPLITS, "VALUES": LARGEST}
    conditions = Condition("value_size", max=LARGEST), Condition("splits", max=MOST_SPLITS)
    return Kernel(f"attention_{dtype}_combine", "Attention", "combine", "combine", {"dtype": dtype}, types, constants, {}, conditions)


def _joins(dtype: str) -> Iterator[Kernel]:
    """With vectors where rows allow it, with neighbouring rows side by side, and for everything."""
    types = {**_types(dtype, "none"), **dict.fromkeys(("past", "fresh", "present"), POINTER_TYPES[dtype])}
    lanes = 16 // BYTES[dtype]
    kept = (Condition("present", align=16), Condition("past", align=16), Condition("size", align=lanes))
    along = (Condition("fresh", align=16), *(Condition(f"fresh_{axis}", align=lanes) for axis in ("batch", "head", "row")))
    forms: tuple[tuple[str, dict[str, int], tuple[Condition, ...]], ...] = (
        ("join", {"fresh_column": 1, "ROWS": 16, "COLUMNS": 128}, (*kept, *along, Condition("fresh_column", equals=1))),
        ("join_turned", {"fresh_row": 1, "ROWS": 64, "COLUMNS": 64}, (*kept, Condition("fresh_row", equals=1))),
        ("join_any", {"ROWS": 16, "COLUMNS": 128}, ()),
    )
    for rank, (name, constants, conditions) in enumerate(forms):
        full, tile = f"attention_{dtype}_{name}", {"rows": constants["ROWS"]}
        yield Kernel(full, "Attention", "join", "join", {"dtype": dtype}, types, constants, tile, conditions, rank)


def _types(dtype: str, mask: str) -> dict[str, str]:
    """Those of all arguments that a kernel may have."""
    types = dict.fromkeys((*POINTERS, "sink"), POINTER_TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32")
    types |= dict.fromkeys(("scale", "softcap", "mask_value"), "fp32") | dict.fromkeys(("partial", "stats"), "*fp32")
    return types if mask == "none" else types | {"mask": POINTER_TYPES[mask]}


def _sizes(blocks: Blocks, head: int) -> dict[str, Any]:
    return {"ROWS": blocks.rows, "KEYS": blocks.keys, "SIZE": head, "VALUES": head, "CHUNKED": False, "k_column": 1}


def _mask(mask: str, *, rows: bool) -> dict[str, Any]:
    return dict(UNMASKED) if mask == "none" else {"MASK": 1 if mask == "bool" else 2, "MASK_ROWS": rows}


def _simple() -> tuple[Condition, ...]:
    return Condition("softcap", equals=0), Condition("left", min=UNLIMITED)


def _up_to(dtype: str, head: int) -> tuple[Condition, ...]:
    return tuple(Condition(name, max=head, align=16 // BYTES[dtype]) for name in ("head_size", "value_size"))


def _lying(dtype: str, names: Sequence[str] = POINTERS) -> tuple[Condition, ...]:
    strides = (f"{name}_{axis}" for name in names for axis in ("batch", "head", "row"))
    return (Condition("k_column", equals=1), *_aligned(dtype, *names, *strides))


def _aligned(dtype: str, *names: str) -> tuple[Condition, ...]:
    """To 16 bytes, which one thread loads at a time."""
    return tuple(
        Condition(name, align=16)
        if name in (*POINTERS, "mask")
        else Condition(name, align=16 // BYTES[dtype], max=FARTHEST if name.endswith("_row") else None)
        for name in names
    )


def _blocks(arch: int, dtype: str, head: int, *, kind: str) -> Blocks:
    """The largest that keep all in registers (`onnxfuse kernels check`).

    kind: "plain", "padded", "general"; with a mask "keys", "rows", "general mask".
    """
    if dtype == "float":  # three products for one, and parts of all operands
        keys = 16 if kind == "general mask" and head == 64 else 32
        return Blocks(32, keys, 4, 2) if head < 128 else Blocks(16, 16, 4, 2)
    if kind == "general mask" and head != 128:
        return Blocks(64, 32, 4, 2) if head < 128 else Blocks(64, 32 if arch in WIDE else 16, 8, 2)
    if head == 256:
        has_room = kind == "plain" and arch not in SMALL
        return Blocks(64, 64 if has_room else 32, 8, 2)
    if head == 128 and kind == "general mask":
        return Blocks(64, 32, 8, 2)
    if head == 128:
        return Blocks(128, 64 if kind in ("plain", "padded") or arch in WIDE else 32, 8, 2)
    if kind == "plain" or (kind == "padded" and arch == 90):
        return Blocks(128, 64, 8 if arch in FAST else 4, 3)
    return Blocks(64, 64, 4, 3 if kind == "padded" else 2)
