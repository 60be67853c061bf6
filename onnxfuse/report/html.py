"""The report as one page that needs no network: graph, roofline, decisions, and what would be decided elsewhere."""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from onnxfuse.report.document import document, plain
from onnxfuse.report.record import Report


def to_html(report: Report, *, output: str | None = None) -> str:
    """The text of the page. output: the file that was written."""
    shown = report.exhibit() if report.exhibit is not None else {}
    return page(document(report, output=output), shown)


def page(report: dict[str, Any], exhibit: dict[str, Any]) -> str:
    """The page of a report's document and what is shown beside it."""
    parts = {
        "title": html.escape(f"onnxfuse: {report['model']}"),
        "style": _file("style.css"),
        "cost": _file("cost.js"),
        "layout": _file("layout.js"),
        "app": _file("app.js"),
        "report": _json(report),
        "exhibit": _json(plain(exhibit)),
    }
    text = _file("page.html")
    pieces = text.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def _file(name: str) -> str:
    return resources.files("onnxfuse.report").joinpath("web").joinpath(name).read_text(encoding="utf-8").rstrip()


def _json(value: Any) -> str:
    """JSON that no browser takes for markup, whatever names the model holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
