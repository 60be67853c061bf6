"""How long matching and rewriting take, and how that grows with the model.

    python benchmarks/rewriter.py [--layers 18 72 288 864] [--level all]

Builds LLaMA-like decoders (RMSNorm, rotary, grouped heads, SwiGLU, spelled out: 58 nodes a layer) with tiny weights and fuses
all that matches. Prints wall seconds by phase and processor seconds in all; validation, which runs models, is left out, and so
are the import of the rules and the making of their patterns, once for a process (a first, tiny model has them done).
The last line is the exponent of seconds over nodes between the smallest and the largest model: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import onnxfuse

HIDDEN, HEADS, KV_HEADS, SIZE = 32, 4, 2, 8


class Decoder:
    """A decoder under construction, node by node, as exporters write it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"n{len(self.nodes)}", **attributes))
        return output

    def constant(self, array: object, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def norm(self, x: str) -> str:
        square = self.op("Pow", x, self.constant(2.0))
        mean = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.constant(1e-6)))
        return self.op("Mul", self.constant(np.ones(HIDDEN)), self.op("Div", x, root))

    def project(self, x: str, rows: int, columns: int) -> str:
        return self.op("MatMul", x, self.constant(np.full((rows, columns), 0.01)))

    def heads(self, x: str, count: int) -> str:
        split = self.op("Reshape", x, self.constant([0, 0, count, SIZE], np.int64))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def rotary(self, x: str, cos: str, sin: str) -> str:
        bounds = [self.constant([n], np.int64) for n in (0, SIZE // 2, SIZE, 3)]
        first = self.op("Slice", x, bounds[0], bounds[1], bounds[3])
        second = self.op("Slice", x, bounds[1], bounds[2], bounds[3])
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def layer(self, x: str, cos: str, sin: str, mask: str) -> str:
        normed = self.norm(x)
        q = self.rotary(self.heads(self.project(normed, HIDDEN, HIDDEN), HEADS), cos, sin)
        k = self.rotary(self.heads(self.project(normed, HIDDEN, KV_HEADS * SIZE), KV_HEADS), cos, sin)
        v = self.heads(self.project(normed, HIDDEN, KV_HEADS * SIZE), KV_HEADS)
        scores = self.op("MatMul", q, self.op("Transpose", self.repeated(k), perm=[0, 1, 3, 2]))
        scaled = self.op("Add", self.op("Mul", scores, self.constant(SIZE**-0.5)), mask)
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), self.repeated(v))
        flat = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([0, 0, HIDDEN], np.int64))
        x = self.op("Add", x, self.project(flat, HIDDEN, HIDDEN))
        normed = self.norm(x)
        gate = self.project(normed, HIDDEN, 2 * HIDDEN)
        gated = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), self.project(normed, HIDDEN, 2 * HIDDEN))
        return self.op("Add", x, self.project(gated, 2 * HIDDEN, HIDDEN))

    def repeated(self, x: str) -> str:
        """Each key head for as many query heads as share it, by Unsqueeze, Expand, Reshape."""
        apart = self.op("Unsqueeze", x, self.constant([2], np.int64))
        wide = self.op("Expand", apart, self.constant([1, 1, HEADS // KV_HEADS, 1, 1], np.int64))
        return self.op("Reshape", wide, self.constant([0, HEADS, -1, SIZE], np.int64))


def decoder(layers: int) -> onnx.ModelProto:
    """A decoder of that many layers over hidden states [batch, seq, 32]."""
    made = Decoder()
    x = "x"
    for _ in range(layers):
        x = made.layer(x, "cos", "sin", "mask")
    shapes = {"x": ["batch", "seq", HIDDEN], "cos": [1, 1, "seq", SIZE], "sin": [1, 1, "seq", SIZE], "mask": ["batch", 1, "seq", "seq"]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "seq", HIDDEN])
    graph = helper.make_graph(made.nodes, "decoder", inputs, [output], made.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[18, 72, 288, 864])
    parser.add_argument("--level", choices=("elementwise", "cost", "all"), default="all")
    options = parser.parse_args()
    onnxfuse.optimize(decoder(1), level=options.level, verify=False)
    table = Table("layers", "nodes", "left", "load", "shapes", "match", "select", "rewrite", "total s", "us a node")
    points: list[tuple[int, float]] = []
    for layers in options.layers:
        model = decoder(layers)
        start = time.process_time()
        report = onnxfuse.optimize(model, level=options.level, verify=False).report
        total = time.process_time() - start
        points.append((report.nodes_before, total))
        phases = [f"{report.seconds.get(p, 0):.3f}" for p in ("load", "shapes", "match", "select", "rewrite")]
        row = [layers, report.nodes_before, report.nodes_after, *phases, f"{total:.3f}", f"{total / report.nodes_before * 1e6:.0f}"]
        table.add_row(*map(str, row))
    Console(width=140).print(table)
    (n0, t0), (n1, t1) = points[0], points[-1]
    if n1 > n0:
        print(f"exponent {math.log(t1 / t0) / math.log(n1 / n0):.2f}")


if __name__ == "__main__":
    main()
