"""Whole models on the CPU: ONNX Runtime, what other tools make of the same file, and what onnxfuse makes of it.

    python benchmarks/models.py CACHE [--models BERT S=512 ...] [--peers ORT cost ...] [--threads 1] [--seconds 4]
        [--loads 3] [--results FILE.json] [--missing] [--prepare] [--print] [--memory]

Needs what model_zoo.py needs (torch==2.13.0 for the CPU, transformers), and for the peers of their names onnxscript and
openvino. Models come from their configuration with random weights, in float32, are exported once into the folder CACHE, and
optimised there once by each tool. Then all peers run one model in turns in one process, and that three times, loaded anew; a
cell is the median of three medians. ORT: ONNX Runtime at all its optimisations. ORT transformers: its python optimizer
first. onnxscript: optimize_for_ort first. cost, all: onnxfuse at these levels first; named: at level cost, with nothing
generated. These five run at all optimisations too.
Outputs must agree with those of ORT; where they do not, or a tool fails, the cell says so. `best/cost`: the fastest of the
first three over onnxfuse at level cost; above 1, ours is faster.
--prepare exports and optimises and times nothing. --results keeps rows in a file, so that a table may be measured in pieces;
--print only prints it. --memory measures instead what a run of one attention adds to the memory of a process.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from attention_forms import FORMS, Shape, operands
from model_peers import PEERS, Running, Subject
from timing import Results, Session, in_turns, large_pages, markdown

ONNX_RUNTIME = ("ORT", "ORT transformers", "onnxscript")
LARGE = Shape(1, 16, 16, 2048, 2048, 64)  # whose score matrix takes 268 MB


def prepared(subject: Subject, peer: str) -> Path:
    """The file that a peer loads, made where it is not there. Raises what the tool raises."""
    if not subject.source.is_file():
        from model_zoo import export

        subject.folder.mkdir(parents=True, exist_ok=True)
        export(subject.name, subject.source, subject.folder / "feeds.npz")
    prepare, path = PEERS[peer].prepare, subject.folder / f"{peer.replace(' ', '_')}.onnx"
    if prepare is None:
        return subject.source
    if not path.is_file():
        prepare(subject, path)
    return path


def measured(subject: Subject, peers: list[str], threads: int, seconds: float, loads: int) -> dict[str, Any]:
    """times: milliseconds by peer; failures: why a peer has none.

    Every peer is loaded `loads` times, each time in another order: where its weights come to lie in memory makes a
    difference of a quarter.
    """
    times: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for load in range(loads):
        turned = [peers[0], *peers[1 + load :], *peers[1 : 1 + load]]
        running = _running(subject, [peer for peer in turned if peer not in failures], threads, failures)
        in_turns(list(running.values()), seconds / loads, least=3)
        for peer, one in running.items():
            times.setdefault(peer, []).append(one.median)
    middle = {peer: statistics.median(found) * 1e3 for peer, found in times.items()}
    row = {"name": subject.name, "threads": threads, "times": middle, "failures": failures}
    rivals = [middle[p] for p in ONNX_RUNTIME if p in middle]
    if rivals and "cost" in middle:
        row["best/cost"] = min(rivals) / middle["cost"]
    return row


def _running(subject: Subject, peers: list[str], threads: int, failures: dict[str, str]) -> dict[str, Running]:
    """The peers, ready to be timed; those that cannot do this model are added to `failures`."""
    running: dict[str, Running] = {}
    want: list[np.ndarray] | None = None
    for peer in peers:
        try:
            started = PEERS[peer].start(subject, prepared(subject, peer), threads)
            got = started.results()
            want = got if want is None else want
            _check(got, want)
            running[peer] = started
        except Exception as error:  # a tool that cannot do this model: the others go on
            failures[peer] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            print(f"{subject.name}: {peer}: {failures[peer]}", file=sys.stderr)
    return running


def _check(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    """Tools may drop or reorder no output; float32 through some layers keeps about four digits."""
    if len(got) != len(want):
        raise ValueError(f"gives {len(got)} outputs, not {len(want)}")
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 * max(1.0, float(np.abs(b).max())), rtol=0)


def report(results: Results) -> str:
    rows = sorted(results.rows.values(), key=lambda row: (row["threads"], row["place"]))
    headings = ["ms", "threads", *PEERS, "best/cost"]
    parts = [*results.machines(), markdown(headings, [_cells(row) for row in rows])]
    for threads in sorted({row["threads"] for row in rows}):
        for what, chosen in (("S=512", lambda name: "S=512" in name), ("all rows", lambda name: True)):
            ratios = [row["best/cost"] for row in rows if row["threads"] == threads and "best/cost" in row and chosen(row["name"])]
            if ratios:
                parts.append(f"Geometric mean of best/cost, {threads} thread(s), {what}: {statistics.geometric_mean(ratios):.2f}")
    failed = [f"{row['name']}, {peer}: {why}" for row in rows if row["threads"] == 1 for peer, why in row["failures"].items()]
    return "\n\n".join([*parts, *(["Not run:\n" + "\n".join(failed)] if failed else [])])


def _cells(row: dict[str, Any]) -> list[str]:
    times = [f"{row['times'][p]:.4g}" if p in row["times"] else "failed" if p in row["failures"] else "-" for p in PEERS]
    return [row["name"], str(row["threads"]), *times, f"{row['best/cost']:.2f}" if "best/cost" in row else "-"]


def peak_memory(form: str) -> int:
    """Bytes that running one form of a large attention adds to the peak of this process."""
    made = FORMS[form](LARGE, operands(LARGE))
    assert made is not None  # every form has this shape
    session = Session(*made, threads=1)
    before = _peak()
    session.run()
    return _peak() - before


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def print_memory() -> None:
    """Each form in a process of its own."""
    rows = []
    for form in FORMS:
        command = [sys.executable, __file__, "-", "--memory-of", form]
        added = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append([form, f"{added / 1e6:.0f}"])
    print(f"A run of attention {LARGE} adds to the peak of memory, MB (its output has {math.prod((16, 2048, 64)) * 4 / 1e6:.0f}):\n")
    print(markdown(["form", "MB"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="a folder for the models")
    parser.add_argument("--models", nargs="*", default=[""], help="those whose names hold one of these")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each model")
    parser.add_argument("--loads", type=int, default=3, help="how often each peer is loaded anew")
    parser.add_argument("--missing", action="store_true", help="leave out what --results holds already")
    parser.add_argument("--results", type=Path, help="a JSON file of rows, added to")
    parser.add_argument("--prepare", action="store_true", help="only export and optimise")
    parser.add_argument("--print", action="store_true", help="only print what --results holds")
    parser.add_argument("--memory", action="store_true", help="only the memory of attention")
    parser.add_argument("--memory-of", choices=list(FORMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        return print(peak_memory(options.memory_of))
    if options.memory:
        return print_memory()
    large_pages()
    results = Results(options.results)
    if not options.print:
        run(options, results)
    if not options.prepare:
        print(report(results))


def run(options: argparse.Namespace, results: Results) -> None:
    from model_zoo import MODELS

    for place, name in enumerate(MODELS):
        if not any(part in name for part in options.models):
            continue
        subject = Subject(name, options.cache / "".join(c if c.isalnum() else "_" for c in name))
        if options.prepare:
            for peer in options.peers:
                _try_to_prepare(subject, peer)
        else:
            key = f"{name} x{options.threads}"
            if not (options.missing and key in results.rows):
                row = measured(subject, options.peers, options.threads, options.seconds, options.loads)
                results.put(key, {**row, "place": place})


def _try_to_prepare(subject: Subject, peer: str) -> None:
    try:
        prepared(subject, peer)
    except Exception as error:  # said again, and kept, where it is measured
        print(f"{subject.name}: {peer}: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
