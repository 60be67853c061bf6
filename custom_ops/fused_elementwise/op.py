"""FusedElementwise: what `program` computes of each element, in one pass over memory.

The inputs are broadcast to one shape, which is that of every output. docs/generated.md has the form of programs.
"""

from __future__ import annotations

from functools import partial

from onnxfuse.generated.signature import formals, function, limits, output_shapes
from onnxfuse.op import Op

NAMES = 40  # by which the library knows it: FusedElementwise, FusedElementwise_2, ...

FUSED_ELEMENTWISE = Op(
    signature="FusedElementwise(x: any...) -> (y: any...)",
    types={},
    attributes={"program": ""},
    reference="",
    tolerance={"float": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2, "double": 1e-13},
    output_shapes=output_shapes,
    limits=limits,
    formals=formals,
    function=partial(function, "FusedElementwise", ("program",)),
)
