"""Tests a rule file: its own examples, then models made up from its patterns."""

from __future__ import annotations

import onnx
import onnx.parser

DEFAULT_OPSET = 17


def parse(text: str, opset: int = DEFAULT_OPSET, ir_version: int = 8) -> onnx.ModelProto:
    """A worked example as a model: ONNX text, its header `<opset_import: ["" : 20]>` optional."""
    head = "" if text.lstrip().startswith("<") else f'<opset_import: ["" : {opset}]>\n'
    model = onnx.parser.parse_model(head + text)
    model.ir_version = model.ir_version or ir_version
    return model
