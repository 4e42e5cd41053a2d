"""The microbenchmarks of what sm_90a alone has. They return raw samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from labtools.measure.gpu.tensor_map import encode_tensor_map
from labtools.problem import TensorMap
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from .cycles import walk
from .plan import BOXES, PRODUCT_BODIES, PRODUCT_COLUMNS
from .rig import Rig, Sample, repeated, sample

PRODUCT_TRIPS = 64
SETTLED_CYCLES = 1_000_000_000
"""Half a second: a GPU that lowers its clock for its power does so within a tenth."""


def _run(bench: Rig, entry: str, warps: int, *more: Any) -> float:
    """Cycles of one block, from the first warp's start to the last one's end."""
    out = bench.scratch("out", 24 * warps)
    bench.kernel(entry)((1,), (32 * warps,), (out, *more, np.int32(PRODUCT_TRIPS)))
    times = bench.read_times(out, (warps, 3))
    return float(times[:, 1].max() - times[:, 0].min())


def run_products(bench: Rig) -> Iterator[Sample]:
    """Groups of 1, 4 and 16 products of one to three warpgroups, each with a wait.

    ``start`` counts only the cycles until the products of a group are started.
    """
    source = str(bench.settings["source"])
    tests = [("product", body) for body in PRODUCT_BODIES]
    tests += [("start", body) for body in PRODUCT_BODIES[1:]]
    for columns, groups, (test, body) in product(PRODUCT_COLUMNS, (1, 2, 3), tests):
        entry = f"{test}_{source}_{body}_{columns}"
        sink = bench.scratch("sink", 4 * 128 * groups)
        what = {"test": test, "columns": columns, "groups": groups, "body": body}
        values = repeated(_run, bench, entry, 4 * groups, sink)
        yield sample({**what, "trips": PRODUCT_TRIPS}, "cycles", values)


def run_product_clock(bench: Rig) -> Iterator[Sample]:
    """MHz of the SMs while every tensor core multiplies, after the power has settled."""
    grid = bench.num_sms
    out, sink = bench.scratch("out", 16 * grid), bench.scratch("sink", 4 * 256 * grid)

    def once() -> float:
        bench.kernel("product_clock")((grid,), (256,), (out, sink, np.int64(SETTLED_CYCLES)))
        times = bench.read_times(out, (grid, 2))
        return float(np.median(times[:, 0] / times[:, 1])) * 1e3

    yield sample({"test": "clock"}, "MHz", repeated(once))


def run_phases(bench: Rig) -> Iterator[Sample]:
    """What an mbarrier costs the lane that arrives, a warp that need not wait, and two that do."""
    kind = str(bench.settings["kind"])
    for body in (2, 4):
        values = repeated(_run, bench, f"phase_{kind}_{body}", 2 if kind == "turn" else 1)
        what = {"test": "phase", "kind": kind, "body": body, "trips": PRODUCT_TRIPS}
        yield sample(what, "cycles", values)


def run_named_turns(bench: Rig) -> Iterator[Sample]:
    """Two warpgroups that take turns by named barriers."""
    for body in (4, 8):
        values = repeated(_run, bench, f"named_turn_{body}", 8)
        what = {"test": "named", "body": body, "trips": PRODUCT_TRIPS}
        yield sample(what, "cycles", values)


def run_boxes(bench: Rig) -> Iterator[Sample]:
    """Copies by a tensor map: one after the other, and several on their way."""
    for level, (rows, depth), warps in product(("hbm", "l2"), BOXES, bench.places):
        size = SWIZZLED_ROW_BYTES * rows
        walked = partial(walk, bench, f"boxes_{rows}_{depth}", level, size, size)
        smem, mapped = depth * size, partial(_rows_as_map, rows)
        middle = [walked(sm, smem_bytes=smem, mapped=mapped)[0] for sm in bench.places[warps]]
        what = {"test": "boxes", "level": level, "bytes": size, "depth": depth, "warps": warps}
        yield sample(what, "cycles", middle)


def _rows_as_map(rows: int, address: np.uint64, size: int) -> Any:
    """The map of all rows of 128 bytes at an address, cut into boxes of some."""
    columns = SWIZZLED_ROW_BYTES // 2
    shape = (1, size // SWIZZLED_ROW_BYTES, columns)
    row = TensorMap.of_planes("zeros", shape, rows, "float16")
    return encode_tensor_map(row, int(address))
