"""The study of a tile's layouts: the turns that its addresses predict, and those that were counted.

The layout of the kernel's tile of B and its reads are knobs; every other read is the same in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from labtools.predict import banks, check_tile, half_tile, load_gpu
from labtools.predict.banks import Access, AccessReport, Tile, check_access
from labtools.problem import Gemm, Problem, Rung, load_rung
from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.rung import load_by_path
from labtools.record import RecordStore, with_counters
from labtools.record.query import timed_in_one_go

from .records import NO_RECORD, GpuRecords
from .tables import Cell, Shown, make_note, make_table, recorded, say_time

S06 = "s06_tile_layouts"
LAYOUT_STUDY = Gemm(2048, 2048, 512)
LAYOUT_STRIDES = {64: 64, 65: 65, 66: 66, 72: 72, 0: 64}
"""Elements from one row of the tile of s06 to the next, by its knob; 0 moves chunks by xor."""
ACCESS_NAMES = {
    2: "one element a lane",
    4: "two elements a lane",
    16: "16 bytes per lane",
    0: "ldmatrix",
}
"""The kinds of reads of the study, by the value of its knob."""


@dataclass(frozen=True)
class Turns:
    """What all reads of the tile need in one call."""

    reads: int  # instructions of warps
    wavefronts: int  # turns of shared memory that the addresses ask for
    least: int  # turns that reads of this width take without a conflict

    @property
    def of_a_read(self) -> float:
        """Turns that a read takes in mean."""
        return self.wavefronts / self.reads


@cache
def _study() -> tuple[Rung, ProductTile]:
    """The study's kernel, and the tile of its blocks."""
    rung = load_rung(S06)
    return rung, load_by_path(rung.source.with_suffix(".py")).TILE


def study_tile(layout: int) -> Tile:
    """The study's slice of B in a layout, a value of its knob."""
    _, shape = _study()
    if layout == 0:
        return half_tile(shape.n, shape.k, layout="xor")
    return half_tile(shape.n, shape.k, LAYOUT_STRIDES[layout] - shape.k)


def turns_of(layout: int, access: int, problem: Problem = LAYOUT_STUDY) -> Turns:
    """The turns of every read of B's slice, from the address of every lane."""
    rung, shape = _study()
    knobs = {"layout": layout, "access": access}
    (launch,) = rung.launches(problem, load_gpu("h200").limits, knobs)
    tile = study_tile(layout)
    reports = [check_access(tile, one) for one in _reads_of_a_slice(tile, access)]
    # Without matrix instructions each row of A that a warp has reads the tile anew.
    again = 1 if access == 0 else shape.m // shape.warps_m
    slices = -(-problem.inputs["a"].shape[1] // shape.k)
    times = launch.num_blocks * shape.warps * slices * again
    return Turns(
        times * len(reports),
        times * sum(one.wavefronts for one in reports),
        times * sum(one.least for one in reports),
    )


def _reads_of_a_slice(tile: Tile, access: int) -> Iterator[Access]:
    """Every read of one warp, of all rows of a slice."""
    if access == 0:
        for first in range(0, tile.rows, 16):
            for byte in range(0, tile.row_bytes, 32):
                one = banks.matrix_access_transposed(tile, byte)
                yield replace(one, rows=one.rows + first)
        return
    for first in range(0, tile.rows, 32):
        for byte in range(0, tile.row_bytes, access):
            one = banks.column_access(tile, byte, access)
            yield replace(one, rows=np.arange(first, first + 32))


def worst_read(layout: int, access: int) -> AccessReport:
    """The read that meets most conflicts, or that faults."""
    tile = study_tile(layout)
    if access == 0:
        (found,) = check_tile(tile, ("matrix_transposed",)).accesses
        return found
    reports = [check_access(tile, one) for one in _reads_of_a_slice(tile, access)]
    return max(reports, key=lambda one: (one.misaligned_lanes, one.wavefronts))


def show_layouts(gpu: str = "h200", store: RecordStore | None = None) -> Shown:
    """Turns of a read of the tile, predicted and counted, and times, by kind of read and layout.

    Counted is what a layout takes more than the one of the fewest predicted turns under the same
    kind of read.
    """
    records = GpuRecords(gpu, store)
    rows: list[list[Cell]] = []
    measured = False
    for access, named in ACCESS_NAMES.items():
        fits = [one for one in LAYOUT_STRIDES if not worst_read(one, access).faults]
        turns = {one: turns_of(one, access) for one in fits}
        best = min(fits, key=lambda one: turns[one].wavefronts)
        tried = [(S06, {"layout": one, "access": access}) for one in fits]
        timed = dict(zip(fits, timed_in_one_go(records.every, tried, LAYOUT_STUDY), strict=True))
        counted = {one: _wavefronts(records, one, access) for one in fits}
        for layout in LAYOUT_STRIDES:
            cells: list[Cell] = [named, str(layout) if layout else "64, XOR"]
            if layout not in fits:
                at = worst_read(layout, access).first_misaligned
                rows.append([*cells, f"faults at {at:#x}", "-", "-", "-", ""])
                continue
            record, more = timed[layout], None
            ours, base = counted[layout], counted[best]
            if ours is not None and base is not None:
                more = turns[best].of_a_read + (ours - base) / turns[layout].reads
            ratio = records.ratio(tried[fits.index(layout)], tried[fits.index(best)], LAYOUT_STUDY)
            measured = measured or record is not None
            cells += [f"{turns[layout].of_a_read:.2f}", "-" if more is None else f"{more:.2f}"]
            cells.append("-" if record is None else say_time(record.median_us))
            cells.append("-" if ratio is None or layout == best else f"{ratio.value:.2f}")
            rows.append([*cells, "" if record is None else recorded(record)])
    note = (
        f"{LAYOUT_STUDY}. Predicted: computed from the address of every lane. Counted: of ncu's "
        "wavefronts those that a layout has more than the one with fewest, and that one's predicted"
    )
    columns = ("read", "elements a row", "turns a read, predicted", "counted", "us")
    table = make_table((*columns, "over the best", "where from"), rows, note)
    if measured:
        return table
    return table + make_note(NO_RECORD.format(what=f"{S06} with counters", workload=LAYOUT_STUDY))


def _wavefronts(records: GpuRecords, layout: int, access: int) -> float | None:
    """What ncu counted of all reads of shared memory, or None."""
    tried = (S06, {"layout": layout, "access": access})
    for record in with_counters(records.all_of(tried, LAYOUT_STUDY)):
        if record.counters is not None:
            return record.counters.values.get("shared_load_wavefronts")
    return None
