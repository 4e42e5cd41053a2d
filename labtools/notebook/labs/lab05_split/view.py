"""The split bench: batch, length and pieces, and what a call is made of. The picture looks up the
forecast of every case, so that it needs no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labtools.predict import load_gpu
from labtools.problem import HEADLINE, Workload

from ...bench import Bench, View, slider
from ...records import GpuRecords, Variant, forecast_of, forecasts_of
from .figures import time_parts

BATCHES, LENGTHS = (1, 8, 64), (512, 4096)
PIECES = (1, 2, 4, 8, 16, 32)
RUNG = "r08"


def split_tables(
    records: GpuRecords,
    batches: Sequence[int] = BATCHES,
    lengths: Sequence[int] = LENGTHS,
    counts: Sequence[int] = PIECES,
) -> dict[str, Any]:
    """For each batch, length and number of pieces the forecast's parts in microseconds, its bound
    and its blocks, and the recorded time or None.
    """
    gpu = load_gpu(records.gpu or "h200")
    loads = [[HEADLINE.replace(batch=b, kv_len=s) for s in lengths] for b in batches]
    tries = [Variant(RUNG, {"split": n}) for n in counts]
    # Side by side; each is then there when its cell asks for it.
    forecasts_of([(tried, load) for row in loads for load in row for tried in tries], gpu.name)
    return {
        "gpu": gpu.title,
        "rung": RUNG,
        "batches": list(batches),
        "lengths": list(lengths),
        "pieces": list(counts),
        "cells": [[[_cell(records, load, n) for n in counts] for load in row] for row in loads],
    }


def _cell(records: GpuRecords, workload: Workload, pieces: int) -> dict[str, Any]:
    tried = Variant(RUNG, {"split": pieces})
    model = forecast_of(tried, workload, records.gpu or "h200")
    main = model.launches[0]
    recorded = records.time_us(tried, workload)
    return {
        **{name: round(us, 3) for name, us in time_parts(model).items()},
        "time": round(model.time_us, 3),
        "bound": model.bound,
        "memory": round(model.terms_us["bandwidth"], 3),
        "l2": round(model.terms_us["l2_bandwidth"], 3),
        "blocks": main.blocks,
        "rows": -(-workload.kv_len // pieces),
        "in_flight_kib": round(model.in_flight_bytes / 1024, 2),
        "l2_pct": round(100 * main.l2_share, 1),
        "recorded": None if recorded is None else round(recorded, 3),
    }


class SplitView(View, script="view", controls=("batch", "length", "pieces")):
    """The picture."""


def split_bench(
    records: GpuRecords | None = None,
    batch: int = 8,
    length: int = 4096,
    pieces: int = 1,
    **choices: Any,
) -> Bench:
    """A bench of `split_tables` that starts with one workload and number of pieces."""
    tables = split_tables(records or GpuRecords(), **choices)
    controls = {
        "batch": slider("batch B", tables["batches"], batch, label_width="6em"),
        "length": slider("length S", tables["lengths"], length, label_width="6em"),
        "pieces": slider("pieces", tables["pieces"], pieces, label_width="6em"),
    }
    return Bench(controls, SplitView, tables)
