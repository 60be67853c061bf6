"""A device record as TOML text, in the form that `devices.load` reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from onnxfuse.cost.device import Device, Gpu

DIGITS = 4  # of a measured number


def to_toml(device: Device) -> str:
    """The text of a profile; its key is left to the name of the file."""
    lines = [f'kind = "{"gpu" if isinstance(device, Gpu) else "cpu"}"']
    tables: list[str] = []
    for field in dataclasses.fields(device):
        value = getattr(device, field.name)
        if field.name == "key" or value in ("", (), {}):
            continue
        if isinstance(value, Mapping):
            tables += ["", f"[{field.name}]", *_pairs(value)]
        elif value and isinstance(value, tuple) and dataclasses.is_dataclass(value[0]):
            for entry in value:
                tables += ["", f"[[{field.name}]]", *_pairs(dataclasses.asdict(entry))]
        else:
            lines.append(f"{field.name} = {_text(value)}")
    return "\n".join([*lines, *tables, ""])


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{key if key.isidentifier() else json.dumps(key)} = {_text(value)}" for key, value in table.items()]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, float):
        return repr(float(f"{value:.{DIGITS}g}"))
    return json.dumps(value, ensure_ascii=False)
