"""Our operators on the CPU against the best that ONNX Runtime has for each: one table of attention, one of the rest.

    python benchmarks/ops.py [--threads 1] [--seconds 1] [--only attention gelu ...] [--results FILE.json] [--print]

Each row is one computation in up to four forms: unfused as exporters spell it, a com.microsoft op, a standard op, ours.
All have ONNX Runtime's optimisations, run in turns in one process, and must agree. `best/ours` above 1: ours is faster
than the fastest of the others. Attention counts the operations of its two products (what a diagonal hides is not
counted) and compares them with a 1024 x 1024 matrix product of ONNX Runtime on as many threads; one query against many
keys counts the bytes of keys and values and compares them with memory copied. So do the other operators, with the
bytes of inputs and outputs. Their sizes: `tiny`, a row of 64, 16 copies to a model, for what calling an op costs;
`short`, rows of 64, and `long`, rows of 4096, 16 MB each.
--results keeps rows in a file, so that a table may be measured in pieces; --print measures nothing and prints it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from attention_forms import FORMS, SHAPES, Shape, by_heads, operands
from row_forms import CONSTANTS, OPERATIONS, Operation
from timing import SIDE, Feeds, Results, Session, Timed, copies, copy, in_turns, large_pages, markdown, parsed, product, ratio

SIZES = {"tiny": (1, 64), "short": (65536, 64), "long": (1024, 4096)}
COPIES = 16  # of a tiny op
OTHERS = ("unfused", "contrib", "standard")


def attention_row(shape: Shape, threads: int, seconds: float) -> dict[str, Any]:
    feeds = operands(shape)
    made = {name: form for name, make in FORMS.items() if (form := make(shape, feeds)) is not None}
    sessions = {name: Session(model, fed, threads) for name, (model, fed) in made.items()}
    want = by_heads(sessions["unfused"].results()[0], shape)
    for session in sessions.values():
        np.testing.assert_allclose(by_heads(session.results()[0], shape), want, atol=1e-4)
    peak = copy(shape.bytes, threads) if shape.s == 1 else product(threads)
    in_turns([*sessions.values(), peak], seconds)
    work, of_peak = (shape.bytes, shape.bytes) if shape.s == 1 else (shape.flops, 2 * SIDE**3)
    return _row(sessions, peak, work, of_peak, threads)


def operation_row(operation: Operation, size: str, threads: int, seconds: float) -> dict[str, Any]:
    feeds, weights = operation.feeds(*SIZES[size]), operation.weights(*SIZES[size])
    sessions = {name: session for name in operation.forms if (session := _session(operation, name, size, feeds, weights, threads))}
    want = sessions["unfused"].results()
    for session in sessions.values():
        for got, wanted in zip(session.results(), want, strict=True):
            np.testing.assert_allclose(got, wanted, atol=2e-4)
    count = COPIES if size == "tiny" else 1
    moved = count * (sum(x.nbytes for x in [*feeds.values(), *want[: len(operation.outputs)]]) + operation.gathered * want[0].nbytes)
    peak = copy(moved, threads)
    in_turns([*sessions.values(), peak], seconds, least=20 if size == "tiny" else 5)
    return _row(sessions, peak, moved, moved, threads, count)


def _session(operation: Operation, form: str, size: str, feeds: Feeds, weights: Feeds, threads: int) -> Session | None:
    """None where this version of ONNX Runtime has no kernel for a form that is not ours."""
    text = operation.forms[form]
    used = {name: x for name, x in {**weights, **{k: np.float32(v) for k, v in CONSTANTS.items()}}.items() if _has_word(text, name)}
    model = parsed(text, feeds, operation.outputs, used, operation.opset(form))
    try:
        if size != "tiny":
            return Session(model, feeds, threads)
        return Session(copies(model, COPIES), {f"{name}_{i}": x for name, x in feeds.items() for i in range(COPIES)}, threads)
    except Exception as error:
        if form in ("unfused", "ours"):
            raise
        print(f"{operation.name}: no {form} form: {str(error)[:160]}", file=sys.stderr)
        return None


def _has_word(text: str, name: str) -> bool:
    return name in text.replace("(", " ").replace(")", " ").replace(",", " ").split()


def _row(sessions: dict[str, Session], peak: Timed, work: float, of_peak: float, threads: int, count: int = 1) -> dict[str, Any]:
    """times: milliseconds of one op; rate: GFLOP/s or GB/s; share: of the peak's rate."""
    others = [sessions[name] for name in OTHERS if name in sessions]
    best, ours = min(others, key=lambda s: s.median), sessions["ours"]
    return {
        "threads": threads,
        "times": {name: s.median * 1e3 / count for name, s in sessions.items()},
        "ratio": ratio(best, ours),
        "rate": work / ours.median / 1e9,
        "share": work / ours.median / (of_peak / peak.median),
    }


def report(results: Results) -> str:
    parts = list(results.machines())
    for title, kind, unit, scale in (
        ("Attention, ms: B,H,S,T,D", "attention", ("GFLOP/s or GB/s", "of peak"), 1.0),
        ("Rows, us", "rows", ("GB/s", "of copy"), 1e3),
    ):
        rows = [(key, row) for key, row in results.rows.items() if row["kind"] == kind]
        if rows:
            headings = [title, "threads", *OTHERS, "ours", "best/ours", *unit]
            parts.append(
                markdown(headings, [_cells(row, scale) for _, row in sorted(rows, key=lambda r: (r[1]["threads"], r[1]["place"]))])
            )
    return "\n\n".join(parts)


def _cells(row: dict[str, Any], scale: float) -> list[str]:
    times = [f"{row['times'][name] * scale:.4g}" if name in row["times"] else "-" for name in (*OTHERS, "ours")]
    return [row["name"], str(row["threads"]), *times, f"{row['ratio']:.2f}", f"{row['rate']:.3g}", f"{row['share']:.0%}"]


def measure(options: argparse.Namespace, results: Results) -> None:
    wanted = options.only or ["attention", *(o.name for o in OPERATIONS)]
    chosen = SHAPES if options.shapes is None else [SHAPES[i] for i in options.shapes]
    for place, shape in enumerate(SHAPES):
        if "attention" in wanted and shape in chosen:
            row = attention_row(shape, options.threads, options.seconds)
            results.put(f"attention {shape} x{options.threads}", {"kind": "attention", "name": str(shape), "place": place, **row})
    for place, operation in enumerate(OPERATIONS):
        for size in options.sizes if operation.name in wanted else ():
            row = operation_row(operation, size, options.threads, options.seconds)
            name = f"{operation.name}, {size}"
            results.put(
                f"{name} x{options.threads}", {"kind": "rows", "name": name, "place": place * len(SIZES) + list(SIZES).index(size), **row}
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--only", nargs="*", choices=["attention", *(o.name for o in OPERATIONS)], help="these operators")
    parser.add_argument("--shapes", type=int, nargs="*", help=f"of attention, by number from 0 to {len(SHAPES) - 1}")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES), help="of the other operators")
    parser.add_argument("--results", type=Path, help="a JSON file of rows, added to")
    parser.add_argument("--print", action="store_true", help="only print what --results holds")
    options = parser.parse_args()
    large_pages()
    results = Results(options.results)
    if not options.print:
        measure(options, results)
    print(report(results))


if __name__ == "__main__":
    main()
