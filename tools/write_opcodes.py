"""Write the opcode counts of the points that lab 8 shows, beside the recorded grid.

What the file has already is not compiled again; what no point needs any more is left out.
"""

from __future__ import annotations

from pathlib import Path

from labtools.notebook.labs.lab08_ablation.kernels import shown_points
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import Point, load_family
from labtools.optimize.opcode_table import (
    TABLE_SCHEMA,
    CodeCounts,
    OpcodeTable,
    count_code,
    opcodes_path,
    read_opcodes,
    write_opcodes,
)
from labtools.optimize.opening import open_bench
from labtools.problem import LabError
from labtools.toolchain.progress import ProgressLine


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
    grid = bench.grid
    version = grid.nvrtc_version or ""
    write_opcodes(path, OpcodeTable(TABLE_SCHEMA, grid.plan.rung, grid.arch, version, codes))
