"""FusedReduction: what `program` computes of each row and of its elements, with the row read once.

The inputs are broadcast to one shape, whose last `axes` axes are the row; outputs have that shape, or one number for each
row. docs/generated.md has the form of programs.
"""

from __future__ import annotations

from functools import partial

from onnxfuse.generated.signature import formals, function, limits, output_shapes
from onnxfuse.op import Op

NAMES = 24  # by which the library knows it: FusedReduction, FusedReduction_2, ...

FUSED_REDUCTION = Op(
    signature="FusedReduction(x: any...) -> (y: any...)",
    types={},
    attributes={"program": "", "axes": 1},
    reference="",
    # a sum of a thousand numbers of either sign is off by a part of their size, not of its own
    tolerance={"float": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "double": 1e-12},
    output_shapes=output_shapes,
    limits=limits,
    formals=formals,
    function=partial(function, "FusedReduction", ("program", "axes")),
)
