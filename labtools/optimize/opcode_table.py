"""How often each opcode stands in the machine code of the few points of a recorded grid that a page
shows, to see what else vanishes when a method is taken out. An entry is bound to the code that was
timed: its key is the grid's own hash of that code. ``make regen`` writes the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labtools.problem import kernels_dir

from .grid import read_kept

TABLE_SCHEMA = 1


@dataclass(frozen=True)
class KernelCounts:
    """One kernel function."""

    registers: int  # a thread
    shared_bytes: int  # static shared memory of a block
    spill_bytes: int  # stored to and loaded from local memory, a thread
    opcodes: dict[str, int]  # how many of each, modifiers included


CodeCounts = dict[str, KernelCounts]  # the kernels that one point launches, by name


@dataclass(frozen=True)
class OpcodeTable:
    """Counts of some points; see the module."""

    schema_version: int  # of the file
    # rung, arch, nvrtc_version: whose code it is, and what made it
    rung: str
    arch: str
    nvrtc_version: str
    codes: dict[str, CodeCounts]  # by the hash of a point's machine code, as `Grid.codes` has it


def opcodes_path(rung: str, gpu: str) -> Path:
    """Where the table beside a shipped grid is."""
    return kernels_dir() / "grids" / f"{rung}.{gpu}.opcodes.json.gz"


def read_opcodes(path: Path) -> OpcodeTable:
    """Read a table."""
    still_works = "the times of the grid; git checkout gives a shipped file back"
    found: OpcodeTable = read_kept(path, OpcodeTable, TABLE_SCHEMA, "opcode counts in", still_works)
    return found
