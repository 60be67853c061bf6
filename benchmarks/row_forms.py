"""Norms, activations, gates, rotations and embeddings as ONNX Runtime has them and as we have them, for ops.py.

A form is ONNX text over the row's inputs and weights: `unfused` as exporters spell it (ONNX Runtime may fuse what it
knows), `contrib` in com.microsoft, `standard` the op of ONNX, `ours`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from timing import Feeds

CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "six": 6.0,
    "zero": 0.0,
    "root2": math.sqrt(2),
    "cubic": 0.044715,
    "slope": math.sqrt(2 / math.pi),
    "eps": 1e-5,
    "tiny": 1e-12,
    "cap": 30.0,
    "eighth": 0.125,
}
OPSETS = {"unfused": 17, "contrib": 17, "standard": 23, "ours": 17}
ERF = "d = Div({x}, root2) e = Erf(d) o = Add(e, one) m = Mul({x}, o) {y} = Mul(m, half)"
TANH = (
    "c = Pow({x}, three) k = Mul(c, cubic) i = Add({x}, k) j = Mul(i, slope) t = Tanh(j) o = Add(t, one) m = Mul({x}, half) {y} = Mul(m, o)"
)
VARIANCE = "u = ReduceMean <axes = [-1]> ({x}) c = Sub({x}, u) p = Pow(c, two) v = ReduceMean <axes = [-1]> (p)"
LAYER = VARIANCE + " w = Add(v, eps) r = Sqrt(w) n = Div(c, r) s = Mul(n, scale) y = Add(s, bias)"
RMS = "p = Pow({x}, two) v = ReduceMean <axes = [-1]> (p) w = Add(v, eps) r = Sqrt(w) q = Reciprocal(r) n = Mul({x}, q) y = Mul(n, scale)"


@dataclass(frozen=True)
class Operation:
    """feeds, weights: made for `rows` rows of `cols`. outputs: which are written. forms: text by name.

    gathered: how many times the size of y is read from tables by index.
    """

    name: str
    forms: dict[str, str]
    feeds: Callable[[int, int], Feeds]
    weights: Callable[[int, int], Feeds] = lambda rows, cols: {}
    outputs: tuple[str, ...] = ("y",)
    opsets: dict[str, int] = field(default_factory=dict)
    gathered: int = 0

    def opset(self, form: str) -> int:
        return self.opsets.get(form, OPSETS[form])


def _array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _x(rows: int, cols: int) -> Feeds:
    return {"x": _array(1, rows, cols)}


def _x_skip(rows: int, cols: int) -> Feeds:
    return {"x": _array(1, rows, cols), "skip": _array(1, rows, cols, seed=1)}


def _gate_up(rows: int, cols: int) -> Feeds:
    return {"gate": _array(1, rows, cols), "up": _array(1, rows, cols, seed=1)}


def _packed(rows: int, cols: int) -> Feeds:
    return {"x": _array(1, rows, 2 * cols)}


def _affine(rows: int, cols: int) -> Feeds:
    return {"scale": _array(cols, seed=2), "bias": _array(cols, seed=3)}


def _bias(rows: int, cols: int) -> Feeds:
    return {"b": _array(cols, seed=3)}


def _image(rows: int, cols: int) -> Feeds:
    """[1, channels, height, width] of rows * cols elements: as many channels as a row has elements, up to 320."""
    channels = min(cols, 320) // 32 * 32
    return {"x": _array(1, channels, max(1, rows * cols // channels // 32), 32)}


def _by_channel(rows: int, cols: int) -> Feeds:
    channels = min(cols, 320) // 32 * 32
    groups = {"ones": np.ones(32, np.float32), "zeros": np.zeros(32, np.float32), "grouped": np.array([0, 32, -1])}
    shape = np.array(_image(rows, cols)["x"].shape)
    return {"scale": _array(channels, 1, 1, seed=2), "bias": _array(channels, 1, 1, seed=3), **groups, "shape": shape}


def _channels(rows: int, cols: int) -> Feeds:
    flat = _by_channel(rows, cols)
    return {name: flat[name].reshape(-1) for name in ("scale", "bias")}


def _gated_image(rows: int, cols: int) -> Feeds:
    x = _image(rows, cols)["x"]
    return {"x": x, "g": _array(1, x.shape[1], 1, 1, seed=1)}


def _scores(rows: int, cols: int) -> Feeds:
    heads = min(8, rows)
    mask = np.where(np.arange(cols) < cols * 3 // 4, 0, -3.4e38).astype(np.float32)
    return {"x": _array(1, heads, rows // heads, cols), "mask": np.broadcast_to(mask, (1, 1, rows // heads, cols)).copy()}


def _turned(rows: int, cols: int) -> Feeds:
    """Heads of 64, or of `cols` where it is less."""
    size = min(64, cols)
    heads = min(16, rows * cols // size)
    return {"x": _array(1, heads, rows * cols // size // heads, size)}


def _angles(rows: int, cols: int) -> Feeds:
    _, _, seq, size = _turned(rows, cols)["x"].shape
    angle = np.arange(seq)[:, None] / 10000 ** (np.arange(size // 2) / (size // 2))
    half = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    full = {f"{name}2": np.concatenate([x, x], -1)[None, None] for name, x in half.items()}
    batch = {f"{name}3": x[None] for name, x in half.items()}
    return {**half, **full, **batch, "start": np.zeros(1, np.int64), "halves": np.array([size // 2, size // 2])}


def _ids(rows: int, cols: int) -> Feeds:
    rng = np.random.default_rng(0)
    return {"ids": rng.integers(0, 8192, (1, rows)), "types": rng.integers(0, 2, (1, rows))}


def _tables(rows: int, cols: int) -> Feeds:
    return {
        "words": _array(8192, cols),
        "places": _array(rows, cols, seed=1),
        "kinds": _array(2, cols, seed=4),
        "at": np.arange(rows)[None],
        **_affine(rows, cols),
    }


def _halves(rows: int, cols: int) -> Feeds:
    return {"halves": np.array([cols, cols])}


SPLIT = "g, up = Split <axis = -1> (x, halves) "
SKIP = "s0 = Add(x, skip) "
GROUP = (
    "f = Reshape(x, grouped) n = InstanceNormalization <epsilon = 1e-5> (f, ones, zeros) h = Reshape(n, shape) "
    "m = Mul(h, scale) y = Add(m, bias)"
)
CHANNELS_LAST = (
    "t = Transpose <perm = [0, 2, 3, 1]> (x) n = LayerNormalization <epsilon = 1e-5> (t, scale, bias) "
    "y = Transpose <perm = [0, 3, 1, 2]> (n)"
)
TURN = "a = Mul(x, cos2) f, l = Split <axis = -1> (x, halves) n = Neg(l) r = Concat <axis = -1> (n, f) b = Mul(r, sin2) y = Add(a, b)"
EMBED = "g = Gather(words, ids) h = Gather(places, at) k = Gather(kinds, types) a = Add(g, k) b = Add(a, h) "

OPERATIONS = [
    Operation(
        "gelu",
        {
            "unfused": ERF.format(x="x", y="y"),
            "contrib": "y = com.microsoft.Gelu(x)",
            "standard": "y = Gelu(x)",
            "ours": "y = ai.onnxfuse.Gelu(x)",
        },
        _x,
    ),
    Operation(
        "bias + gelu",
        {
            "unfused": "z = Add(x, b) " + ERF.format(x="z", y="y"),
            "contrib": "y = com.microsoft.BiasGelu(x, b)",
            "standard": "z = Add(x, b) y = Gelu(z)",
            "ours": "y = ai.onnxfuse.Gelu(x, b)",
        },
        _x,
        _bias,
    ),
    Operation(
        "gelu tanh",
        {
            "unfused": TANH.format(x="x", y="y"),
            "contrib": "y = com.microsoft.FastGelu(x)",
            "standard": 'y = Gelu <approximate = "tanh"> (x)',
            "ours": 'y = ai.onnxfuse.Gelu <approximate = "tanh"> (x)',
        },
        _x,
    ),
    Operation(
        "silu",
        {
            "unfused": "s = Sigmoid(x) y = Mul(x, s)",
            "contrib": "y = com.microsoft.QuickGelu <alpha = 1.0> (x)",
            "standard": "y = Swish(x)",
            "ours": "y = ai.onnxfuse.Silu(x)",
        },
        _x,
        opsets={"standard": 24},
    ),
    Operation(
        "mish",
        {"unfused": "p = Softplus(x) t = Tanh(p) y = Mul(x, t)", "standard": "y = Mish(x)", "ours": "y = ai.onnxfuse.Mish(x)"},
        _x,
    ),
    Operation(
        "hard swish",
        {
            "unfused": "a = Add(x, three) c = Clip(a, zero, six) d = Div(c, six) y = Mul(x, d)",
            "standard": "y = HardSwish(x)",
            "ours": "y = ai.onnxfuse.HardSwish(x)",
        },
        _x,
    ),
    Operation("squared relu", {"unfused": "r = Relu(x) y = Mul(r, r)", "ours": "y = ai.onnxfuse.SquaredRelu(x)"}, _x),
    Operation(
        "scaled tanh",
        {
            "unfused": "d = Div(x, cap) t = Tanh(d) y = Mul(t, cap)",
            "ours": f"y = ai.onnxfuse.ScaledTanh <alpha = 30.0, beta = {1 / 30}> (x)",
        },
        _x,
    ),
    Operation(
        "swiglu",
        {
            "unfused": "s = Sigmoid(gate) a = Mul(gate, s) y = Mul(a, up)",
            "contrib": "a = com.microsoft.QuickGelu <alpha = 1.0> (gate) y = Mul(a, up)",
            "standard": "a = Swish(gate) y = Mul(a, up)",
            "ours": "y = ai.onnxfuse.SwiGLU(gate, up)",
        },
        _gate_up,
        opsets={"standard": 24},
    ),
    Operation(
        "geglu packed",
        {
            "unfused": SPLIT + ERF.format(x="g", y="a") + " y = Mul(a, up)",
            "contrib": SPLIT + "a = com.microsoft.Gelu(g) y = Mul(a, up)",
            "standard": SPLIT + "a = Gelu(g) y = Mul(a, up)",
            "ours": "y = ai.onnxfuse.GeGLU(x)",
        },
        _packed,
        _halves,
    ),
    Operation(
        "glu packed",
        {"unfused": SPLIT + "a = Sigmoid(g) y = Mul(a, up)", "ours": "y = ai.onnxfuse.GLU(x)"},
        _packed,
        _halves,
    ),
    Operation(
        "channel gate",
        {"unfused": "s = Sigmoid(g) y = Mul(x, s)", "ours": "y = ai.onnxfuse.ChannelGate(x, g)"},
        _gated_image,
    ),
    Operation(
        "layer norm",
        {
            "unfused": LAYER.format(x="x"),
            "standard": "y = LayerNormalization <epsilon = 1e-5> (x, scale, bias)",
            "ours": "y = ai.onnxfuse.LayerNorm <epsilon = 1e-5> (x, scale, bias)",
        },
        _x,
        _affine,
    ),
    Operation(
        "rms norm",
        {
            "unfused": RMS.format(x="x"),
            "contrib": "y = SimplifiedLayerNormalization <epsilon = 1e-5> (x, scale)",
            "standard": "y = RMSNormalization <epsilon = 1e-5> (x, scale)",
            "ours": "y = ai.onnxfuse.RMSNorm <epsilon = 1e-5> (x, scale)",
        },
        _x,
        _affine,
    ),
    Operation(
        "skip + layer norm",
        {
            "unfused": SKIP + LAYER.format(x="s0") + " sum = Identity(s0)",
            "contrib": "y, , , sum = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (x, skip, scale, bias)",
            "standard": "sum = Add(x, skip) y = LayerNormalization <epsilon = 1e-5> (sum, scale, bias)",
            "ours": "y, sum = ai.onnxfuse.SkipLayerNorm <epsilon = 1e-5> (x, skip, scale, bias)",
        },
        _x_skip,
        _affine,
        ("y", "sum"),
    ),
    Operation(
        "skip + rms norm",
        {
            "unfused": SKIP + RMS.format(x="s0") + " sum = Identity(s0)",
            "contrib": "y, , , sum = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-5> (x, skip, scale)",
            "standard": "sum = Add(x, skip) y = RMSNormalization <epsilon = 1e-5> (sum, scale)",
            "ours": "y, sum = ai.onnxfuse.SkipRMSNorm <epsilon = 1e-5> (x, skip, scale)",
        },
        _x_skip,
        _affine,
        ("y", "sum"),
    ),
    Operation(
        "group norm + silu",
        {
            "unfused": GROUP.replace("y = Add", "a = Add") + " s = Sigmoid(a) y = Mul(a, s)",
            "standard": "a = GroupNormalization <epsilon = 1e-5, num_groups = 32> (x, vs, vb) s = Sigmoid(a) y = Mul(a, s)",
            "ours": 'y = ai.onnxfuse.GroupNorm <epsilon = 1e-5, num_groups = 32, activation = "silu"> (x, vs, vb)',
        },
        _image,
        lambda rows, cols: {**_by_channel(rows, cols), **{f"v{k[0]}": v for k, v in _channels(rows, cols).items()}},
    ),
    Operation(
        "channel layer norm",
        {
            "unfused": CHANNELS_LAST,
            "ours": "y = ai.onnxfuse.ChannelLayerNorm <axis = -3, epsilon = 1e-5> (x, scale, bias)",
        },
        _image,
        _channels,
    ),
    Operation(
        "l2 norm",
        {
            "unfused": "n = ReduceL2 <axes = [-1]> (x) c = Clip(n, tiny) s = Shape(x) e = Expand(c, s) y = Div(x, e)",
            "standard": "y = LpNormalization <axis = -1, p = 2> (x)",
            "ours": "y = ai.onnxfuse.L2Norm(x)",
        },
        _x,
    ),
    Operation(
        "masked softmax",
        {
            "unfused": "s = Mul(x, eighth) m = Add(s, mask) y = Softmax <axis = -1> (m)",
            "ours": "y = ai.onnxfuse.MaskedSoftmax <scale = 0.125> (x, mask)",
        },
        _scores,
    ),
    Operation(
        "rotary embedding",
        {
            "unfused": TURN,
            "contrib": "y = com.microsoft.RotaryEmbedding(x, start, cos, sin)",
            "standard": "y = RotaryEmbedding(x, cos3, sin3)",
            "ours": "y = ai.onnxfuse.RotaryEmbedding(x, cos2, sin2)",
        },
        _turned,
        _angles,
    ),
    Operation(
        "embeddings + layer norm",
        {
            "unfused": EMBED + LAYER.format(x="b"),
            "standard": EMBED + "y = LayerNormalization <epsilon = 1e-5> (b, scale, bias)",
            "ours": "y = ai.onnxfuse.EmbedLayerNorm <epsilon = 1e-5> (ids, words, types, kinds, at, places, scale, bias)",
        },
        _ids,
        _tables,
        gathered=2,
    ),
]
