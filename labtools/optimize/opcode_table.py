"""How often each opcode stands in the machine code of the few points of a recorded grid that a page
shows, to see what else vanishes when a method is taken out. An entry is bound to the code that was
timed: its key is the grid's own hash of that code. ``make regen`` writes the file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labtools.measure.channel import adapter_of
from labtools.problem import Limits, Problem, Rung, kernels_dir
from labtools.record.whole import write_whole
from labtools.toolchain import kernel_hashes
from labtools.toolchain.compiler import launched_entries
from labtools.toolchain.listings import machine_code
from labtools.toolchain.sass import Sass

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


def opcodes_of_code(sass: Sass) -> dict[str, int]:
    """How many instructions of a kernel have each opcode, most frequent first; without padding."""
    held = Counter(one.opcode for one in sass.executable if not one.is_padding)
    return dict(sorted(held.items(), key=lambda one: (-one[1], one[0])))


def count_code(
    rung: Rung, problem: Problem, limits: Limits, knobs: Mapping[str, int]
) -> tuple[str, CodeCounts]:
    """Compile a point: the hash of its machine code, and the counts of the kernels it launches."""
    code = machine_code(rung, problem, limits, knobs)
    hashes = kernel_hashes(rung, problem, limits, knobs)
    counts = {}
    for entry in launched_entries(rung, problem, limits, knobs):
        asked = code.resources[entry]
        spilled = asked.spill_store_bytes + asked.spill_load_bytes
        opcodes = opcodes_of_code(code.entries[entry])
        counts[entry] = KernelCounts(asked.registers, asked.shared_bytes, spilled, opcodes)
    return hashes.sass_hash or "", counts


def opcodes_path(rung: str, gpu: str) -> Path:
    """Where the table beside a shipped grid is."""
    return kernels_dir() / "grids" / f"{rung}.{gpu}.opcodes.json.gz"


def write_opcodes(path: Path, table: OpcodeTable) -> None:
    """Write a table; equal ones give equal bytes."""
    text = json.dumps(
        adapter_of(OpcodeTable).dump_python(table), sort_keys=True, separators=(",", ":")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(text.encode(), 9, mtime=0), durable=True)


def read_opcodes(path: Path) -> OpcodeTable:
    """Read a table."""
    still_works = "the times of the grid; git checkout gives a shipped file back"
    found: OpcodeTable = read_kept(path, OpcodeTable, TABLE_SCHEMA, "opcode counts in", still_works)
    return found
