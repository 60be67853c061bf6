"""`--opset`: a model under a later opset, so that operators which came since can be written. ONNX's own converter does it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.version_converter

from onnxfuse import graph
from onnxfuse.errors import ModelError, UsageError
from onnxfuse.graph import STANDARD_DOMAINS, Model


def opset_of(proto: onnx.ModelProto) -> int:
    """The opset of standard operators that a model imports; 0 if it imports none."""
    return max((o.version for o in proto.opset_import if o.domain in STANDARD_DOMAINS), default=0)


def raised(model: Model, opset: int) -> Model:
    """The model under opset `opset`, indexed; its weights stay where they are.

    Raises UsageError when it has a later one already or ONNX knows none so late, ModelError when it cannot be converted.
    """
    newest, have = onnx.defs.onnx_opset_version(), opset_of(model.proto)
    if not have <= opset <= newest:
        raise UsageError(f"--opset must be from {have}, which the model has, to {newest}, the latest that is known here; got {opset}")
    return graph.index(_converted(model.proto, opset, model.path), model.folder, model.path) if have < opset else model


def _converted(proto: onnx.ModelProto, opset: int, path: Path | None) -> onnx.ModelProto:
    name = path or "the model"
    if proto.functions:
        raise ModelError(f"{name}: has functions of its own, which ONNX's converter does not raise to opset {opset}. Leave --opset out")
    try:
        made = onnx.version_converter.convert_version(proto, opset)
    except Exception as error:  # noqa: BLE001  # the converter raises whatever its C++ code meets
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name}: cannot be raised to opset {opset}: {reason}. Leave --opset out, or export it again") from None
    made.ir_version = max(made.ir_version, onnx.helper.find_min_ir_version_for(list(made.opset_import), ignore_unknown=True))
    return made
