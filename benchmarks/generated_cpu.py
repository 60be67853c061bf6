"""Generated operators on the CPU against the same nodes in ONNX Runtime with all its optimisations.

    python benchmarks/generated_cpu.py [--threads 1] [--seconds 2] [--only NAME ...] [--library PATH]

Each row is one program, as standard nodes and as one FusedElementwise or FusedReduction. Both run in turns with two copies
of the first input, so that what else the machine does falls on all alike: to the memory that the fused node writes, and to
an array of numpy, which has pages of 2 MB where it is large (ONNX Runtime's outputs have not). Copies are stated for as many
bytes as the program reads and writes. `times faster` and `of copy` are medians over the rounds; results are compared before
they are timed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table
from timing import Session, Timed, in_turns, large_pages, machine, markdown, ratio

from onnxfuse import runtime

LINE = re.compile(r"(\w+) = (\w+)\((.*)\)")
GELU_TANH = "v0 = Mul(x0, x0); v1 = Mul(v0, x0); v2 = Mul(v1, x1); v3 = Add(v2, x0); v4 = Tanh(v3); v5 = Add(v4, x1); v6 = Mul(v5, x0)"
PLAIN_14 = (
    "v0 = Mul(x0, x1); v1 = Add(v0, x2); v2 = Sub(v1, x3); v3 = Mul(v2, v2); v4 = Add(v3, x2); v5 = Max(v4, x3); v6 = Mul(v5, x1); "
    "v7 = Abs(v6); v8 = Sub(v7, x0); v9 = Neg(v8); v10 = Mul(v9, x3); v11 = Add(v10, x1); v12 = Min(v11, x3); v13 = Mul(v12, x0)"
)
GATED_14 = (
    "v0 = Mul(x0, x1); v1 = Add(v0, x2); v2 = Sigmoid(v1); v3 = Mul(v1, v2); v4 = Sub(v3, x2); v5 = Mul(v4, x1); v6 = Add(v5, x0); "
    "v7 = Max(v6, x3); v8 = Abs(v7); v9 = Mul(v8, x3); v10 = Neg(v9); v11 = Add(v10, x1); v12 = Sub(v11, x2); v13 = Mul(v12, x0)"
)
FUNCTIONS_14 = (
    "v0 = Mul(x0, x1); v1 = Add(v0, x2); v2 = Tanh(v1); v3 = Mul(v2, x0); v4 = Sub(v3, x3); v5 = Abs(v4); v6 = Add(v5, x3); "
    "v7 = Sqrt(v6); v8 = Div(x0, v7); v9 = Neg(v8); v10 = Exp(v9); v11 = Add(v10, x3); v12 = Reciprocal(v11); v13 = Mul(v12, x0)"
)
PLAIN_3 = "v0 = Sub(x0, x1); v1 = Mul(v0, x2); v2 = Abs(v1)"
TANH_3 = "v0 = Mul(x0, x1); v1 = Tanh(v0); v2 = Add(v1, x2)"
SOFTMAX = "v0 = ReduceMax(x0); v1 = Sub(x0, v0); v2 = Exp(v1); v3 = ReduceSum(v2); v4 = Div(v2, v3)"
NORM = "v0 = ReduceMean(x0); v1 = Sub(x0, v0); v2 = Mul(v1, v1); v3 = ReduceMean(v2); v4 = Sqrt(v3); v5 = Div(v1, v4); v6 = Mul(v5, x1)"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A program on float inputs of these shapes; its last value is the result. axes: of a row, 0 without reductions."""

    name: str
    body: str
    shapes: tuple[Shape, ...]
    axes: int = 0

    @property
    def steps(self) -> list[tuple[str, str, list[str]]]:
        """Name, primitive and operands of each value."""
        found = [LINE.fullmatch(part.strip()) for part in self.body.split(";")]
        return [(m[1], m[2], [operand.strip() for operand in m[3].split(",")]) for m in found if m]

    @property
    def program(self) -> str:
        inputs = " ".join(f"x{i}:float" for i in range(len(self.shapes)))
        values = "\n".join(f"{name}:float = {op}({', '.join(operands)})" for name, op, operands in self.steps)
        return f"{inputs}\n{values}\n-> {self.steps[-1][0]}"


