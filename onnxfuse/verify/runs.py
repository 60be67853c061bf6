"""One run of one model on one feed: its outputs, or how far it got and why it stopped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from onnxfuse import runtime
from onnxfuse.inputs.sizes import Refusal
from onnxfuse.verify.compare import finite_share

STOPPED_AT = re.compile(r"Name:'([^']*)'")


class Runner:
    """A session that answers with a Refusal instead of an error. `outputs` are their names, in order."""

    def __init__(self, session: Any, model: onnx.ModelProto) -> None:
        self.session = session
        self.outputs = [o.name for o in session.get_outputs()]
        self._place = {node.name: k for k, node in enumerate(model.graph.node) if node.name}

    def __call__(self, feed: Mapping[str, Any]) -> list[Any] | Refusal:
        try:
            return runtime.run(self.session, feed)
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no base but this
            text = runtime.first_line(error)
            place = STOPPED_AT.search(text)
            return Refusal(self._place.get(place[1], 0) if place else 0, text)

    def share(self, feed: Mapping[str, Any]) -> Refusal | float:
        """The share of finite elements in the worst float output, as `inputs.Attempt` wants it."""
        result = self(feed)
        return result if isinstance(result, Refusal) else finite_share(result)


def described(feed: Mapping[str, Any], sizes: Mapping[str, int], regime: str) -> str:
    """What a reader needs to make the feed again: sizes, or the shapes if there are no symbols, and the kind of numbers."""
    shapes = [f"{name}{list(getattr(value, 'shape', ()))}" for name, value in feed.items()]
    named = [f"{name}={size}" for name, size in sizes.items()] or shapes
    return "; ".join(filter(None, (", ".join(named), regime)))


def joined(names: Sequence[str]) -> str:
    """A few names for a message."""
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
