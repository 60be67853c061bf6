"""Where the time of a model goes, operator by operator: what ONNX Runtime's own profiler says."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfuse import runtime
from onnxfuse.errors import VerificationError
from onnxfuse.inputs import Feed
from onnxfuse.inputs.sizes import Refusal
from onnxfuse.verify.loaded import Loaded

WARM_UP = 2  # runs that do not count
KERNEL = "_kernel_time"  # how the profiler ends the name of what a node itself took


@dataclass(frozen=True)
class OpTime:
    """Milliseconds that the nodes of one operator take in a run of the model, and how many there are."""

    op: str
    milliseconds: float
    nodes: int


@dataclass(frozen=True)
class Profile:
    """milliseconds: of a run; ops: its operators, the slowest first. What they leave of it is spent between nodes.

    A node with a body (If, Loop, Scan) counts what the nodes of its body count again.
    """

    milliseconds: float
    ops: tuple[OpTime, ...]


def profile(
    model: Loaded, feed: Feed, libraries: Sequence[str | Path], providers: Sequence[str], *, threads: int = 1, runs: int = 20
) -> Profile:
    """Run the model `runs` times with the profiler on, all optimisations of ONNX Runtime applied.

    Raises ModelError, RuntimeMissingError, VerificationError (the model does not run on `feed`).
    """
    options = runtime.require_onnxruntime().SessionOptions()
    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="onnxfuse-") as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        runner = model.runner(libraries, providers, threads=threads, options=options)
        for _ in range(WARM_UP + runs):
            result: Any = runner(feed)
            if isinstance(result, Refusal):
                raise VerificationError(f"{model.label}: does not run on the inputs made up for it: {result.text}. Give some with --inputs")
        events = json.loads(Path(runner.session.end_profiling()).read_text(encoding="utf-8"))
    return _summed(events)


def _summed(events: Sequence[dict[str, Any]]) -> Profile:
    whole = [e for e in events if e.get("name") == "model_run"][WARM_UP:]
    begin = whole[0]["ts"]
    taken: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL) and event["ts"] >= begin:
            taken[event["args"]["op_name"]].append(event["dur"] / 1e3)
    ops = [OpTime(op, sum(times) / len(whole), round(len(times) / len(whole))) for op, times in taken.items()]
    return Profile(sum(e["dur"] for e in whole) / 1e3 / len(whole), tuple(sorted(ops, key=lambda o: -o.milliseconds)))
