"""Language models as exporters write them, from their published sizes alone: matrices have shapes, but no data anywhere.

A model of 70 billion weights is a few megabytes here. It can be explained, not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


@dataclass(frozen=True)
class Config:
    """Sizes of one decoder."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    length: int  # tokens at which it is looked at
    dtype: int = TensorProto.FLOAT16
    has_data: bool = False  # weights are random numbers, so that the model can be run

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


GPT2_SMALL = Config("GPT-2 small", 12, 768, 12, 12, 3072, 50257, 1024)
LLAMA_7B = Config("LLaMA-7B", 32, 4096, 32, 32, 11008, 32000, 2048)
LLAMA_70B = Config("LLaMA-70B", 80, 8192, 64, 8, 28672, 32000, 4096)


class Writer:
    """A graph under construction, node by node."""

    def __init__(self, config: Config) -> None:
        self.config, self.number = config, helper.tensor_dtype_to_np_dtype(config.dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.known: dict[str, str] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """The name of the node's first output; further ones are called `NAME.1` and so on."""
        name = f"v{len(self.nodes)}"
        results = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, results, name=f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """A weight of that shape. Vectors have data, the matcher looks at them; that of matrices may be in a file that does not exist."""
        name = f"w{len(self.weights)}"
        if len(shape) == 1 or self.config.has_data:
            rng = np.random.default_rng(len(self.weights))  # no two alike: equal ones could be factored out
            values = rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else rng.standard_normal(shape) * shape[0] ** -0.5
            self.weights.append(numpy_helper.from_array(values.astype(self.number), name))
            return name
        tensor = TensorProto(name=name, dims=shape, data_type=self.config.dtype, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights.bin")
        self.weights.append(tensor)
        return name

    def constant(self, *values: float, dtype: Any = None) -> str:
        """A small constant: a scalar for one number of a floating-point type, else a vector. Equal ones are made once."""
        kind = self.number if dtype is None else dtype
        return self._known(np.array(values[0] if len(values) == 1 and dtype is not np.int64 else values, kind))

    def _known(self, array: Any) -> str:
        key = f"{array.dtype}{array.tolist()}"
        if key not in self.known:
            self.known[key] = f"c{len(self.known)}"
            self.weights.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def cast(self, x: str, dtype: int) -> str:
        """x as another type; exporters write no Cast where x is of that type already, and a model in float32 has no other."""
        return x if self.config.dtype == TensorProto.FLOAT else self.op("Cast", x, to=dtype)

    def given(self, name: str, *shape: int | str) -> onnx.ValueInfoProto:
        """An input of the model's type."""
        return helper.make_tensor_value_info(name, self.config.dtype, shape)

    def ints(self, *values: int) -> str:
        return self.constant(*values, dtype=np.int64)

    def index(self, value: int) -> str:
        """A single place along an axis, which Gather takes away."""
        return self._known(np.array(value, np.int64))

    def constants(self, values: Sequence[float]) -> str:
        """A small vector of the model's type."""
        return self._known(np.array(values, self.number))

    def linear(self, x: str, rows: int, columns: int, *, bias: bool = False) -> str:
        product = self.op("MatMul", x, self.weight(rows, columns))
        return self.op("Add", self.weight(columns), product) if bias else product

    def split_heads(self, x: str, heads: int, size: int) -> str:
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, heads, size)), perm=[0, 2, 1, 3])

    def merge_heads(self, x: str, hidden: int) -> str:
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.ints(0, 0, hidden))

    def model(self, output: str, *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
        logits = self.given(output, "batch", "seq", self.config.vocabulary)
        tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "seq"])
        return self._made([tokens, *inputs], logits)

    def graph(self, output: str, *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
        """A model of these inputs alone."""
        return self._made(inputs, helper.make_tensor_value_info(output, self.config.dtype, None))

    def _made(self, inputs: Sequence[onnx.ValueInfoProto], output: onnx.ValueInfoProto) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.config.name, inputs, [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def gpt2(config: Config) -> onnx.ModelProto:
    """Pre-norm decoder with learned positions, biases, and GELU by tanh."""
    w = Writer(config)
    norm = lambda x: w.op("LayerNormalization", x, w.weight(config.hidden), w.weight(config.hidden), axis=-1)  # noqa: E731
    x = w.op("Add", w.op("Gather", w.weight(config.vocabulary, config.hidden), "tokens"), "positions")
    for _ in range(config.layers):
        packed = w.linear(norm(x), config.hidden, 3 * config.hidden, bias=True)
        parts = w.op("Split", packed, axis=-1, outputs=3)
        q, k, v = (w.split_heads(part, config.heads, config.head_size) for part in (parts, f"{parts}.1", f"{parts}.2"))
        scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = w.op("Add", w.op("Div", scores, w.constant(config.head_size**0.5)), "mask")
        mixed = w.op("MatMul", w.op("Softmax", scaled, axis=-1), v)
        x = w.op("Add", w.linear(w.merge_heads(mixed, config.hidden), config.hidden, config.hidden, bias=True), x)
        inner = _gelu_tanh(w, w.linear(norm(x), config.hidden, config.inner, bias=True))
        x = w.op("Add", x, w.linear(inner, config.inner, config.hidden, bias=True))
    logits = w.linear(norm(x), config.hidden, config.vocabulary)
    return w.model(logits, w.given("positions", 1, "seq", config.hidden), w.given("mask", 1, 1, "seq", "seq"))


def bert(config: Config) -> onnx.ModelProto:
    """Post-norm encoder with biases, exact GELU, and an added mask."""
    w = Writer(config)
    norm = lambda x: w.op("LayerNormalization", x, w.weight(config.hidden), w.weight(config.hidden), axis=-1)  # noqa: E731
    x = norm(w.op("Add", w.op("Gather", w.weight(config.vocabulary, config.hidden), "tokens"), "positions"))
    for _ in range(config.layers):
        q, k, v = (w.split_heads(w.linear(x, config.hidden, config.hidden, bias=True), config.heads, config.head_size) for _ in range(3))
        scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = w.op("Add", w.op("Div", scores, w.constant(config.head_size**0.5)), "mask")
        mixed = w.merge_heads(w.op("MatMul", w.op("Softmax", scaled, axis=-1), v), config.hidden)
        x = norm(w.op("Add", w.linear(mixed, config.hidden, config.hidden, bias=True), x))
        inner = w.linear(x, config.hidden, config.inner, bias=True)
        erf = w.op("Add", w.op("Erf", w.op("Div", inner, w.constant(2**0.5))), w.constant(1.0))
        gelu = w.op("Mul", w.op("Mul", inner, erf), w.constant(0.5))
        x = norm(w.op("Add", w.linear(gelu, config.inner, config.hidden, bias=True), x))
    logits = w.linear(x, config.hidden, config.vocabulary)
    return w.model(logits, w.given("positions", 1, "seq", config.hidden), w.given("mask", "batch", 1, 1, "seq"))


def llama(config: Config) -> onnx.ModelProto:
    """Pre-norm decoder with RMSNorm in float32, rotary positions, grouped heads, softmax in float32, and SwiGLU."""
    w = Writer(config)
    x = w.op("Gather", w.weight(config.vocabulary, config.hidden), "tokens")
    kv_width = config.kv_heads * config.head_size
    for _ in range(config.layers):
        normed = _rms_norm(w, x, config.hidden)
        q = _rotary(w, w.split_heads(w.linear(normed, config.hidden, config.hidden), config.heads, config.head_size), config.head_size)
        k = _rotary(w, w.split_heads(w.linear(normed, config.hidden, kv_width), config.kv_heads, config.head_size), config.head_size)
        v = w.split_heads(w.linear(normed, config.hidden, kv_width), config.kv_heads, config.head_size)
        k, v = _repeated(w, k, config), _repeated(w, v, config)
        scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = w.op("Add", w.op("Mul", scores, w.constant(config.head_size**-0.5)), "mask")
        weights = w.cast(w.op("Softmax", w.cast(scaled, TensorProto.FLOAT), axis=-1), config.dtype)
        mixed = w.merge_heads(w.op("MatMul", weights, v), config.hidden)
        x = w.op("Add", x, w.linear(mixed, config.hidden, config.hidden))
        normed = _rms_norm(w, x, config.hidden)
        gate = w.linear(normed, config.hidden, config.inner)
        gated = w.op("Mul", w.op("Mul", gate, w.op("Sigmoid", gate)), w.linear(normed, config.hidden, config.inner))
        x = w.op("Add", x, w.linear(gated, config.inner, config.hidden))
    logits = w.linear(_rms_norm(w, x, config.hidden), config.hidden, config.vocabulary)
    angles = (w.given(name, 1, 1, "seq", config.head_size) for name in ("cos", "sin"))
    return w.model(logits, *angles, w.given("mask", 1, 1, "seq", "seq"))


BLUEPRINTS: tuple[tuple[Config, Callable[[Config], onnx.ModelProto]], ...] = (
    (GPT2_SMALL, gpt2),
    (LLAMA_7B, llama),
    (LLAMA_70B, llama),
)


def _gelu_tanh(w: Writer, x: str) -> str:
    cube = w.op("Pow", x, w.constant(3.0))
    inner = w.op("Add", x, w.op("Mul", cube, w.constant(0.044715)))
    tanh = w.op("Tanh", w.op("Mul", inner, w.constant(0.7978845608)))
    return w.op("Mul", w.op("Mul", x, w.constant(0.5)), w.op("Add", tanh, w.constant(1.0)))


def _rms_norm(w: Writer, x: str, hidden: int) -> str:
    wide = w.cast(x, TensorProto.FLOAT)
    mean = w.op("ReduceMean", w.op("Pow", wide, w.constant(2.0, dtype=np.float32)), axes=[-1], keepdims=1)
    root = w.op("Sqrt", w.op("Add", mean, w.constant(1e-5, dtype=np.float32)))
    normed = w.op("Mul", wide, w.op("Div", w.constant(1.0, dtype=np.float32), root))
    return w.op("Mul", w.weight(hidden), w.cast(normed, w.config.dtype))


def _rotary(w: Writer, x: str, size: int) -> str:
    first = w.op("Slice", x, w.ints(0), w.ints(size // 2), w.ints(3))
    second = w.op("Slice", x, w.ints(size // 2), w.ints(size), w.ints(3))
    turned = w.op("Concat", w.op("Neg", second), first, axis=-1)
    return w.op("Add", w.op("Mul", x, "cos"), w.op("Mul", turned, "sin"))


def _repeated(w: Writer, x: str, config: Config) -> str:
    """Each key head for as many query heads as share it."""
    if config.heads == config.kv_heads:
        return x
    wide = w.op("Expand", w.op("Unsqueeze", x, w.ints(2)), w.ints(1, 1, config.heads // config.kv_heads, 1, 1))
    return w.op("Reshape", wide, w.ints(0, config.heads, -1, config.head_size))
