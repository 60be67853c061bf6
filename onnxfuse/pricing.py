"""What recipes cost on a device, once each symbolic dim is a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from onnxfuse.cost import count
from onnxfuse.cost.model import MARGIN, Model, Price, Work, fuse
from onnxfuse.cost.runtime import merged
from onnxfuse.cost.types import BITS
from onnxfuse.errors import ShapeError, UsageError
from onnxfuse.graph import Graph, Node
from onnxfuse.op import TYPE_NAMES
from onnxfuse.recipe import Fusion, Kernel, Recipe, Recipes, Tensor
from onnxfuse.symbolic import Dim, broadcasts, substitute

Shape = tuple[int, ...]


@dataclass
class Pricer:
    """Prices the recipes of one graph at `sizes`, a number for each symbolic dim."""

    model: Model
    sizes: Mapping[str, int]
    _works: dict[Kernel, Work | None] = field(default_factory=dict)
    _prices: dict[Recipe, Price] = field(default_factory=dict)
    _times: dict[Recipe, tuple[float, float]] = field(default_factory=dict)
    _dims: dict[Dim, int] = field(default_factory=dict)

    def price(self, recipe: Recipe) -> Price:
        """Predicted times, bytes and launches of the nodes that vanish against those that come and those that stay."""
        if recipe not in self._prices:
            left = self.works(recipe.left)
            self._prices[recipe] = self.model.price(self.works(recipe.before), self.after(recipe), left=left)
        return self._prices[recipe]

    def times(self, recipe: Recipe) -> tuple[float, float]:
        """Predicted microseconds before and after."""
        if recipe not in self._times:
            left = self.works(recipe.left)
            self._times[recipe] = self.model.before_and_after_us(self.works(recipe.before), self.after(recipe), left=left)
        return self._times[recipe]

    def gain_us(self, recipe: Recipe) -> float:
        """What is saved beyond the model's error: above 0 where it pays."""
        unfused, fused = self.times(recipe)
        return unfused - fused - MARGIN * unfused

    def after(self, recipe: Recipe) -> list[Work]:
        """The kernels that come, in the order they run in."""
        return [*self.works(recipe.helpers), self._fused(recipe.fused, recipe.parts), *self.works(recipe.steps)]

    def works(self, kernels: Iterable[Kernel]) -> list[Work]:
        """Counts of these kernels, without those whose shapes are not known."""
        return [work for kernel in kernels if (work := self.work(kernel)) is not None]

    def work(self, kernel: Kernel) -> Work | None:
        """Counts of one kernel; None when its shapes are not known."""
        if kernel not in self._works:
            self._works[kernel] = self._count(kernel)
        return self._works[kernel]

    def bytes(self, tensor: Tensor) -> int:
        """Bytes of a tensor; 0 when its shape is not known."""
        shape = self._shape(tensor)
        return 0 if shape is None else prod(shape) * BITS.get(TYPE_NAMES.get(tensor.dtype, "float"), 32) // 8

    def merged(self, graph: Graph, recipes: Recipes) -> Iterator[frozenset[Node]]:
        """Groups of nodes that the runtime makes one kernel of without our doing."""
        nodes = [n for n in recipes.order(graph) if (kernel := recipes.node(n)) is not None and self.work(kernel) is not None]
        works = self.works(kernel for n in nodes if (kernel := recipes.node(n)) is not None)
        for _, places in merged(works) if self.model.runtime_fuses else ():
            if len(places) > 1:
                yield frozenset(nodes[place] for place in places)

    def _count(self, kernel: Kernel) -> Work | None:
        inputs, outputs = ([self._shape(t) for t in side] for side in (kernel.inputs, kernel.outputs))
        types = [t.dtype if t is not None else None for t in (*kernel.inputs, *kernel.outputs)]
        try:
            made = count.work(kernel.op, inputs, outputs, types, kernel.attributes, domain=kernel.domain, values=kernel.values)
            return made if kernel.readers == 1 else replace(made, readers=kernel.readers)
        except (ShapeError, UsageError):
            return None

    def _fused(self, fusion: Fusion, parts: Iterable[Kernel]) -> Work:
        counted = self.work(fusion.counted) if fusion.counted is not None else None
        if counted is not None:
            return self.model.with_compiled(replace(counted, fused=fusion.own, name=fusion.name))
        made = fuse(
            fusion.name,
            self.works(parts) or [self._plain(fusion)],
            bytes_read=sum(map(self.bytes, fusion.read)),
            bytes_written=sum(map(self.bytes, fusion.written)),
            operands=fusion.operands,
            kind="attention" if fusion.is_attention else None,
        )
        return self.model.with_compiled(replace(made, fused=fusion.own))

    def _plain(self, fusion: Fusion) -> Work:
        """The operator where nothing is known of what it replaces."""
        shapes = [[self._shape(t) for t in side] for side in (fusion.read, fusion.written)]
        return count.work(fusion.name, shapes[0], shapes[1], [t.dtype for t in (*fusion.read, *fusion.written)])

    def _shape(self, tensor: Tensor | None) -> Shape | None:
        return None if tensor is None or tensor.shape is None else tuple(map(self._size, tensor.shape))

    def _size(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        if dim not in self._dims:
            self._dims[dim] = self._number(dim)
        return self._dims[dim]

    def _number(self, dim: Dim) -> int:
        try:
            number = substitute(dim, self.sizes)
        except ShapeError:  # sizes of this place that do not go together: any one of them will do
            number = max((self._size(d) for pair in broadcasts(dim) for d in pair), default=1)
        return max(number, 0) if isinstance(number, int) else 1
