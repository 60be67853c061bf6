"""Random programs of generated operators: our library against the body in ONNX Runtime.

    python benchmarks/fuzz_programs.py [--count 10000] [--first 0]

Prints each program that differs, made as small as it gets, with the seed that made it, and a table of what was run. Exits
with 1 when one differs. A difference becomes a named test in tests/generated/test_fuzz.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

from onnxfuse.generated.fuzz import difference, shrunk
from onnxfuse.generated.made_up import Example, made_up


def show(seed: int, example: Example) -> None:
    """The example as a test would state it, and how it differs."""
    shapes = " ".join(f"{array.dtype}{list(array.shape)}" for array in example.arrays)
    print(f"seed {seed}: {difference(example)}\naxes {example.axes}, inputs {shapes}\n{example.program.text}\n", flush=True)


def tally(console: Console, primitives: Counter[str], kinds: Counter[str]) -> None:
    """Two tables: steps by primitive, values by type."""
    for title, counts in (("primitive", primitives), ("type", kinds)):
        table = Table(title, "steps")
        for name, count in counts.most_common():
            table.add_row(name, f"{count:,}")
        console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    primitives: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    differ, start = 0, time.monotonic()
    for seed in range(options.first, options.first + options.count):
        example = made_up(seed)
        primitives.update(example.program.ops)
        kinds.update(step.type for step in example.program.steps)
        if difference(example) is not None:
            differ += 1
            show(seed, shrunk(example))
    tally(Console(width=100), primitives, kinds)
    print(f"{options.count:,} programs in {time.monotonic() - start:.0f} s, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
