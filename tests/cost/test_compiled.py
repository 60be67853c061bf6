"""Tables of compiled kernels: their form, and that their figures replace estimates on the architecture they are of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxfuse.cost.compiled import read
from onnxfuse.cost.count import work
from onnxfuse.cost.model import Model, fuse
from onnxfuse.cost.work import Compiled
from onnxfuse.errors import UsageError

FACTS = {"registers": 200, "stack": 64, "smem": 40000, "threads": 128}
SAMPLE = {
    "version": 1,
    "compiler": "ptxas 13.0",
    "kernels": {"SkipNorm": {"sm_80": FACTS, "sm_90": {**FACTS, "registers": 168, "barriers": 2}}, "Gelu/float16": {"sm_80": FACTS}},
}
SHAPE = (4096, 4096)


def written(folder: Path, table: Any, name: str = "kernels.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def test_table_replaces_estimates_on_its_architecture_alone(tmp_path: Path) -> None:
    tables = read([written(tmp_path, SAMPLE)])
    part = work("Mul", [SHAPE, SHAPE], [SHAPE], "float16")
    kernel = fuse("SkipNorm", [part], bytes_read=1, bytes_written=1)
    a100, h100, v100 = (Model(device, kernels=tables) for device in ("a100", "h100-sxm", "v100"))
    assert a100.with_compiled(kernel).compiled == Compiled(registers=200, smem=40000, threads=128, spill_bytes=64, barriers=1)
    assert h100.with_compiled(kernel).compiled == Compiled(registers=168, smem=40000, threads=128, spill_bytes=64, barriers=2)
    assert v100.with_compiled(kernel).compiled is None
    assert Model("cpu-generic", kernels=tables).with_compiled(kernel).compiled is None
    assert a100.with_compiled(replace(kernel, fused=False)).compiled is None
    notes = [model.price([part], [model.with_compiled(kernel)]).notes for model in (a100, v100)]
    assert notes == [(), ("registers of SkipNorm are an estimate: no compiled kernel for sm_70 is given",)]
    assert a100.times([a100.with_compiled(kernel)])["registers"] == 200


def test_kernel_of_a_type_is_for_that_type(tmp_path: Path) -> None:
    model = Model("a100", kernels=read([written(tmp_path, SAMPLE)]))
    half, single = (fuse("Gelu", [work("Gelu", [SHAPE], [SHAPE], kind)], bytes_read=1, bytes_written=1) for kind in ("float16", "float"))
    assert model.with_compiled(half).compiled is not None and model.with_compiled(single).compiled is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([], "must be an object with version 1"),
        ({"version": 2, "kernels": {}}, "must be an object with version 1"),
        ({"version": 1, "kernels": {"Gelu": {"sm_80": {**FACTS, "smem": -1}}}}, "Gelu, sm_80: smem must be whole numbers"),
        ({"version": 1, "kernels": {"Gelu": {"sm_80": {}}}}, "Gelu, sm_80: registers, stack, smem, threads must be"),
        ({"version": 1, "kernels": {"Gelu": {"sm_80": None}}}, "Gelu, sm_80: registers"),
    ],
)
def test_table_that_is_not_well_formed_is_refused(tmp_path: Path, table: Any, says: str) -> None:
    path = written(tmp_path, table)
    with pytest.raises(UsageError, match="kernel table .*kernels.json") as error:
        read([path])
    assert says in str(error.value)


def test_kernel_must_be_in_one_table(tmp_path: Path) -> None:
    paths = [written(tmp_path, SAMPLE, name) for name in ("a.json", "b.json")]
    with pytest.raises(UsageError, match="'SkipNorm' must be in one table alone"):
        read(paths)


def test_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="must be JSON"):
        read([path])
