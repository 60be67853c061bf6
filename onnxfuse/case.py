"""A use of an op that its tests run. `custom_ops/<op>/cases.py` lists them: CASES, and REFUSED for those that must fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

import numpy as np

from onnxfuse.op import Attribute

# Empty, one, a prime, one below and one above every vector width, and rows of several vectors.
AWKWARD: tuple[tuple[int, ...], ...] = (
    *((0,), (1,), (7,), (16,), (3, 0), (0, 5), (1, 1), (5, 3), (5, 15), (2, 3, 16)),
    *((2, 17), (3, 31), (2, 2, 33), (13, 127), (3, 1024), (2, 4099)),
)

Values = Callable[[np.random.Generator, Mapping[str, tuple[int, ...]]], Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """Inputs by formal name (an absent name is an input not given), and the attributes that are written on the node.

    types: of type variables other than T, by name; T itself runs over the types of the op.
    outputs: those that the node has; None stands for all.
    values: arrays for some inputs, from a random generator and the shapes; the rest are standard normal (floats),
    coins (bool) or zeros (integers).
    """

    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    values: Values | None = None

    def __str__(self) -> str:
        shapes = " ".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in self.shapes.items())
        rest = [f"{key}={value}" for key, value in (*self.attributes.items(), *self.types.items())]
        return " ".join([shapes, *rest, *(self.outputs or ())])


@dataclass(frozen=True)
class Refusal:
    """A case that ONNX Runtime must refuse with an error; `says` is part of its text. `attributes` may have any value."""

    says: str
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.says


def given(shapes: Mapping[str, tuple[int, ...]], optional: Sequence[str], names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`shapes` without those of `optional` that are not in `names`."""
    return {name: shape for name, shape in shapes.items() if name not in optional or name in names}


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Every choice of the names, from none to all."""
    return list(chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)))
