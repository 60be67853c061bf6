"""Models that spell one thing in random ways: what a family is called, its rule, and how to write one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnxfuse.spelling import Draft, Shape, Tensor, slice_of

OPSETS = (11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 23, 24)
EPSILONS = (1e-3, 1e-5, 1e-6)


@dataclass(frozen=True)
class Family:
    rule: str
    op: str
    write: Callable[[Draft, str], list[Tensor]]


def spell(family: str, number: int, kind: str = "") -> onnx.ModelProto:
    """The model of that number: the same each time. kind: its type; of one in four it is float16 if none is given."""
    rng = random.Random(f"{family} {number}")
    made = Draft(rng, opset=rng.choice(OPSETS), noise=rng.choice([0.0, 0.08, 0.2]), is_static=rng.random() < 0.7)
    drawn = rng.choice(["float", "float", "float", "float16"])
    return made.model(FAMILIES[family].write(made, kind or drawn))


def vector(d: Draft, size: int, kind: str, *, flat: bool = False) -> Tensor:
    """A weight whose numbers are neither 0 nor 1; sometimes with an axis of size 1 in front."""
    values = np.random.default_rng(len(d.nodes) + len(d.weights)).uniform(0.5, 1.5, size)
    return d.weight(values.reshape((1,) * (0 if flat else d.rng.choice([0, 0, 0, 1])) + (size,)), kind)


def tensor(d: Draft, name: str, kind: str, last: int = 8) -> Tensor:
    shape = (*(d.rng.choice([1, 2, 3, 5]) for _ in range(d.rng.choice([1, 2, 3]))), last)
    return d.input(name, shape, kind, () if d.is_static else [f"n{i}" if d.rng.random() < 0.7 else None for i in range(len(shape) - 1)])


def like(d: Draft, name: str, other: Tensor) -> Tensor:
    """An input of the same shape, by the same symbols."""
    info = next(i for i in d.inputs if i.name == other.name)
    dims = [dim.dim_param or None for dim in info.type.tensor_type.shape.dim]
    return d.input(name, other.shape, other.kind, dims)


def projected(d: Draft, x: Tensor, columns: int) -> Tensor:
    weight = np.random.default_rng(len(d.nodes)).normal(size=(x.shape[-1], columns)) / 3
    return d.node("MatMul", [x, d.weight(weight, x.kind)], (*x.shape[:-1], columns))


def combined(d: Draft, kind: str) -> Tensor:
    """What activations and norms are applied to: sums, differences and multiples, whose own factors must not get in the way."""
    a = tensor(d, "a", kind)
    form = d.rng.randrange(8)
    if form < 3:
        return d.apply("Neg", [a]) if form == 0 else d.times([(1, a)], (0.5, 3.0)[form - 1])
    if form == 3:
        return d.apply("Tanh", [a])
    b = like(d, "b", a)
    weighted = d.times([(1, b)], 0.5)
    return d.total([[(1, a), (-1, b)], [(-1, a), (1, b)], [(1, a), (1, weighted)], [(1, weighted), (-1, a)]][form - 4])


# ---- activations and norms


def _gelu(approximate: str) -> Callable[[Draft, str], list[Tensor]]:
    def write(d: Draft, kind: str) -> list[Tensor]:
        d.opset = min(d.opset, 19)  # one Gelu operator alone is not given another name
        return [d.apply("Gelu", [combined(d, kind)], {"approximate": approximate})]

    return write


def _bias_gelu(d: Draft, kind: str) -> list[Tensor]:
    total = d.apply("Add", [tensor(d, "x", kind), vector(d, 8, kind, flat=True)])
    return [d.apply("Gelu", [total], {"approximate": d.rng.choice(["none", "tanh"])})]


def _silu(d: Draft, kind: str) -> list[Tensor]:
    return [d.apply("Swish", [combined(d, kind)], {"alpha": d.rng.choice([1.0, 1.702])})]


def _gated(op: str, **attributes: object) -> Callable[[Draft, str], list[Tensor]]:
    def write(d: Draft, kind: str) -> list[Tensor]:
        gate, up = d.rng.choice([_two_inputs, _two_projections, _split, _sliced])(d, kind)
        bent = d.apply(op, [gate], attributes or {"alpha": 1.0})
        return [d.apply("Mul", [bent, up])]

    return write


def _two_inputs(d: Draft, kind: str) -> Sequence[Tensor]:
    gate = tensor(d, "gate", kind)
    return gate, like(d, "up", gate)


def _two_projections(d: Draft, kind: str) -> Sequence[Tensor]:
    x = tensor(d, "x", kind)
    return projected(d, x, 6), projected(d, x, 6)


def _split(d: Draft, kind: str) -> Sequence[Tensor]:
    x = tensor(d, "x", kind)
    name, half = d.fresh("s"), (*x.shape[:-1], x.shape[-1] // 2)
    axis = d.rng.choice([-1, x.rank - 1])
    sizes = [d.ints([half[-1]] * 2).name] if d.opset >= 13 and d.rng.random() < 0.5 else []
    count = {"num_outputs": 2} if d.opset >= 18 and not sizes else {}
    d.nodes.append(onnx.helper.make_node("Split", [x.name, *sizes], [name, name + "b"], axis=axis, **count))
    parts = [Tensor(name, half, kind), Tensor(name + "b", half, kind)]
    return parts[:: d.rng.choice([1, -1])]


def _sliced(d: Draft, kind: str) -> Sequence[Tensor]:
    x = tensor(d, "x", kind)
    half = x.shape[-1] // 2
    parts = [slice_of(d, x, -1, 0, half), slice_of(d, x, -1, half, d.rng.choice([2 * half, 2**31 - 1, 2**63 - 1]))]
    return parts[:: d.rng.choice([1, -1])]


def _normed(d: Draft, op: str, x: Tensor) -> Tensor:
    result = d.apply(op, [x], {"axes": (-1,), "epsilon": d.rng.choice(EPSILONS)})
    if d.rng.random() < 0.7:
        result = d.apply("Mul", [result, vector(d, x.shape[-1], x.kind)])
        if op == "LayerNormalization" and d.rng.random() < 0.7:
            result = d.apply("Add", [result, vector(d, x.shape[-1], x.kind)])
    return result


def _norm(op: str) -> Callable[[Draft, str], list[Tensor]]:
    def write(d: Draft, kind: str) -> list[Tensor]:
        d.opset = min(d.opset, {"LayerNormalization": 16, "RMSNormalization": 22}[op])
        return [_normed(d, op, combined(d, kind))]

    return write


def _skip_norm(op: str) -> Callable[[Draft, str], list[Tensor]]:
    def write(d: Draft, kind: str) -> list[Tensor]:
        x = tensor(d, "x", kind)
        terms = [(1, x), (1, like(d, "skip", x))]
        if d.rng.random() < 0.4:
            terms.append((1, vector(d, x.shape[-1], kind, flat=True)))
        total = d.total(terms)
        made = [_normed(d, op, total)]
        return [*made, total] if d.rng.random() < 0.4 else made

    return write


def _rotary(d: Draft, kind: str) -> list[Tensor]:
    x = d.input("x", (2, 3, 5, 8), kind, () if d.is_static else ["b", "h", "s"])
    cos = d.input("cos", (5, 8), kind, () if d.is_static else ["s"])
    sin = d.input("sin", (5, 8), kind, () if d.is_static else ["s"])
    turned = d.apply("RotateHalf", [x])
    return [d.total([(1, d.apply("Mul", [x, cos])), (1, d.apply("Mul", [turned, sin]))])]


# ---- attention

B, H, S, T, D, E = 2, 4, 3, 5, 6, 4  # batch, heads, queries, keys, size of a head of q and k, and of v


def _attention(d: Draft, kind: str) -> list[Tensor]:
    grouped = d.is_static and d.rng.random() < 0.25
    source = d.rng.choice([_heads_given, _heads_split, _heads_projected])
    q, k, v = source(d, kind, 2 if grouped else H)
    if grouped:
        k, v = _repeated(d, k), _repeated(d, v)
    scores, factor = _scores(d, q, k)
    if factor != 1:
        scores = d.times([(1, scores)], factor)
    masked = _masked(d, scores)
    weights = _softmax(d, masked)
    result = d.node("MatMul", [weights, v], (B, H, S, v.shape[-1]))
    return [_merged(d, result) if d.rng.random() < 0.6 else result]


def _symbols(d: Draft, *names: str | None) -> Sequence[str | None]:
    return () if d.is_static else names


def _heads_given(d: Draft, kind: str, kv: int) -> tuple[Tensor, Tensor, Tensor]:
    q = d.input("q", (B, H, S, D), kind, _symbols(d, "b", None, "s"))
    k = d.input("k", (B, kv, T, D), kind, _symbols(d, "b", None, "t"))
    return q, k, d.input("v", (B, kv, T, E), kind, _symbols(d, "b", None, "t"))


def _heads_split(d: Draft, kind: str, kv: int) -> tuple[Tensor, Tensor, Tensor]:
    q = d.input("q", (B, S, H * D), kind, _symbols(d, "b", "s"))
    k = d.input("k", (B, T, kv * D), kind, _symbols(d, "b", "t"))
    v = d.input("v", (B, T, kv * E), kind, _symbols(d, "b", "t"))
    return _parted(d, q, H), _parted(d, k, kv), _parted(d, v, kv)


def _heads_projected(d: Draft, kind: str, kv: int) -> tuple[Tensor, Tensor, Tensor]:
    x = d.input("x", (B, S, 8), kind, _symbols(d, "b", "s"))
    z = d.input("z", (B, T, 8), kind, _symbols(d, "b", "t"))
    parts = []
    for source, columns, heads in ((x, H * D, H), (z, kv * D, kv), (z, kv * E, kv)):
        made = projected(d, source, columns)
        if d.rng.random() < 0.6:
            made = d.apply("Add", [made, vector(d, columns, kind)])
        parts.append(_parted(d, made, heads))
    q, k, v = parts
    return q, k, v


def _parted(d: Draft, x: Tensor, heads: int) -> Tensor:
    """[batch, seq, heads*size] as [batch, heads, seq, size]."""
    batch, seq, row = x.shape
    size = row // heads
    target = d.rng.choice([(0, 0, heads, size), (0, -1, heads, size), (0, 0, heads, -1)])
    apart = d.node("Reshape", [x, d.ints(target)], (batch, seq, heads, size))
    return d.disturbed(d.transpose(apart, (0, 2, 1, 3)))


def _repeated(d: Draft, x: Tensor) -> Tensor:
    """Each head twice, in place."""
    batch, heads, seq, size = x.shape
    apart = d.squeeze(x, [2], (batch, heads, 1, seq, size), "Unsqueeze")
    many = (batch, heads, H // heads, seq, size)
    return d.reshape(d.node("Expand", [apart, d.ints(many)], many), (batch, H, seq, size))


def _scores(d: Draft, q: Tensor, k: Tensor) -> tuple[Tensor, float]:
    """q k' and the factor that is still to come: the scale may be on either side, or on both."""
    scale = d.rng.choice([1 / math.sqrt(D), 0.5, 1.0])
    form = d.rng.randrange(4)
    if form == 1:
        q, scale = d.times([(1, q)], scale), 1.0
    elif form == 2:
        q, k, scale = d.times([(1, q)], math.sqrt(scale)), d.times([(1, k)], math.sqrt(scale)), 1.0
    turned = d.transpose(k, (0, 1, 3, 2))
    if form == 3:
        turned, scale = d.times([(1, turned)], scale), 1.0
    return d.disturbed(d.node("MatMul", [q, turned], (B, H, S, T))), scale


