"""Our Linear against ONNX Runtime's MatMul and what it makes of the operators behind it.

    python benchmarks/linear_cpu.py [--threads 1] [--seconds 1] [--rows 8 128 ...] [--results FILE.json] [--print]

For each shape and each epilogue: microseconds of ONNX Runtime with all its optimisations, of ours, and how many times faster
ours is. `product`: no epilogue at all, which no rule would make one operator of: the two products side by side.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from timing import Feeds, Results, Session, in_turns, large_pages, markdown, parsed, product, ratio

SIZES = [(768, 768), (768, 3072), (3072, 768), (2048, 8192), (64, 64)]  # depth, columns
ROWS = (1, 8, 16, 64, 128, 512)
PLAIN = "m = MatMul(x, w) z = Add(m, b)"
HALF, ONE, ROOT = (f"Constant <value = float {{{value!r}}}> ()" for value in (0.5, 1.0, math.sqrt(0.5)))
GELU = f"h = {ROOT} one = {ONE} half = {HALF} u = Mul(z, h) e = Erf(u) p = Add(e, one) q = Mul(z, p) y = Mul(q, half)"
# name -> ONNX Runtime's side, ours
EPILOGUES = {
    "product": ("y = MatMul(x, w)", "y = ai.onnxfuse.Linear (x, w)"),
    "bias, relu": (f"{PLAIN} y = Relu(z)", 'y = ai.onnxfuse.Linear <activation = "relu"> (x, w, b)'),
    "bias, gelu": (f"{PLAIN} {GELU}", 'y = ai.onnxfuse.Linear <activation = "gelu"> (x, w, b)'),
    "bias, silu": (f"{PLAIN} s = Sigmoid(z) y = Mul(z, s)", 'y = ai.onnxfuse.Linear <activation = "silu"> (x, w, b)'),
    "bias, residual": (f"{PLAIN} y = Add(z, r)", "y = ai.onnxfuse.Linear (x, w, b, r)"),
}


def operands(rows: int, depth: int, cols: int) -> tuple[Feeds, Feeds]:
    """(inputs, weights); x has three axes, as in a model with a batch and a sequence."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    weights = {"w": normal(depth, cols) / np.float32(math.sqrt(depth)), "b": normal(cols)}
    return {"x": normal(1, rows, depth), "r": normal(1, rows, cols)}, weights


def row(epilogue: str, rows: int, depth: int, cols: int, threads: int, seconds: float) -> dict[str, Any]:
    feeds, weights = operands(rows, depth, cols)
    theirs, ours = (
        Session(parsed(text, {k: v for k, v in feeds.items() if k == "x" or ", r)" in text}, weights=weights), feeds, threads)
        for text in EPILOGUES[epilogue]
    )
    np.testing.assert_allclose(ours.results()[0], theirs.results()[0], atol=1e-4)
    peak = product(threads)
    in_turns([theirs, ours, peak], seconds)
    flops = 2 * rows * depth * cols
    return {
        "threads": threads,
        "theirs": theirs.median * 1e6,
        "ours": ours.median * 1e6,
        "ratio": ratio(theirs, ours),
        "rate": flops / ours.median / 1e9,
        "share": flops / ours.median / (2 * 1024**3 / peak.median),
        "read": weights["w"].nbytes / ours.median / 1e9,
    }


def report(results: Results) -> str:
    headings = ["rows, depth, columns", "epilogue", "threads", "ONNX Runtime, us", "ours, us", "ratio"]
    headings += ["GFLOP/s", "of MatMul", "weights GB/s"]
    cells = [
        [r["shape"], r["epilogue"], str(r["threads"]), f"{r['theirs']:.0f}", f"{r['ours']:.0f}", f"{r['ratio']:.2f}", f"{r['rate']:.0f}",
         f"{r['share']:.0%}", f"{r['read']:.1f}"]
        for r in sorted(results.rows.values(), key=lambda r: (r["threads"], list(EPILOGUES).index(r["epilogue"]), r["place"]))
    ]  # fmt: skip
    return "\n\n".join([*results.machines(), markdown(headings, cells, left=2)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--sizes", type=int, nargs="*", default=range(len(SIZES)), help="which of the sizes, by number")
    parser.add_argument("--only", nargs="*", choices=list(EPILOGUES), default=list(EPILOGUES))
    parser.add_argument("--results", type=Path, help="a JSON file of rows, added to")
    parser.add_argument("--print", action="store_true", help="only print what --results holds")
    options = parser.parse_args()
    large_pages()
    results = Results(options.results)
    for epilogue in options.only if not options.print else ():
        for place, (rows, (depth, cols)) in enumerate((m, SIZES[i]) for i in options.sizes for m in options.rows):
            made = row(epilogue, rows, depth, cols, options.threads, options.seconds)
            shape = f"{rows}, {depth}, {cols}"
            results.put(f"{epilogue} {shape} x{options.threads}", {"epilogue": epilogue, "shape": shape, "place": place, **made})
    print(report(results))


if __name__ == "__main__":
    main()
