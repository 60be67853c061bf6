"""The devices that are known: one TOML file each under `devices/`, and the user's own, which win.

Adding a device is adding a file: its stem is the key. A user's folder is `$XDG_CONFIG_HOME/onnxfuse/devices`
(`~/.config`, `%APPDATA%` on Windows, `~/Library/Application Support` on macOS).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from onnxfuse.cost.detect import completed, detect_cpu
from onnxfuse.cost.device import Cache, Cpu, Device, Gpu
from onnxfuse.errors import UsageError

toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # the same module under two names

BUILT_IN = Path(__file__).with_name("devices")
CALIBRATED = "this-cpu"  # the key under which `calibrate` writes
KINDS: dict[str, type[Gpu | Cpu]] = {"gpu": Gpu, "cpu": Cpu}


def user_folder() -> Path:
    """The folder of the user's own profiles; it need not exist."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = home / ".config"
    return Path(os.environ.get("XDG_CONFIG_HOME") or base) / "onnxfuse" / "devices"


def devices() -> dict[str, Device]:
    """All devices by key, sorted; a user's file replaces ours of the same name."""
    files = {path.stem: path for folder in (BUILT_IN, user_folder()) for path in sorted(folder.glob("*.toml"))}
    return {key: load(files[key]) for key in sorted(files)}


def find(name: str) -> Device:
    """The device that `name` means: a key, an alias, `auto`, `cpu`, or the name that a driver reports.

    `auto` and `cpu` are this machine's calibrated profile, or else what can be detected of its CPU.
    Raises UsageError, which lists the closest names, when there is none.
    """
    if name.lower() in ("auto", "cpu"):
        return this_cpu()
    known = devices()
    for key, device in known.items():
        if name.lower() == key.lower() or name.lower() in device.aliases:
            return device
    reported = [(len(part), key) for key, device in known.items() for part in device.match if _is_word(part, name)]
    if reported:
        return known[max(reported)[1]]
    raise UsageError(f"device: '{name}' is unknown. {_suggest(name, known)}")


def this_cpu() -> Cpu:
    """The calibrated profile of this machine, or else what can be detected of it."""
    path = user_folder() / f"{CALIBRATED}.toml"
    if path.is_file():
        device = load(path)
        if isinstance(device, Cpu):
            return completed(device, generic_cpu())
        raise UsageError(f"device: {path} must be of kind 'cpu'. Write it again with `onnxfuse calibrate`")
    return detect_cpu(generic_cpu())


def generic_cpu() -> Cpu:
    """The profile that stands for a CPU of which nothing is measured."""
    generic = load(BUILT_IN / "cpu-generic.toml")
    assert isinstance(generic, Cpu)
    return generic


def load(path: Path) -> Device:
    """The device in one file. Raises UsageError that names the file and the field when it is not well formed."""
    if not path.is_file():
        _fail(path, "no such file")
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, _changed: int) -> Device:
    try:
        table = toml.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        _fail(path, f"no valid TOML: {error}")
    kind = KINDS.get(str(table.pop("kind", "")))
    if kind is None:
        _fail(path, "kind must be 'gpu' or 'cpu'")
    device: Device = _build(kind, {**table, "key": path.stem}, path)
    if device.confidence not in ("high", "medium", "low"):
        _fail(path, f"confidence must be high, medium or low; got '{device.confidence}'")
    if isinstance(device, Gpu) and "fp32" not in device.peak_tflops:
        _fail(path, "peak_tflops must have fp32, which stands for every type without a rate of its own")
    if isinstance(device, Cpu) and not device.caches:
        _fail(path, "caches must have at least one level")
    return device


def _build(kind: type[Any], table: dict[str, Any], path: Path) -> Any:
    """An instance of the dataclass `kind` from a TOML table; nested caches are built the same way."""
    hints = get_type_hints(kind)
    required = {f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    if missing := sorted(required - table.keys()):
        _fail(path, f"fields are missing: {', '.join(missing)}")
    if unknown := sorted(table.keys() - hints.keys()):
        _fail(path, f"fields are unknown: {', '.join(unknown)}. Known: {', '.join(sorted(hints))}")
    return kind(**{name: _convert(value, hints[name], f"{name}", path) for name, value in table.items()})


def _convert(value: Any, hint: Any, name: str, path: Path) -> Any:
    if hint == tuple[Cache, ...]:
        return tuple(_build(Cache, dict(entry), path) for entry in value)
    if hint == tuple[str, ...] and isinstance(value, list):
        return tuple(map(str, value))
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    if hint is bool:
        _fail(path, f"{name} must be true or false; got {value!r}")
    if isinstance(value, dict) and all(isinstance(v, (int, float)) and v > 0 for v in value.values()):
        return {key: float(v) for key, v in value.items()}
    _fail(path, f"{name} must be a positive {getattr(hint, '__name__', hint)}; got {value!r}")


def _fail(path: Path, why: str) -> NoReturn:
    cure = "Write it again with `onnxfuse calibrate`" if path.stem == CALIBRATED else f"See the files in {BUILT_IN} for the form"
    raise UsageError(f"device file {path}: {why}. {cure}")


def _is_word(part: str, text: str) -> bool:
    """Whether `part` stands in `text` by itself: A10 is not in A100."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(part)}(?![A-Za-z0-9])", text) is not None


def _suggest(name: str, known: dict[str, Device]) -> str:
    names = [*known, "auto", "cpu", *(alias for device in known.values() for alias in device.aliases)]
    close = difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.5)
    close += [n for n in names if name and name.lower() in n.lower() and n not in close]
    return f"Did you mean {', '.join(close)}?" if close else f"Known: {', '.join(names)}"
