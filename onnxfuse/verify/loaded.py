"""A model to run: its graph, where its weights lie, and the sessions made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import onnx

from onnxfuse import graph, runtime
from onnxfuse.verify.isolated import Job
from onnxfuse.verify.runs import Runner

Source: TypeAlias = "str | Path | onnx.ModelProto | graph.Model"


@dataclass(frozen=True)
class Loaded:
    """A model by its proto (weights may lie in `folder`) and, if it came from there, its file."""

    proto: onnx.ModelProto
    path: Path | None
    folder: Path | None

    @property
    def label(self) -> str:
        return str(self.path) if self.path else runtime.label(self.proto)

    def runner(self, libraries: Sequence[str | Path], providers: Sequence[str] | None, **options: Any) -> Runner:
        """A session of `onnxfuse.session.session`, with its options."""
        source, folder = (self.path, None) if self.path else (self.proto, self.folder)
        return Runner(runtime.session(source, providers, libraries=libraries, folder=folder, **options), self.proto)

    def job(self, libraries: Sequence[str | Path], providers: Sequence[str], temporary: Path, *, register: bool = True) -> Job:
        """Work for a process of its own; a proto is saved in `temporary` for it."""
        path = self.path or temporary / "model.onnx"
        if self.path is None:
            path.write_bytes(self.proto.SerializeToString())
        folder = None if self.path or self.folder is None else str(self.folder)
        return Job(str(path), tuple(map(str, libraries)), tuple(providers), register, folder)


def load(source: Source, folder: Path | None) -> Loaded:
    """Read what there is to know without its weights. folder: of the external data of a proto. Raises ModelError."""
    if isinstance(source, graph.Model):
        return Loaded(source.proto, None, source.folder or folder)
    if isinstance(source, onnx.ModelProto):
        return Loaded(source, None, folder)
    path = Path(source)
    return Loaded(graph.read_proto(path), path, path.parent)
