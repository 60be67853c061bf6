"""Finds rules: those that ship, those of installed packages, and those in a user's own files."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from onnxfuse import rules as shipped
from onnxfuse.errors import RuleError, UsageError
from onnxfuse.generated.candidates import GENERATORS, Generator
from onnxfuse.rule import Rule

ENTRY_POINT = "onnxfuse.rules"


def all_rules() -> dict[str, Rule]:
    """Every rule that ships or that an installed package brings, by name."""
    return dict(_installed())


@cache
def _installed() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(shipped.__path__):
        if not module.name.startswith("_"):
            found |= _rules_of(importlib.import_module(f"{shipped.__name__}.{module.name}"), module.name)
    for entry in entry_points(group=ENTRY_POINT):
        found |= _rules_of(entry.load(), entry.name)
    return found


def load_rules(files: Sequence[str | Path] = (), only: Sequence[str] = (), disable: Sequence[str] = ()) -> dict[str, Rule]:
    """All rules, with those of `files`, less those that `only` and `disable` leave out.

    Raises RuleError for a file that cannot be loaded, UsageError for a name that no rule has.
    """
    known = all_rules()
    for file in files:
        known |= rules_in(Path(file))
    for name in (*only, *disable):
        if name not in known and name not in GENERATORS:
            near = difflib.get_close_matches(name, [*known, *GENERATORS], 3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`onnxfuse rules` lists them"
            raise UsageError(f"rule '{name}' is unknown. {hint}")
    return {n: r for n, r in known.items() if (not only or n in only) and n not in disable}


def load_generators(only: Sequence[str] = (), disable: Sequence[str] = (), level: str = "all") -> dict[str, Generator]:
    """What may be generated at a level, less what `only` and `disable` leave out."""
    wanted = {n: g for n, g in GENERATORS.items() if (not only or n in only) and n not in disable}
    return {n: g for n, g in wanted.items() if g.fits(level, named=n in only)}


def rules_in(path: Path) -> dict[str, Rule]:
    """The rules of a user's file: every module-level Rule; one called RULE has the file's name."""
    if not path.exists():
        raise RuleError(f"{path}: no such file. --rules takes a .py file with a module-level RULE = Rule(...)")
    spec = importlib.util.spec_from_file_location(f"onnxfuse_user_rules_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise RuleError(f"{path}: is no Python file. Name a .py file with a module-level RULE = Rule(...)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the file is somebody's code: say where it broke
        line = _line_in(error, path)
        raise RuleError(f"{path}{line}: {type(error).__name__}: {error}. Mend the rule file, or leave it out") from error
    found = _rules_of(module, path.stem)
    if not found:
        raise RuleError(f"{path}: defines no rule. Add a module-level RULE = Rule(before=..., after=...)")
    return found


def _line_in(error: BaseException, path: Path) -> str:
    trace, line = error.__traceback__, ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _rules_of(module: ModuleType, name: str) -> dict[str, Rule]:
    summary = (module.__doc__ or "").strip().split("\n", 1)[0]
    held = {k: v for k, v in vars(module).items() if isinstance(v, Rule)}
    named = {name if k == "RULE" else f"{name}.{k.lower()}": v for k, v in held.items()}
    return {n: r.called(n, summary) for n, r in named.items()}
