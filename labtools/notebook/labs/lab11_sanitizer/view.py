"""The sanitizer bench: the length of a row, the repairs of the arithmetic, and what comes of them.
The picture looks up every case, so that it needs no kernel.
"""

from __future__ import annotations

from typing import Any

from labtools.predict import check_tile, half_tile
from labtools.problem import Prefill, load_rung
from labtools.problem.limits import COPY_BYTES

from ...bench import Bench, View, dropdown, slider
from ...records import GpuRecords
from .tries import HALFS_BY_PAD, CpuTry, describe_verdict, ending_of, run_tries, say_run

STRIDES = tuple(range(65, 81))
"""Halves from one row of 64 to the next that the control offers."""
TILE_ROWS = 64
"""Of a tile of p01."""
REPAIRS: dict[str, dict[str, int]] = {
    "nothing": {"rescale": 0, "scale": 0},
    "rescale": {"rescale": 1, "scale": 0},
    "softmax scale": {"rescale": 0, "scale": 1},
    "both": {"rescale": 1, "scale": 1},
}
"""What of p01's arithmetic is repaired."""
_ACCESSES = ("copy", "matrix", "column")


def sanitizer_tables(records: GpuRecords, problem: Prefill) -> dict[str, Any]:
    """Every answer that the picture may need.

    ``cells`` hold for each stride the addresses of its rows, its copies that miss, the turns of
    other accesses, and by repair what the CPU runner said and the recorded report. Where a copy
    faults nothing behind it runs, so that the repairs share one run.
    """
    p01 = load_rung("p01")
    as_written = {"pad": 0, **REPAIRS["nothing"]}
    tries = [CpuTry(p01, as_written, stride) for stride in STRIDES]
    runs = run_tries(tries, problem)
    ran = [
        (place, name)
        for place, run in enumerate(runs)
        if ending_of(run) != "faults"
        for name in list(REPAIRS)[1:]
    ]
    more = run_tries([CpuTry(p01, REPAIRS[name], STRIDES[place]) for place, name in ran], problem)
    found = {one: say_run(run) for one, run in zip(ran, more, strict=True)}
    reports = {
        (problem.head_dim + halves, name): describe_verdict(records, p01, {"pad": pad, **knobs})
        for pad, halves in HALFS_BY_PAD.items()
        for name, knobs in REPAIRS.items()
    }
    return {
        "strides": list(STRIDES),
        "repairs": list(REPAIRS),
        "cells": [
            {
                **_addresses(problem.head_dim, stride),
                "runs": [found.get((place, name)) or say_run(run) for name in REPAIRS],
                "reports": [reports.get((stride, name)) for name in REPAIRS],
            }
            for place, (stride, run) in enumerate(zip(STRIDES, runs, strict=True))
        ],
    }


def _addresses(head_dim: int, stride: int) -> dict[str, Any]:
    """Where the rows of a tile begin, what misses, and the turns of each access."""
    tile = half_tile(TILE_ROWS, head_dim, stride - head_dim)
    report = check_tile(tile, _ACCESSES)
    return {
        "row_bytes": tile.stride,
        "starts": [row * tile.stride for row in range(tile.rows)],
        "missing": report.misaligned_rows * (tile.row_bytes // COPY_BYTES),
        "copies": tile.rows * (tile.row_bytes // COPY_BYTES),
        "ways": [None if one.faults else one.ways for one in report.accesses],
    }


class SanitizerView(View, script="view", controls=("stride", "repair")):
    """The picture."""


def sanitizer_bench(problem: Prefill, records: GpuRecords | None = None) -> Bench:
    """A bench that starts with p01 as it was written."""
    tables = sanitizer_tables(records or GpuRecords(), problem)
    controls = {
        "stride": slider("halves per row", STRIDES, STRIDES[0], label_width="7em"),
        "repair": dropdown("repaired", tables["repairs"], label_width="7em", most_width="30em"),
    }
    return Bench(controls, SanitizerView, tables)
