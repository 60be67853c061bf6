"""`onnxfuse kernels show`: what fused operators run as on a GPU, in text and in figures. Nothing runs, no GPU is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxfuse import gpu_code, graph, shapes
from onnxfuse.commands import screen
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices
from onnxfuse.cost.occupancy import occupancy
from onnxfuse.cost.typical import typical
from onnxfuse.errors import UsageError
from onnxfuse.gpu_code import Kernels
from onnxfuse.graph import Node
from onnxfuse.kernel_build.build import has_kernels
from onnxfuse.op import DOMAIN, TYPE_NAMES
from onnxfuse.report.tables import table
from onnxfuse.symbolic import Dim, substitute, symbols

ARCHS = (75, 80, 86, 89, 90, 100, 120)


def show(source: Path, node: str | None, *, archs: Sequence[int], sizes: Mapping[str, int]) -> None:
    """A table of registers, spills and occupancy for every operator of ours; of one node its programs and their CUDA text before it.

    archs: 90 for sm_90; none given: those that we know. sizes: of symbolic dims; others have the sizes usual for their names.
    """
    model = graph.load(source)
    shapes.infer(model)
    ours = [n for n in model.main.nodes if n.domain == DOMAIN and node in (None, n.label, *(o.name for o in n.outputs if o))]
    if not ours:
        raise UsageError(f"{source} has no operator of {DOMAIN}{'' if node is None else f' called {node!r}'}. Optimise it first")
    made = table("", "Node", "Operator", "Kernel", "Blocks", "Arch", "Registers", "Stack B", "Spills B", "Shared B", "Occupancy")
    for one in ours:
        try:
            found = _kernels(one, sizes)
        except UsageError as error:
            made.add_row(one.label, one.op, f"none: {_why_not(_name(one), error)}", *[""] * 7)
            continue
        for number, kernels in enumerate(found):
            if node is not None:
                _say_text(kernels, number)
            for row in _rows(kernels, archs or ARCHS):
                made.add_row(one.label, one.op, *row)
    screen.out().print(made)


def _name(node: Node) -> str:
    """Of the operator, without the number of a variant."""
    return node.op if "program" in node.attributes else node.op.split("_")[0]


def _why_not(op: str, error: UsageError) -> str:
    more = "; `onnxfuse kernels build` compiles those that it has" if has_kernels(op) else ""
    return str(error).removeprefix(f"{op}: ") + more


def _kernels(node: Node, sizes: Mapping[str, int]) -> list[Kernels]:
    inputs = []
    for value in node.inputs:
        if value is not None and value.shape is None:
            raise UsageError(f"the rank of {value.name} is not known")
        inputs.append(None if value is None else (TYPE_NAMES.get(value.dtype, ""), [_number(d, sizes) for d in value.shape or ()]))
    return gpu_code.kernels_of(_name(node), node.attributes, inputs, len(node.outputs))


def _number(dim: Dim, sizes: Mapping[str, int]) -> int:
    number = substitute(dim, {name: sizes.get(name, typical(name)) for name in symbols(dim)})
    assert isinstance(number, int)
    return number


def _say_text(kernels: Kernels, number: int) -> None:
    screen.say(
        f"Program {number + 1}, {' then '.join(kernels.names)}: {kernels.grid[0]} x {kernels.grid[1]} blocks of {kernels.threads} threads"
    )
    screen.say(kernels.program)
    screen.say("\nCUDA C++\n" + kernels.source)


def _rows(kernels: Kernels, archs: Sequence[int]) -> list[list[str]]:
    rows = []
    for arch in archs:
        for made in gpu_code.compiled(kernels.source, arch):
            gpu = next((d for d in devices().values() if isinstance(d, Gpu) and d.compute_capability == f"{arch // 10}.{arch % 10}"), None)
            fits = occupancy(gpu, threads=kernels.threads, registers=made.registers, smem=made.smem) if gpu else None
            share = "" if fits is None else f"{fits.fraction:.0%} by {fits.limiter}"
            figures = (made.registers, made.stack, made.spills, made.smem)
            blocks = kernels.grid[0] * kernels.grid[1]
            rows.append([made.name, str(blocks), f"sm_{arch}", *map(str, figures), share])
    return rows
