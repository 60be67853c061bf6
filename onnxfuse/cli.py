"""The command line: options and their help. What a command does stands in `onnxfuse.commands`.

Nothing heavy is imported before a command runs, so that `--help` is there at once.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.commands.screen import errors_told

app = typer.Typer(
    help="Fuse subgraphs of ONNX models into operators that do them in one kernel: chosen by a cost model, verified, portable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[Path, typer.Argument(metavar="IN", help="An .onnx file; external data is found beside it.", show_default=False)]
Device = Annotated[str, typer.Option(help="What to decide for: cpu, auto, or a name of `onnxfuse devices`.")]
Level = Annotated[
    str, typer.Option(help="none: copy. elementwise: pointwise and norms. cost: what the cost model finds worth it. all: all that matches.")
]
Dialect = Annotated[
    str,
    typer.Option(
        "--target", help="onnxfuse: our operators. contrib: ONNX Runtime's own, where it has a kernel. standard: those of ONNX alone."
    ),
]
Shape = Annotated[list[str], typer.Option(metavar="NAME=SIZE", help="The size of a symbolic dim, as batch=8. May be repeated.")]
Rules = Annotated[list[Path], typer.Option(metavar="FILE", help="A Python file with further rules. May be repeated.")]
Only = Annotated[list[str], typer.Option(metavar="RULE", help="Use this rule and no other. May be repeated.")]
Disable = Annotated[list[str], typer.Option(metavar="RULE", help="Leave this rule out. May be repeated.")]
MaxFusionSize = Annotated[int, typer.Option(min=1, metavar="N", help="The most nodes that one fusion may take.")]
RangeLoss = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="PERCENT",
        help="What the model may lose at some size of a symbolic dim without --shape, by fusions that pay at usual sizes.",
    ),
]
Inputs = Annotated[Path | None, typer.Option(metavar="FILE.npz", help="Run on these inputs: an array for each, by name.")]
Library = Annotated[list[Path], typer.Option(metavar="FILE", help="A custom-op library that the model needs. May be repeated.")]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the report too: FILE.html as a page to look at, FILE.json for programs."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print a line per decision, and tracebacks.")]


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=lambda on: _version(on))
    ] = False,
) -> None:
    """Options that stand before the command."""


def _version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"onnxfuse {metadata.version('onnxfuse')}")
    except metadata.PackageNotFoundError:
        typer.echo("onnxfuse, run from its source tree")
    raise typer.Exit


@app.command()
def optimize(
    source: Model,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write the optimised model.", show_default=False)],
    device: Device = "cpu",
    level: Level = "cost",
    dialect: Dialect = "onnxfuse",
    shape: Shape = [],  # noqa: B006  # typer reads the default, nobody changes it
    rules: Rules = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    disable: Disable = [],  # noqa: B006
    max_fusion_size: MaxFusionSize = 64,
    range_loss: RangeLoss = 5,
    verify: Annotated[bool, typer.Option(help="Compare each rewrite, and the whole model, with the original.")] = True,
    inputs: Inputs = None,
    library: Library = [],  # noqa: B006
    opset: Annotated[int | None, typer.Option(metavar="N", help="Raise the model to this opset first, for what came since.")] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Take away what the model does not need, too: known sizes, what is computed twice, dead code.")
    ] = False,
    report: ReportFile = None,
    verbose: Verbose = False,
) -> None:
    """Write a model in which what is worth it is fused, and say what was fused and why."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import optimize
        from onnxfuse.commands.options import names, sizes

        selection = optimize.Selection(
            device, level, dialect, sizes(shape), rules, names(only), names(disable), max_fusion_size, range_loss
        )
        optimize.run(
            source,
            target,
            selection,
            verify=verify,
            inputs=inputs,
            libraries=library,
            opset=opset,
            clean=clean,
            report=report,
            verbose=verbose,
        )


@app.command()
def verify(
    a: Annotated[Path, typer.Argument(metavar="A", help="The original.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model that must give the same numbers.", show_default=False)],
    shape: Shape = [],  # noqa: B006
    inputs: Inputs = None,
    library: Library = [],  # noqa: B006
    verbose: Verbose = False,
) -> None:
    """Run two models on the same inputs and compare their outputs; exit 1 if they differ."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import verify
        from onnxfuse.commands.options import sizes

        verify.run(a, b, shapes=sizes(shape), inputs=inputs, libraries=library)


@app.command()
def explain(
    source: Model,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Only what was decided about this node or value.")] = None,
    rule: Annotated[str | None, typer.Option(metavar="RULE", help="Only what this rule found.")] = None,
    strategies: Annotated[
        bool, typer.Option("--strategies", help="Only launches, traffic, time and peak memory with nothing, some and all of it fused.")
    ] = False,
    device: Device = "cpu",
    level: Level = "cost",
    dialect: Dialect = "onnxfuse",
    shape: Shape = [],  # noqa: B006
    rules: Rules = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    disable: Disable = [],  # noqa: B006
    max_fusion_size: MaxFusionSize = 64,
    range_loss: RangeLoss = 5,
    report: ReportFile = None,
    verbose: Verbose = False,
) -> None:
    """Say what would be fused and what not, why, and how far patterns got that did not match. Nothing is written."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import explain, optimize
        from onnxfuse.commands.options import names, sizes

        selection = optimize.Selection(
            device, level, dialect, sizes(shape), rules, names(only), names(disable), max_fusion_size, range_loss
        )
        explain.run(source, selection, node=node, rule=rule, strategies=strategies, report=report)