def _masked(d: Draft, scores: Tensor) -> Tensor:
    form = d.rng.randrange(6)
    if form == 0:
        return scores
    shape, names = d.rng.choice([((B, 1, S, T), ("b", None, "s", "t")), ((B, 1, 1, T), ("b", None, None, "t")), ((S, T), ("s", "t"))])
    if form == 1:
        return d.apply("Add", [scores, d.input("mask", shape, scores.kind, _symbols(d, *names))])
    if form == 2:
        low = d.number(d.rng.choice([-math.inf, -1e4, float(np.finfo(scores.kind).min)]), scores)
        return d.apply("Where", [d.input("keep", shape, "bool", _symbols(d, *names)), scores, low])
    if form == 3:
        low = d.number(-1e4, scores)
        return d.apply("Where", [d.input("drop", shape, "bool", _symbols(d, *names)), low, scores])
    if form == 4:  # (1 - mask) * low
        given = d.cast(d.input("keep", shape, "bool", _symbols(d, *names)), scores.kind)
        return d.total([(1, scores), (1, d.times([(1, d.total([(1, d.number(1.0, given)), (-1, given)]))], -1e4))])
    if not d.is_static:
        return scores
    causal = np.where(np.tril(np.ones((S, T)), T - S) > 0, 0.0, -np.inf)
    return d.apply("Add", [scores, d.weight(causal.reshape((1,) * d.rng.choice([0, 1, 2]) + (S, T)), scores.kind)])


