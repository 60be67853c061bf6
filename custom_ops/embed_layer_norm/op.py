"""EmbedLayerNorm: layer_norm(table[ids] + table_2[ids_2] (+ table_3[ids_3])), with the sum as a second output.

Over the last axis; ids_2 and ids_3 broadcast to ids. An index below 0 counts from the end of its table, as in Gather.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference, unit_variance

FURTHER = (("ids_2", "table_2"), ("ids_3", "table_3"))


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    total = _rows(r, "ids", "table")
    for ids, table in FURTHER:
        if r.has(ids):
            total = r.op("Add", total, _rows(r, ids, table))
    y = unit_variance(r, total, float(instance.attributes["epsilon"]))
    if r.has("scale"):
        y = r.op("Mul", y, r.wide("scale"))
    if r.has("bias"):
        y = r.op("Add", y, r.wide("bias"))
    r.give("y", y)
    r.give("sum", total)
    return r.text


def _rows(r: Reference, ids: str, table: str) -> str:
    rows = r.op("Gather", table, ids)
    return rows if r.type == r.sum_type else r.cast(rows, r.sum_type)


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    ids = shapes["ids"]
    for name, table in FURTHER:
        if (name in shapes) != (table in shapes):
            return f"{name} and {table} must both be given, or neither"
        own = shapes.get(name, ())
        pairs = zip(reversed(own), reversed(ids), strict=False)
        if len(own) > len(ids) or any(isinstance(a, int) and isinstance(b, int) and a not in (1, b) for a, b in pairs):
            return f"{name} must broadcast to ids {show(ids)}; got {show(own)}"
    return None


EMBED_LAYER_NORM = Op(
    signature=(
        "EmbedLayerNorm(ids: I[...], table: T[v, n], ids_2: I, table_2: T[v2, n], ids_3: I?, table_3: T[v3, n]?, "
        "scale: T[n]?, bias: T[n]?) -> (y: T[..., n], sum: T[..., n]?)"
    ),
    types={"T": ("float", "float16", "bfloat16"), "I": ("int64", "int32")},
    attributes={"epsilon": 1e-5},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