@app.command()
def bench(
    a: Model,
    b: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="The model to compare with it, optimised.", show_default=False)] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of ONNX Runtime.")] = 1,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each; without it, as many as fit in a few seconds.")] = None,
    shape: Shape = [],  # noqa: B006
    inputs: Inputs = None,
    library: Library = [],  # noqa: B006
    profile: Annotated[bool, typer.Option("--profile", help="Also show the time of each operator, in runs of their own.")] = False,
    verbose: Verbose = False,
) -> None:
    """Time a model, or two in turns, both with all optimisations of ONNX Runtime."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import bench
        from onnxfuse.commands.options import sizes

        bench.run(a, b, threads=threads, runs=runs, shapes=sizes(shape), inputs=inputs, libraries=library, profile=profile)


rules_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(rules_app, name="rules")


@rules_app.callback()
def list_rules(context: typer.Context, rules: Rules = [], verbose: Verbose = False) -> None:  # noqa: B006
    """List the fusions that are looked for."""
    if context.invoked_subcommand is not None:
        return
    with errors_told(verbose=verbose):
        from onnxfuse.commands import listings

        listings.rules(rules)


@rules_app.command("test")
def test_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with rules.", show_default=False)],
    models: Annotated[int, typer.Option(min=0, help="Models to make up for each rule.")] = 60,
    seed: Annotated[int, typer.Option(help="Another number makes up other models.")] = 0,
    folder: Annotated[
        Path, typer.Option("--counterexamples", metavar="FOLDER", help="Where to write models that a rule gets wrong.")
    ] = Path(),
    library: Library = [],  # noqa: B006
    verbose: Verbose = False,
) -> None:
    """Test a rule file: its own examples, then models made up from its patterns; exit 1 if a rewrite changes a number."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import rules_test

        rules_test.run(file, models=models, seed=seed, libraries=library, folder=folder)


@app.command("ops")
def list_ops(verbose: Verbose = False) -> None:
    """List the operators that models may be fused into, with their signatures."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import listings

        listings.ops()


@app.command("devices")
def list_devices(verbose: Verbose = False) -> None:
    """List the devices that the cost model knows."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import listings

        listings.known_devices()


@app.command()
def calibrate(verbose: Verbose = False) -> None:
    """Measure this CPU, so that --device cpu and auto decide for it; about half a minute, three times that on a busy machine."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import calibrate

        calibrate.run()


kernels_app = typer.Typer(help="Look at the GPU kernels of fused operators, and build them.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(kernels_app, name="kernels")


@kernels_app.command("show")
def show_kernels(
    source: Model,
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="Only this node, with its text.", show_default=False)] = None,
    arch: Annotated[list[int], typer.Option(metavar="NUMBER", help="90 for sm_90. May be repeated; without it, all we know.")] = [],  # noqa: B006
    shape: Shape = [],  # noqa: B006
    verbose: Verbose = False,
) -> None:
    """Show the CUDA kernels of a model's fused operators: programs, text, registers, spills, occupancy. No GPU is needed."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import kernels
        from onnxfuse.commands.options import sizes

        kernels.show(source, node, archs=arch, sizes=sizes(shape))


@kernels_app.command("build")
def build_kernels(
    arch: Annotated[list[str], typer.Option(metavar="NAME", help="sm_90, say. May be repeated; without it, that of the GPU here.")] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to write them; without it, where sessions look.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at a time; without it, one for each core.")] = None,
    only: Annotated[list[str], typer.Option(metavar="NAME", help="Only kernels of this name, a regular expression.")] = [],  # noqa: B006
    ptx: Annotated[int, typer.Option(min=80, help="The newest version of PTX to write: 90 for 9.0, of CUDA 13.0.")] = 90,
    verbose: Verbose = False,
) -> None:
    """Build what runs Attention, Linear and GatedLinear on GPUs, with Triton. No GPU is needed. What has not changed is not built again."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import kernels_build

        kernels_build.build(arch, out, jobs=jobs, only=only, newest_ptx=ptx)


@kernels_app.command("check")
def check_kernels(
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="Without it, where sessions look.", show_default=False)] = None,
    verbose: Verbose = False,
) -> None:
    """Judge built kernels by their machine code: registers, spills, tensor instructions, loads; exit 1 if one fails. No GPU is needed."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import kernels_build

        kernels_build.check(folder)


@app.command()
def doctor(verbose: Verbose = False) -> None:
    """Say what is installed, what is missing, and the command that brings it; exit 1 if models cannot be optimised."""
    with errors_told(verbose=verbose):
        from onnxfuse.commands import doctor

        doctor.run()


def main() -> None:
    """The entry point of the `onnxfuse` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names in models may hold what the terminal cannot show
    app(prog_name="onnxfuse")