def _softmax(d: Draft, scores: Tensor) -> Tensor:
    weights = d.apply("Softmax", [scores], {"axis": -1})
    if d.rng.random() < 0.2:
        weights = d.node("Dropout", [weights])
    return d.apply("NanToZero", [weights]) if d.rng.random() < 0.15 else weights


def _merged(d: Draft, x: Tensor) -> Tensor:
    batch, heads, seq, size = x.shape
    together = d.transpose(x, (0, 2, 1, 3))
    target = d.rng.choice([(0, 0, heads * size), (0, -1, heads * size), (0, 0, -1)])
    return d.node("Reshape", [together, d.ints(target)], (batch, seq, heads * size))


FAMILIES = {
    "gelu": Family("gelu", "Gelu", _gelu("none")),
    "gelu by tanh": Family("gelu", "Gelu", _gelu("tanh")),
    "bias gelu": Family("bias_gelu", "Gelu", _bias_gelu),
    "silu": Family("silu", "Silu", _silu),
    "swiglu": Family("swiglu", "SwiGLU", _gated("Swish")),
    "geglu": Family("geglu", "GeGLU", _gated("Gelu", approximate="none")),
    "geglu by tanh": Family("geglu", "GeGLU", _gated("Gelu", approximate="tanh")),
    "layer norm": Family("layer_norm", "LayerNorm", _norm("LayerNormalization")),
    "rms norm": Family("rms_norm", "RMSNorm", _norm("RMSNormalization")),
    "skip layer norm": Family("skip_layer_norm", "SkipLayerNorm", _skip_norm("LayerNormalization")),
    "skip rms norm": Family("skip_rms_norm", "SkipRMSNorm", _skip_norm("RMSNormalization")),
    "rotary": Family("rotary_embedding", "RotaryEmbedding", _rotary),
    "attention": Family("attention", "Attention", _attention),
}
__all__ = ["FAMILIES", "Family", "Shape", "spell"]
