"""What happened to a model: the record (`record`), and how people and programs read it."""

from onnxfuse.report.record import Report

__all__ = ["Report"]
