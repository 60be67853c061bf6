"""What the object files of the wide instruction sets may define."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_wide_objects_define_nothing_outside_their_namespace(library: Path, isa: str) -> None:
    """A shared name compiled for AVX-512 could replace the baseline's copy and stop old machines."""
    nm = shutil.which("nm")
    objects = sorted(library.parent.glob(f"CMakeFiles/kernels_{isa}.dir/**/*.o"))
    if nm is None or not objects:
        pytest.skip("needs nm, and a machine whose kernels have this instruction set")
    listing = subprocess.run([nm, "--defined-only", "--extern-only", *map(str, objects)], capture_output=True, text=True, check=True)
    symbols = re.findall(r"^[0-9a-f]+ ([A-Z]|u) (\S+)$", listing.stdout, re.MULTILINE)
    assert symbols
    strangers = [name for _, name in symbols if f"{len(isa)}{isa}" not in name]
    assert strangers == []
