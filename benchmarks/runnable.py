"""Small models that can be run, in the manner of exporters: those of `blueprints.py` with data, and others beside them.

Weights are random, float32. Where exporters spell an operator in several ways, the models differ in it on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
from blueprints import Config, Writer, bert, gpt2, llama
from onnx import TensorProto, helper


@dataclass(frozen=True)
class Subject:
    """A model and the sizes of its symbolic dims at which it is looked at."""

    name: str
    model: onnx.ModelProto
    sizes: Mapping[str, int]


def config(name: str, length: int, **sizes: int) -> Config:
    """Sizes of a small model with data."""
    usual = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "inner": 1024, "vocabulary": 512, "length": length, **sizes}
    return Config(name, **usual, dtype=TensorProto.FLOAT, has_data=True)  # type: ignore[arg-type]


def subject(name: str, length: int) -> Subject:
    """One of `MODELS` at so many tokens. Raises KeyError for a name that is none."""
    model = MODELS[name](length)
    dims = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    return Subject(f"{name} {length}", model, {dim: size for dim, size in {"batch": 1, "seq": length}.items() if dim in dims})


def distilbert(sizes: Config) -> onnx.ModelProto:
    """An encoder of an older opset: norms and GELU in single nodes, queries scaled first, masked by Where."""
    w = Writer(sizes)
    tokens = w.op("Gather", w.weight(sizes.vocabulary, sizes.hidden), "tokens")
    x = _norm(w, w.op("Add", tokens, "positions"))
    lowest = w.constant(-3.4028234663852886e38)
    for _ in range(sizes.layers):
        q, k, v = (w.linear(x, sizes.hidden, sizes.hidden, bias=True) for _ in range(3))
        q, v = (w.split_heads(part, sizes.heads, sizes.head_size) for part in (q, v))
        turned = w.op("Transpose", w.op("Reshape", k, w.ints(0, 0, sizes.heads, sizes.head_size)), perm=[0, 2, 3, 1])
        scores = w.op("MatMul", w.op("Div", q, w.constant(sizes.head_size**0.5)), turned)
        weights = w.op("Softmax", w.op("Where", "padding", lowest, scores), axis=-1)
        mixed = w.merge_heads(w.op("MatMul", weights, v), sizes.hidden)
        x = _norm(w, w.op("Add", w.linear(mixed, sizes.hidden, sizes.hidden, bias=True), x))
        inner = _gelu_erf(w, w.linear(x, sizes.hidden, sizes.inner, bias=True))
        x = _norm(w, w.op("Add", w.linear(inner, sizes.inner, sizes.hidden, bias=True), x))
    padding = helper.make_tensor_value_info("padding", TensorProto.BOOL, ["batch", 1, 1, "seq"])
    return w.model(w.linear(x, sizes.hidden, sizes.vocabulary), w.given("positions", 1, "seq", sizes.hidden), padding)


def vit(sizes: Config) -> onnx.ModelProto:
    """Image patches by a convolution, then a pre-norm encoder whose products are packed."""
    w = Writer(sizes)
    side = round(sizes.length**0.5)
    patches = w.op("Conv", "image", w.weight(sizes.hidden, 3, 8, 8), w.weight(sizes.hidden), kernel_shape=[8, 8], strides=[8, 8])
    x = w.op("Transpose", w.op("Reshape", patches, w.ints(0, sizes.hidden, -1)), perm=[0, 2, 1])
    x = w.op("Add", x, w.weight(1, side * side, sizes.hidden))
    for _ in range(sizes.layers):
        packed = w.linear(_norm(w, x), sizes.hidden, 3 * sizes.hidden, bias=True)
        heads = w.op("Reshape", packed, w.ints(0, 0, 3, sizes.heads, sizes.head_size))
        parts = w.op("Transpose", heads, perm=[2, 0, 3, 1, 4])
        q, k, v = (w.op("Gather", parts, w.index(i), axis=0) for i in range(3))
        scores = w.op("Mul", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2])), w.constant(sizes.head_size**-0.5))
        mixed = w.merge_heads(w.op("MatMul", w.op("Softmax", scores, axis=-1), v), sizes.hidden)
        x = w.op("Add", w.linear(mixed, sizes.hidden, sizes.hidden, bias=True), x)
        inner = _gelu_erf(w, w.linear(_norm(w, x), sizes.hidden, sizes.inner, bias=True))
        x = w.op("Add", w.linear(inner, sizes.inner, sizes.hidden, bias=True), x)
    image = w.given("image", "batch", 3, 8 * side, 8 * side)
    return w.graph(_norm(w, x), image)


def unet(sizes: Config) -> onnx.ModelProto:
    """One level of a diffusion model: residual blocks of group norms, SiLU and convolutions, and a transformer between them."""
    w = Writer(sizes)
    side = round(sizes.length**0.5)
    x = w.op("Conv", "latent", w.weight(sizes.hidden, 4, 3, 3), w.weight(sizes.hidden), pads=[1, 1, 1, 1])
    step = _silu(w, w.op("Gemm", "step", w.weight(sizes.hidden, sizes.hidden), w.weight(sizes.hidden)))
    for _ in range(sizes.layers):
        x = _residual_block(w, x, step, side)
        x = _image_transformer(w, x, side)
    x = _convolved(w, _silu(w, _group_norm(w, x, side)))
    return w.graph(x, w.given("latent", "batch", 4, side, side), w.given("step", "batch", sizes.hidden))


def _residual_block(w: Writer, x: str, step: str, side: int) -> str:
    hidden = w.config.hidden
    inner = _convolved(w, _silu(w, _group_norm(w, x, side)))
    shift = w.op("Gemm", step, w.weight(hidden, hidden), w.weight(hidden))
    moved = w.op("Add", inner, w.op("Unsqueeze", w.op("Unsqueeze", shift, w.ints(2)), w.ints(3)))
    return w.op("Add", x, _convolved(w, _silu(w, _group_norm(w, moved, side))))


def _image_transformer(w: Writer, x: str, side: int) -> str:
    """Self-attention over the pixels, and a gated feed-forward."""
    hidden, heads, size = w.config.hidden, w.config.heads, w.config.head_size
    rows = w.op("Reshape", w.op("Transpose", x, perm=[0, 2, 3, 1]), w.ints(0, side * side, hidden))
    normed = _norm(w, rows)
    q, k, v = (w.split_heads(w.linear(normed, hidden, hidden), heads, size) for _ in range(3))
    scores = w.op("Mul", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2])), w.constant(size**-0.5))
    mixed = w.merge_heads(w.op("MatMul", w.op("Softmax", scores, axis=-1), v), hidden)
    rows = w.op("Add", w.linear(mixed, hidden, hidden, bias=True), rows)
    both = w.linear(_norm(w, rows), hidden, 2 * w.config.inner, bias=True)
    value = w.op("Split", both, axis=-1, outputs=2)
    gated = w.op("Mul", value, _gelu_erf(w, f"{value}.1"))
    rows = w.op("Add", w.linear(gated, w.config.inner, hidden, bias=True), rows)
    back = w.op("Transpose", w.op("Reshape", rows, w.ints(0, side, side, hidden)), perm=[0, 3, 1, 2])
    return w.op("Add", back, x)


def _convolved(w: Writer, x: str) -> str:
    hidden = w.config.hidden
    return w.op("Conv", x, w.weight(hidden, hidden, 3, 3), w.weight(hidden), pads=[1, 1, 1, 1])


def _group_norm(w: Writer, x: str, side: int) -> str:
    """As exporters write it before opset 18: an instance norm of the groups, then a scale and a shift for each channel."""
    hidden, groups = w.config.hidden, 32
    grouped = w.op("Reshape", x, w.ints(0, groups, -1))
    ones, noughts = w.constants([1.0] * groups), w.constants([0.0] * groups)
    normed = w.op("InstanceNormalization", grouped, ones, noughts)
    back = w.op("Reshape", normed, w.ints(0, hidden, side, side))
    return w.op("Add", w.op("Mul", back, w.weight(hidden, 1, 1)), w.weight(hidden, 1, 1))


def _norm(w: Writer, x: str) -> str:
    """LayerNorm before opset 17."""
    centred = w.op("Sub", x, w.op("ReduceMean", x, axes=[-1]))
    variance = w.op("ReduceMean", w.op("Pow", centred, w.constant(2.0)), axes=[-1])
    normed = w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, w.constant(1e-5))))
    return w.op("Add", w.op("Mul", normed, w.weight(w.config.hidden)), w.weight(w.config.hidden))


def _gelu_erf(w: Writer, x: str) -> str:
    erf = w.op("Add", w.op("Erf", w.op("Div", x, w.constant(2**0.5))), w.constant(1.0))
    return w.op("Mul", w.op("Mul", x, erf), w.constant(0.5))


def _silu(w: Writer, x: str) -> str:
    return w.op("Mul", x, w.op("Sigmoid", x))


MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "bert": lambda length: bert(config("bert", length)),
    "distilbert": lambda length: distilbert(config("distilbert", length)),
    "gpt2": lambda length: gpt2(config("gpt2", length)),
    "llama": lambda length: llama(config("llama", length, kv_heads=2, inner=688)),
    "vit": lambda length: vit(config("vit", length, hidden=192, heads=3, inner=768)),
    "unet": lambda length: unet(config("unet", length, layers=1, hidden=128, heads=4, inner=512)),
}
