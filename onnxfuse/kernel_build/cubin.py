"""What a cubin says of its kernel: registers, stack, shared memory, parameters. Reads the ELF file itself; needs no CUDA tool."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from onnxfuse.errors import KernelError

# Attributes of .nv.info and .nv.info.<kernel>.
FRAME_SIZE, PARAMETER, MAX_STACK, REGISTERS = 0x11, 0x17, 0x23, 0x2F
SIZED = 4  # the format of an attribute with a size and a payload
SECTION_SIZE, SYMBOL_SIZE = 64, 24
Section = tuple[str, int, int]  # name, and where its bytes are in the file: offset, size


@dataclass(frozen=True)
class Cubin:
    """One kernel. registers, stack: of a thread, the stack in bytes. smem: static bytes of a block. parameters: their sizes, in order."""

    name: str
    registers: int
    stack: int
    smem: int
    parameters: tuple[int, ...]


def read(data: bytes) -> Cubin:
    """The one kernel of a cubin. Raises KernelError where the data is none, or has none or several."""
    if data[:4] != b"\x7fELF" or len(data) < SECTION_SIZE or data[4] != 2:
        raise KernelError("a cubin must be a 64-bit ELF file; got something else. Build the kernels again")
    sections = {name: data[offset : offset + size] for name, offset, size in _sections(data)}
    kernels = [name[len(".text.") :] for name in sections if name.startswith(".text.")]
    if len(kernels) != 1:
        raise KernelError(f"a cubin must hold one kernel; got {kernels}")
    (name,) = kernels
    symbols = _symbols(sections)
    facts = {REGISTERS: 0, FRAME_SIZE: 0}
    for attribute, value in _attributes(sections.get(".nv.info", b"")):
        if attribute in facts and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if symbols[symbol] == name:
                facts[attribute] = number
    smem = len(sections.get(f".nv.shared.{name}", b""))
    return Cubin(name, facts[REGISTERS], facts[FRAME_SIZE], smem, _parameters(sections.get(f".nv.info.{name}", b"")))


def _sections(data: bytes) -> Iterator[Section]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * SECTION_SIZE) for i in range(count)]
    for header in headers:
        yield _text(data, headers[names][4] + header[0]), header[4], header[5]


def _symbols(sections: dict[str, bytes]) -> list[str]:
    table, names = sections[".symtab"], sections[".strtab"]
    return [_text(names, struct.unpack_from("<I", table, at)[0]) for at in range(0, len(table), SYMBOL_SIZE)]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        yield attribute, data[at : at + size] if form == SIZED else b""
        at += size if form == SIZED else 0


def _parameters(data: bytes) -> tuple[int, ...]:
    """Bytes of each parameter."""
    found = {}
    for attribute, value in _attributes(data):
        if attribute == PARAMETER and len(value) == 12:
            _, ordinal, _, packed = struct.unpack("<IHHI", value)
            found[ordinal] = packed >> 18
    return tuple(found[i] for i in sorted(found))
