"""How commands speak: tables to stdout, errors, progress and log lines to stderr."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from onnxfuse.errors import OnnxFuseError

WIDE = 160  # columns where stdout is no terminal

Tick = Callable[[str, int, int], None]


def out() -> Console:
    """The console for results. Text is never read as markup."""
    return _console(stderr=False)


def err() -> Console:
    """The console for errors, progress and log lines."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    return console if console.is_terminal else Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=WIDE)


def say(line: str) -> None:
    """Print a line to stdout as it is, however long."""
    out().print(line, soft_wrap=True)


@contextmanager
def errors_told(*, verbose: bool) -> Iterator[None]:
    """Turn exceptions into one message on stderr and the exit code; `verbose` adds the traceback."""
    try:
        yield
    except OnnxFuseError as error:
        _tell("error", str(error), verbose)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, ImportError) and not (error.name or "").startswith("onnxfuse"):
            _tell(
                "error", f"a package that onnxfuse needs is missing: {error}. `onnxfuse doctor` tells the command that brings it", verbose
            )
        else:
            more = "" if verbose else " Run it again with -v for the traceback, and report it"
            _tell("bug", f"onnxfuse failed where it should not: {type(error).__name__}: {error}.{more}", verbose)
        sys.exit(1)


def _tell(kind: str, message: str, verbose: bool) -> None:
    console = err()
    if verbose:
        console.print(traceback.format_exc().rstrip(), soft_wrap=True)
    console.print(Text.assemble((f"{kind}: ", "bold red"), message), soft_wrap=True)


@contextmanager
def progress() -> Iterator[tuple[Tick, Callable[[str], None]]]:
    """(tick, log): a bar per phase where stderr is a terminal, and a way to print lines above it."""
    console = err()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks = {}

        def tick(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, total=total)

        yield tick, lambda line: console.print(line, soft_wrap=True)
