"""Attention as ONNX Runtime has it and as we have it, for ops.py: each form in the layout that it takes without a copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from timing import Feeds, parsed

LOWEST = -3.4e38
Form = tuple[onnx.ModelProto, Feeds]


@dataclass(frozen=True)
class Shape:
    """batch, heads, key heads, queries, keys, size of a head, and what is masked.

    masked: "" or "causal"; or a mask for all heads: "mask" (added, rows padded), "dense" (added, random), "bool".
    """

    b: int
    h: int
    k: int
    s: int
    t: int
    d: int
    masked: str = ""

    def __str__(self) -> str:
        heads = str(self.h) if self.h == self.k else f"{self.h}/{self.k}"
        return f"{self.b},{heads},{self.s},{self.t},{self.d} {self.masked}".strip()

    @property
    def flops(self) -> float:
        """Of the two products; what a diagonal hides is not counted."""
        pairs = self.s * (self.s + 1) / 2 if self.masked == "causal" else self.s * self.t
        return 4.0 * self.b * self.h * pairs * self.d

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return 4 * 2 * self.b * self.k * self.t * self.d

    @property
    def has_mask(self) -> bool:
        return self.masked in ("mask", "dense", "bool")


SHAPES = [
    Shape(1, 12, 12, 128, 128, 64),
    Shape(1, 12, 12, 512, 512, 64),
    Shape(1, 16, 16, 2048, 2048, 64),
    Shape(1, 32, 32, 1, 1024, 128),
    Shape(8, 32, 8, 1, 2048, 128),
    Shape(1, 4, 4, 1024, 1024, 64, "mask"),
    Shape(2, 12, 12, 77, 77, 64, "causal"),
    Shape(1, 8, 8, 4096, 4096, 40),
    Shape(1, 4, 4, 1024, 1024, 64, "dense"),
    Shape(1, 4, 4, 1024, 1024, 64, "bool"),
    Shape(1, 12, 12, 512, 512, 64, "causal"),
    Shape(1, 12, 12, 1024, 1024, 64, "causal"),
    Shape(1, 12, 12, 512, 512, 64, "mask"),
]


def operands(shape: Shape) -> Feeds:
    """q, k, v as [batch, heads, seq, size], and the mask [batch, 1, S, T]; a causal one as floats for who has no attribute."""
    rng = np.random.default_rng(0)
    sizes = {"q": (shape.h, shape.s), "k": (shape.k, shape.t), "v": (shape.k, shape.t)}
    feeds = {name: rng.standard_normal((shape.b, *size, shape.d), dtype=np.float32) for name, size in sizes.items()}
    if shape.masked == "dense":
        feeds["mask"] = rng.standard_normal((shape.b, 1, shape.s, shape.t), dtype=np.float32)
    elif shape.masked:
        full = (shape.b, 1, shape.s, shape.t)
        padded = np.arange(shape.t) < rng.integers(shape.t // 2, shape.t, (shape.s, 1))
        keep = np.broadcast_to(np.tri(shape.s, shape.t) > 0 if shape.masked == "causal" else padded, full)
        feeds["mask"] = keep.copy() if shape.masked == "bool" else np.where(keep, 0, LOWEST).astype(np.float32)
    return feeds


def _in_rows(x: np.ndarray) -> np.ndarray:
    """[batch, seq, heads * size]."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def _unfused(shape: Shape, feeds: Feeds) -> Form:
    """As exporters write it: keys and values of grouped heads repeated, the mask added or chosen by."""
    body = "kr = Identity(k) vr = Identity(v)"
    if shape.h != shape.k:
        group, last = shape.h // shape.k, f"{shape.t}, {shape.d}"
        body = f"one = Constant <value = int64[1] {{2}}> () wide = Constant <value = int64[5] {{{shape.b}, {shape.k}, {group}, {last}}}> ()"
        body += f" four = Constant <value = int64[4] {{{shape.b}, {shape.h}, {last}}}> ()"
        for x in "kv":
            body += f" {x}5 = Unsqueeze({x}, one) {x}e = Expand({x}5, wide) {x}r = Reshape({x}e, four)"
    body += f" kt = Transpose <perm = [0, 1, 3, 2]> (kr) s = MatMul(q, kt) c = Constant <value = float {{{shape.d**-0.5}}}> ()"
    body += " sc = Mul(s, c)"
    if shape.masked == "bool":
        body += f" low = Constant <value = float {{{LOWEST}}}> () sm = Where(mask, sc, low)"
    elif shape.masked:
        body += " sm = Add(sc, mask)"
    return parsed(body + f" p = Softmax <axis = -1> ({'sm' if shape.masked else 'sc'}) y = MatMul(p, vr)", feeds), feeds


def _contrib(shape: Shape, feeds: Feeds) -> Form | None:
    """MultiHeadAttention, or for grouped heads without a mask GroupQueryAttention over a past of T - S."""
    if shape.h != shape.k:
        return _grouped(shape, feeds) if shape.s == 1 and not shape.masked else None
    if shape.masked == "bool":
        return None
    rows = {name: _in_rows(x) for name, x in feeds.items() if name != "mask"}
    causal = ", unidirectional = 1" if shape.masked == "causal" else ""
    if shape.has_mask:
        rows["mask"] = feeds["mask"]
    given = "q, k, v, , , mask" if shape.has_mask else "q, k, v"
    return parsed(f"y = com.microsoft.MultiHeadAttention <num_heads = {shape.h}{causal}> ({given})", rows), rows


def _grouped(shape: Shape, feeds: Feeds) -> Form:
    rows = {name: _in_rows(feeds[name][:, :, -shape.s :]) for name in "qkv"}
    past = {f"past_{name}": np.ascontiguousarray(feeds[name][:, :, : -shape.s]) for name in "kv"}
    length = {"seqlens": np.full(shape.b, shape.t - 1, np.int32), "total": np.array([shape.t], np.int32)}
    heads = f"num_heads = {shape.h}, kv_num_heads = {shape.k}"
    body = f"y, pk, pv = com.microsoft.GroupQueryAttention <{heads}> (q, k, v, past_k, past_v, seqlens, total)"
    fed = {**rows, **past, **length}
    return parsed(body, fed), fed


def _standard(shape: Shape, feeds: Feeds) -> Form:
    """Attention of opset 23."""
    given = {name: x for name, x in feeds.items() if name != "mask" or shape.has_mask}
    causal = "<is_causal = 1>" if shape.masked == "causal" else ""
    return parsed(f"y = Attention {causal} ({', '.join(given)})", given, opset=23), given


def _ours(shape: Shape, feeds: Feeds) -> Form:
    """The op that a rule would make: a causal mask is an attribute."""
    given = {name: x for name, x in feeds.items() if name != "mask" or shape.has_mask}
    attributes = "<causal = 1>" if shape.masked == "causal" else f"<mask_value = {LOWEST}>" if shape.masked == "bool" else ""
    return parsed(f"y = ai.onnxfuse.Attention {attributes} ({', '.join(given)})", given), given


FORMS = {"unfused": _unfused, "contrib": _contrib, "standard": _standard, "ours": _ours}


def by_heads(y: np.ndarray, shape: Shape) -> np.ndarray:
    """A result as [batch, heads, seq, size], whichever of the layouts a form gives."""
    return y if y.ndim == 4 else y.reshape(shape.b, shape.s, shape.h, -1).transpose(0, 2, 1, 3)