BIG = ((8, 512, 3072), (3072,), (8, 512, 1), (1,))
MEGA = ((1024, 1024), (1024, 1024), (1,))
CASES = [
    Case("14 ops, arithmetic, [8,512,3072]", PLAIN_14, BIG),
    Case("14 ops, one sigmoid, [8,512,3072]", GATED_14, BIG),
    Case("14 ops, tanh exp sqrt / /, [8,512,3072]", FUNCTIONS_14, BIG),
    Case("3 ops, arithmetic, 4 MB", PLAIN_3, MEGA),
    Case("3 ops, arithmetic, 4 MB, [n] and [1]", PLAIN_3, ((1024, 1024), (1024,), (1,))),
    Case("3 ops, one tanh, 4 MB", TANH_3, ((1024, 1024), (1024,), (1,))),
    Case("3 ops, arithmetic, 10000", PLAIN_3, ((10000,), (10000,), (1,))),
    Case("3 ops, arithmetic, [100,100] with [100,1]", PLAIN_3, ((100, 100), (100, 1), (1,))),
    Case("3 ops, one tanh, 10000", TANH_3, ((10000,), (10000,), (1,))),
    Case("7 ops, gelu by tanh, 10000", GELU_TANH, ((10000,), (1,))),
    Case("softmax, [4096,64]", SOFTMAX, ((4096, 64),), 1),
    Case("softmax, [512,1024]", SOFTMAX, ((512, 1024),), 1),
    Case("softmax, [64,65536]", SOFTMAX, ((64, 65536),), 1),
    Case("norm, [512,1024]", NORM, ((512, 1024), (1024,)), 1),
    Case("norm, [64,65536]", NORM, ((64, 65536), (65536,)), 1),
]


def model(case: Case, nodes: Sequence[onnx.NodeProto], result: str) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(case.shapes)]
    output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnxfuse", 1)]
    return helper.make_model(helper.make_graph(list(nodes), "bench", inputs, [output]), opset_imports=opsets, ir_version=8)


def standard(case: Case) -> onnx.ModelProto:
    """The program as standard nodes."""
    nodes = []
    for name, op, operands in case.steps:
        if op.startswith("Reduce"):
            axes = helper.make_tensor(f"{name}_axes", TensorProto.INT64, [case.axes], list(range(-case.axes, 0)))
            nodes.append(helper.make_node("Constant", [], [f"{name}_axes"], value=axes))
            operands = [*operands, f"{name}_axes"]
        nodes.append(helper.make_node(op, operands, [name]))
    return model(case, nodes, case.steps[-1][0])


def fused(case: Case) -> onnx.ModelProto:
    """The program as one node."""
    inputs = [f"x{i}" for i in range(len(case.shapes))]
    op = "FusedReduction" if case.axes else "FusedElementwise"
    node = helper.make_node(op, inputs, ["y"], domain="ai.onnxfuse", program=case.program)
    if case.axes:
        node.attribute.append(helper.make_attribute("axes", case.axes))
    return model(case, [node], "y")


def row(case: Case, options: argparse.Namespace) -> list[str]:
    rng = np.random.default_rng(0)
    feeds = {f"x{i}": np.abs(rng.standard_normal(shape, dtype=np.float32)) + 0.1 for i, shape in enumerate(case.shapes)}
    theirs = Session(standard(case), feeds, options.threads)
    ours = Session(fused(case), feeds, options.threads)
    (want,), (got,) = theirs.results(), ours.results()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    copies = [_copy(feeds["x0"], to, options.threads) for to in (ours.memory(), np.zeros(got.size, np.float32))]
    in_turns([theirs, ours, *copies], options.seconds)
    scale = (sum(x.nbytes for x in feeds.values()) + got.nbytes) / (2 * got.nbytes)
    times = [theirs.median, ours.median, *(scale * t.median for t in copies)]
    shares = [scale * ratio(t, ours) for t in copies]
    return [case.name, *(f"{t * 1e3:.4f}" for t in times), f"{ratio(theirs, ours):.2f}", *(f"{share:.0%}" for share in shares)]


def _copy(x: np.ndarray, to: np.ndarray, threads: int) -> Timed:
    return Timed(partial(np.copyto, to, x.reshape(-1)), threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose names have one of these in them")
    parser.add_argument("--library", help="operator library to run instead of the installed one")
    options = parser.parse_args()
    large_pages()
    if options.library:
        runtime.library_path = lambda: options.library
    rows = [row(case, options) for case in CASES if any(word in case.name for word in options.only)]
    headings = ("program", "ONNX Runtime, ms", "fused, ms", "copy, ms", "copy in large pages, ms", "times faster", "of copy", "of large")
    table = Table(title=machine() + f", {options.threads} thread(s)")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right")
    for cells in rows:
        table.add_row(*cells)
    Console(width=140).print(table)
    print(markdown(headings, rows))


if __name__ == "__main__":
    main()
