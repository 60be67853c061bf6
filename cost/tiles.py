"""Tile and fuse: a tile of the consumer that a memory level holds, and which producers fit into it.

A tile is a box in the consumer's iteration space. Each buffer spans some of its axes; a producer that reads a window
needs a halo around the box, and computes it again for every tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from onnxfuse.cost.device import Cpu, Device, Gpu
from onnxfuse.errors import UsageError

CACHE_SHARE = 0.5  # the part of a cache that one kernel can count on


@dataclass(frozen=True)
class Buffer:
    """A tensor that a kernel holds a slice of. axes: which axes of the tile it spans; halo: how much wider, for each axis.

    stages: copies in flight (2 for double buffering).
    """

    name: str
    axes: tuple[int, ...]
    element_bytes: int
    halo: Mapping[int, int] | None = None
    stages: int = 1

    def bytes(self, tile: Sequence[int]) -> int:
        """Bytes of the slice for a tile of those sizes."""
        halo = self.halo or {}
        return self.stages * self.element_bytes * prod(tile[axis] + halo.get(axis, 0) for axis in self.axes)

    def recompute(self, tile: Sequence[int]) -> float:
        """How often each element is made, over all tiles: 1 without a halo."""
        halo = self.halo or {}
        return prod((tile[axis] + halo.get(axis, 0)) / tile[axis] for axis in self.axes if tile[axis])


@dataclass(frozen=True)
class Tile:
    """A box that fits: its sizes, the bytes of all its slices, and what it was held against."""

    sizes: tuple[int, ...]
    bytes: int
    capacity: int

    @property
    def utilisation(self) -> float:
        """The part of the capacity that is used."""
        return self.bytes / self.capacity


@dataclass(frozen=True)
class TileFusion:
    """The consumer's tile, the producers that fit into it, and why the others do not."""

    tile: Tile
    fused: tuple[str, ...]
    refused: Mapping[str, str]
    recompute: float  # of the producer that is computed most often


def onchip_bytes(device: Device) -> int:
    """The memory level that a tile is cut for: shared memory of a block, or half of a core's own last cache."""
    if isinstance(device, Gpu):
        return device.smem_per_block
    return int(CACHE_SHARE * _own_cache(device))


def choose_tile(extent: Sequence[int], buffers: Sequence[Buffer], capacity: int, *, whole: Sequence[int] = ()) -> Tile | None:
    """The largest tile of the iteration space `extent` whose slices all fit, found by halving its longest axis.

    whole: axes that a tile may not cut, such as the one that is reduced. None when not even the smallest tile fits.
    Raises UsageError for an axis that is not there.
    """
    _check(extent, buffers, whole)
    sizes = [max(1, size) for size in extent]
    free = [axis for axis in range(len(sizes)) if axis not in whole]
    while (used := sum(buffer.bytes(sizes) for buffer in buffers)) > capacity:
        longest = max(free, key=lambda axis: sizes[axis], default=None)
        if longest is None or sizes[longest] == 1:
            return None
        sizes[longest] = -(-sizes[longest] // 2)
    return Tile(tuple(sizes), used, capacity)


def tile_and_fuse(
    extent: Sequence[int],
    consumer: Sequence[Buffer],
    producers: Mapping[str, Sequence[Buffer]],
    capacity: int,
    *,
    whole: Sequence[int] = (),
    most_recompute: float = 1.5,
) -> TileFusion | None:
    """Cut the consumer for the memory level, then ask of each producer in turn whether its slices fit beside what is there.

    most_recompute: a producer that would be computed more often than this is refused. None when the consumer itself
    does not fit.
    """
    tile = choose_tile(extent, consumer, capacity, whole=whole)
    if tile is None:
        return None
    used, fused, refused, worst = tile.bytes, [], {}, 1.0
    for name, buffers in producers.items():
        _check(extent, buffers, whole)
        need = sum(buffer.bytes(tile.sizes) for buffer in buffers)
        again = max((buffer.recompute(tile.sizes) for buffer in buffers), default=1.0)
        if used + need > capacity:
            refused[name] = f"{name} needs {need} bytes beside {used} of {capacity}"
        elif again > most_recompute:
            refused[name] = f"{name} would be computed {again:.2f} times, more than {most_recompute}"
        else:
            used, worst = used + need, max(worst, again)
            fused.append(name)
    return TileFusion(Tile(tile.sizes, used, capacity), tuple(fused), refused, worst)


def _own_cache(cpu: Cpu) -> int:
    return max((cache.bytes for cache in cpu.caches if cache.shared_by <= 2), default=cpu.caches[0].bytes)


def _check(extent: Sequence[int], buffers: Sequence[Buffer], whole: Sequence[int]) -> None:
    named = {axis for buffer in buffers for axis in buffer.axes} | set(whole)
    if bad := sorted(axis for axis in named if not 0 <= axis < len(extent)):
        raise UsageError(f"tile: axes must lie in 0..{len(extent) - 1}; got {bad}")
