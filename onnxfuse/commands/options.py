"""Reads what options hold, with errors that say what must stand there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxfuse.errors import UsageError
from onnxfuse.report.record import Report


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """`batch=2` and `batch=2,seq=128` as sizes by name. Raises UsageError."""
    found: dict[str, int] = {}
    for text in (part for t in texts for part in t.split(",")):
        name, _, number = text.rpartition("=")
        name = name.strip()
        if not name or not number.strip().isdecimal():
            raise UsageError(f"--shape must be NAME=SIZE with a size of 0 or more, for example --shape batch=8; got '{text}'")
        if found.setdefault(name, int(number)) != int(number):
            raise UsageError(f"--shape gives '{name}' two sizes, {found[name]} and {int(number)}. Keep one")
    return found


def names(texts: Sequence[str]) -> list[str]:
    """`a` and `a,b` as a list of names."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def write_report(found: Report, file: Path, *, output: str | None = None) -> None:
    """Write a report as a page if the file is called .html, else as JSON. output: the model that was written."""
    from onnxfuse.report.document import to_json
    from onnxfuse.report.html import to_html
    from onnxfuse.store import write_text

    made = to_html if file.suffix.lower() in (".html", ".htm") else to_json
    write_text(made(found, output=output), file)


def check_report(report: Path | None, source: Path, *others: Path | None) -> None:
    """Raise UsageError when the report cannot be written, or would replace the model, its data, or another file of the command."""
    from onnxfuse.store import check_not_data, check_target

    if report is None:
        return
    for file in (source, *(other for other in others if other is not None)):
        if report.resolve() == file.resolve() or (report.exists() and file.exists() and report.samefile(file)):
            raise UsageError(f"--report must not be {file}, which the command reads or writes. Name another file")
    check_target(source, report)
    if source.is_file():
        check_not_data(source, report)
