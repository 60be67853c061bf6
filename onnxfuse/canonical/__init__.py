"""The canonical view of a graph, see `view`; what each operator means to it is in the other modules here."""

from onnxfuse.canonical import arithmetic, composites, layouts, products
from onnxfuse.canonical.view import FLOATS, View

__all__ = ["FLOATS", "View", "arithmetic", "composites", "layouts", "products"]
