"""Runs in a process of their own: ONNX Runtime's optimisations crash on some valid models, and must not take us along.

The parent writes a folder with the feeds and the jobs; the child (`main`) writes the outputs of each job in turn, so
that the first job without a result is the one that crashed.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

import onnxfuse
from onnxfuse import runtime
from onnxfuse.errors import OnnxFuseError
from onnxfuse.inputs import Feed

Outputs = list[Any]

# Without the current folder, which `-c` puts first: a source tree in it is not what runs here.
CHILD = (
    "import sys, pathlib; sys.path = [p for p in sys.path if p]; from onnxfuse.verify.isolated import main; main(pathlib.Path(sys.argv[1]))"
)


class Crash(str):
    """How the child ended that should have done a job."""


@dataclass(frozen=True)
class Job:
    """A model file to load, with every optimisation on, and run on every feed. folder: of its external data, if not its own."""

    model: str
    libraries: tuple[str, ...]
    providers: tuple[str, ...]
    register: bool
    folder: str | None


def run_isolated(jobs: Sequence[Job], feeds: Sequence[Feed]) -> list[list[Outputs | str] | str]:
    """Return, per job, the outputs per feed; a text says instead why a feed or a whole job failed, a `Crash` that it crashed."""
    with tempfile.TemporaryDirectory(prefix="onnxfuse-") as name:
        folder = Path(name)
        (folder / "feeds.pickle").write_bytes(pickle.dumps(list(feeds)))
        results: list[list[Outputs | str] | str] = []
        while len(results) < len(jobs):
            left = jobs[len(results) :]
            (folder / "jobs.json").write_text(json.dumps([asdict(job) for job in left]))
            status = subprocess.run([sys.executable, "-c", CHILD, name], capture_output=True, check=False, env=_environment())
            done = [_take(folder / f"{k}.pickle") for k in range(len(left)) if (folder / f"{k}.pickle").exists()]
            results += done
            if len(done) < len(left):
                results.append(_ending(status))
        return results


def _environment() -> dict[str, str]:
    """Ours, such that the child finds the package where we found it."""
    paths = [str(Path(folder).parent) for folder in onnxfuse.__path__] + [os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _take(path: Path) -> Any:
    result = pickle.loads(path.read_bytes())
    path.unlink()
    return result


def _ending(status: subprocess.CompletedProcess[bytes]) -> Crash:
    if status.returncode < 0:
        return Crash(f"ONNX Runtime crashed (signal {-status.returncode})")
    lines = status.stderr.decode(errors="replace").strip().splitlines()
    return Crash(f"ONNX Runtime ended with exit code {status.returncode}: {lines[-1] if lines else 'nothing said'}")


def _run(job: Job, feeds: Sequence[Feed]) -> list[Outputs | str] | str:
    try:
        session = runtime.session(
            onnx.load(job.model, load_external_data=False) if job.folder else job.model,
            job.providers,
            libraries=job.libraries,
            register=job.register,
            folder=Path(job.folder) if job.folder else None,
        )
    except OnnxFuseError as error:
        return str(error)
    return [_outputs(session, feed) for feed in feeds]


def _outputs(session: Any, feed: Feed) -> Outputs | str:
    try:
        return runtime.run(session, feed)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no base but this
        return runtime.first_line(error)


def main(folder: Path) -> None:
    """The child: do the jobs one after the other."""
    feeds = pickle.loads((folder / "feeds.pickle").read_bytes())
    for k, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        result = _run(Job(**job), feeds)
        part = folder / f"{k}.part"
        part.write_bytes(pickle.dumps(result))
        part.rename(folder / f"{k}.pickle")
