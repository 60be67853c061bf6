"""Registers of a generated kernel before it is compiled: an estimate, replaced by the compiler's figure where there is one.

Fitted to 84 kernels that ptxas 13.0 compiled for sm_80, sm_90 and sm_100 (1 to 24 inputs of 1 to 8 float32 values each, all
needed at the end; rms error 4.5 registers, at most 12): pressure follows the values that are alive at the same time, not
the number of operations.
"""

from __future__ import annotations

from math import ceil

from onnxfuse.cost.occupancy import round_up
from onnxfuse.cost.types import BITS

BASE = 8.0  # addresses, indices, the loop
PER_LIVE_WORD = 1.12
FLOOR = 32  # compilers do not trim below the count at which occupancy is full


def estimate_registers(live_words: int) -> int:
    """Registers per thread with `live_words` 32-bit values alive at the same time; above 255 they would spill."""
    need = ceil(BASE + PER_LIVE_WORD * live_words)
    return FLOOR if need <= FLOOR else round_up(need, 8)


def live_words(operands: int, vector: int, dtype: str) -> int:
    """32-bit values one thread holds: `vector` elements of each operand, narrow types widened to 32 bits."""
    return operands * vector * max(1, ceil(BITS[dtype] / 32))
