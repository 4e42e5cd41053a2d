"""Write the opcode counts of the points that lab 8 shows, beside the recorded grid.

What the file has already is not compiled again; what no point needs any more is left out.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from labtools.notebook.labs.lab08_ablation.kernels import shown_points
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import Point, load_family
from labtools.optimize.opcode_table import (
    TABLE_SCHEMA,
    CodeCounts,
    KernelCounts,
    OpcodeTable,
    opcodes_path,
    read_opcodes,
)
from labtools.optimize.opening import open_bench
from labtools.problem import LabError, Limits, Problem, Rung
from labtools.record.whole import write_whole
from labtools.toolchain import kernel_hashes
from labtools.toolchain.compiler import launched_entries
from labtools.toolchain.listings import machine_code
from labtools.toolchain.progress import ProgressLine
from labtools.toolchain.sass import Sass


def write() -> None:
    """Write the file, from where it was stopped; LabError where code is not what the grid timed."""
    family = load_family("tunable")
    bench = open_bench(family, family.workloads[0], "recorded")
    assert isinstance(bench, RecordedBench)
    path = opcodes_path(family.rung.id, bench.grid.plan.gpu)
    hashes = {point: bench.code_hash(point) for point in shown_points(bench)}
    wanted = {key: point for point, key in hashes.items() if key is not None}
    held = _held(path)
    codes: dict[str, CodeCounts] = {key: held[key] for key in wanted if key in held}
    missing = [key for key in wanted if key not in codes]
    line = ProgressLine()
    for number, key in enumerate(missing):
        line("compiling", number, len(missing))
        codes[key] = _counted(bench, key, wanted[key])
        if number % 20 == 19:
            _write(path, bench, codes)
    _write(path, bench, codes)


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


def _held(path: Path) -> dict[str, CodeCounts]:
    return read_opcodes(path).codes if path.exists() else {}


def _counted(bench: RecordedBench, key: str, point: Point) -> CodeCounts:
    found, counts = count_code(bench.family.rung, bench.problem, bench.limits, point.knobs)
    if found != key:
        raise LabError(
            f"{point.key} gives other machine code than the grid timed.",
            "the source, the options or the compiler differ",
            "the compiler that requirements.lock pins",
        )
    return counts


def _write(path: Path, bench: RecordedBench, codes: dict[str, CodeCounts]) -> None:
    """Equal tables give equal bytes."""
    grid = bench.grid
    table = OpcodeTable(TABLE_SCHEMA, grid.plan.rung, grid.arch, grid.nvrtc_version or "", codes)
    text = json.dumps(asdict(table), sort_keys=True, separators=(",", ":"))
    write_whole(path, gzip.compress(text.encode(), 9, mtime=0), durable=True)
