"""The ways to run a model that models.py compares: each prepares a file once, and then gives something to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from timing import Feeds, Session, Timed

import onnxfuse
from onnxfuse.generated.candidates import GENERATORS

Outputs = list[np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model of the zoo in its folder."""

    name: str
    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "model.onnx"

    def feeds(self) -> Feeds:
        with np.load(self.folder / "feeds.npz") as loaded:
            return {name: np.asarray(loaded[name]) for name in loaded.files}


class Running(Timed):
    """A model ready to be timed, and what it gives."""

    def __init__(self, run: Callable[[], object], results: Callable[[], Outputs], threads: int) -> None:
        super().__init__(run, threads)
        self.results = results


Prepare = Callable[[Subject, Path], None]
Start = Callable[[Subject, Path, int], Running]


@dataclass(frozen=True)
class Peer:
    """prepare: writes what `start` loads; nothing to write where the source will do."""

    prepare: Prepare | None
    start: Start


def _ort(subject: Subject, path: Path, threads: int) -> Running:
    session = Session(path, subject.feeds(), threads)
    return Running(session.run, session.results, threads)


def _transformers_optimizer(subject: Subject, path: Path) -> None:
    from model_zoo import build
    from onnxruntime.transformers.optimizer import optimize_model

    built = build(subject.name)
    made = optimize_model(str(subject.source), model_type=built.family, num_heads=built.heads, hidden_size=built.hidden)
    made.save_model_to_file(str(path))


def _onnxscript(subject: Subject, path: Path) -> None:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model, _ = optimize_for_ort(onnx_ir.load(subject.source))
    onnx_ir.save(model, path)


def _onnxfuse(level: str, disable: Sequence[str] = ()) -> Prepare:
    def prepare(subject: Subject, path: Path) -> None:
        onnxfuse.optimize(subject.source, path, level=level, disable=disable, verify=False)

    return prepare


def _openvino(subject: Subject, path: Path, threads: int) -> Running:
    import openvino

    core: Any = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    compiled = core.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    feeds = subject.feeds()
    for port in compiled.inputs:
        request.set_tensor(port, openvino.Tensor(feeds[port.get_any_name()]))

    def results() -> Outputs:
        request.infer()
        return [np.array(request.get_tensor(port).data) for port in compiled.outputs]

    return Running(request.infer, results, threads)


def _torch_compile(subject: Subject, path: Path, threads: int) -> Running:
    import torch
    from model_zoo import build

    torch.set_num_threads(threads)
    module = torch.compile(build(subject.name).module)
    inputs = [torch.from_numpy(x) for x in subject.feeds().values()]

    def results() -> Outputs:
        with torch.inference_mode():
            given = module(*inputs)
        return [x.numpy() for x in (given if isinstance(given, tuple) else (given,))]

    return Running(results, results, threads)


PEERS = {
    "ORT": Peer(None, _ort),
    "ORT transformers": Peer(_transformers_optimizer, _ort),
    "onnxscript": Peer(_onnxscript, _ort),
    "cost": Peer(_onnxfuse("cost"), _ort),
    "named": Peer(_onnxfuse("cost", disable=list(GENERATORS)), _ort),
    "all": Peer(_onnxfuse("all"), _ort),
    "OpenVINO": Peer(None, _openvino),
    "torch.compile": Peer(None, _torch_compile),
}
