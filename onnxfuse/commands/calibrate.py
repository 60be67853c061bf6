"""`onnxfuse calibrate`: measure this CPU once, so that decisions fit it."""

from __future__ import annotations

from onnxfuse.calibration import calibrate
from onnxfuse.commands import screen
from onnxfuse.cost.calibrate import profile_path


def run() -> None:
    """Write the profile and say what was found; what to doubt, if the machine was busy."""
    with screen.progress() as (tick, _):
        tick("measure", 0, 1)
        cpu = calibrate()
    caches = ", ".join(f"L{cache.level} {cache.gbs:.0f}" for cache in cpu.caches)
    screen.say(f"Products  {cpu.gemm_gflops:.0f} GFLOP/s on one core of {cpu.cores}")
    screen.say(f"Copies    {caches}, memory {cpu.memory_gbs:.0f} GB/s on one core, {cpu.memory_gbs_all:.0f} on all")
    ours = cpu.fused_node_us + 3 * cpu.fused_operand_us
    screen.say(
        f"Calls     {cpu.node_us + cpu.operand_us:.2f} us for an operator of ONNX Runtime with 3 operands, {ours:.2f} us for one of ours"
    )
    screen.say(f"Written   {profile_path()}: --device auto and cpu use it")
    if cpu.note:
        screen.say(f"Doubtful  {cpu.note}. Run it again when less is going on")
