"""The quantisation bench: bits, what shares a scale, outliers; error beside bytes and time. The
picture looks up every case, so that it needs no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labtools import problem
from labtools.predict import Gpu, floors
from labtools.problem import Inputs, Scheme, SchemeError, StorageFormat, Workload

from ...bench import Bench, View, dropdown, place_of
from ...tables import check_word, say_time
from ..lab02_baseline.view import Measured
from .figures import say_part

BENCH_WORKLOAD = Workload(1, 16, 4, 512, 128)
"""Shape of the inputs whose error is shown."""
BENCH_SEEDS = (0, 1)
V_AXES = (("row", 0), ("row_group", 64), ("row_group", 32), ("tensor", 0))
K_AXES = (*V_AXES[:3], *(("channel", tokens) for tokens in (256, 128, 64, 32)), V_AXES[3])
OUTLIERS = {
    "none": (0.0, 0.0),
    "half": (3.0, 7.0),
    "as in the chapter": (6.0, 14.0),
    "double": (12.0, 28.0),
}
"""Magnitude of the mean of the four outlier channels of K."""


def parts_of(axes: Sequence[tuple[str, int]], bits: int) -> list[StorageFormat]:
    """What the list of one tensor offers, in order: each without a bias, then with one."""
    return [
        StorageFormat(f"int{bits}", axis, group, asymmetric)
        for axis, group in axes
        for asymmetric in (False, True)
    ]


def quant_errors(inputs: Sequence[Inputs], bits: int) -> list[list[SchemeError]]:
    """Error of every pair of a K scheme and a V scheme of so many bits, ``[k][v]``."""
    ks, vs = parts_of(K_AXES, bits), parts_of(V_AXES, bits)
    schemes = [Scheme(f"{i} {j}", k, v) for i, k in enumerate(ks) for j, v in enumerate(vs)]
    found = problem.scheme_errors(inputs, schemes)
    return [found[i * len(vs) : (i + 1) * len(vs)] for i in range(len(ks))]


def quant_tables(
    gpu: Gpu,
    workload: Workload,
    measured: Callable[[Scheme], Sequence[Measured]],
    limits: Mapping[int, float],
) -> dict[str, Any]:
    """Every case of the bench: ``cells[bits][k][v]`` bytes and times, with the ``measured`` ones of
    the kernels that read such a cache; ``errors[outliers][bits][k][v]`` (worst, median). Of a
    number of bits the worst error may have a limit.
    """
    sample = BENCH_WORKLOAD
    cells = [
        [
            [_cell(gpu, workload, k, v, measured) for v in parts_of(V_AXES, bits)]
            for k in parts_of(K_AXES, bits)
        ]
        for bits in (8, 4)
    ]
    errors = []
    for mean in OUTLIERS.values():
        channels = 4 if mean[1] else 0
        outlying: dict[str, Any] = {"outlier_mean": mean, "outlier_channels": channels}
        drawn = [problem.make_outlier_inputs(sample, seed, **outlying) for seed in BENCH_SEEDS]
        errors.append([[_rounded(row) for row in quant_errors(drawn, bits)] for bits in (8, 4)])
    pairs = len(BENCH_SEEDS) * sample.batch * sample.num_qo_heads
    return {
        "bits": [8, 4],
        "outliers": list(OUTLIERS),
        "limits": [limits.get(bits) for bits in (8, 4)],
        "cells": cells,
        "errors": errors,
        "sample": f"{pairs} (sequence, head) pairs of {sample.kv_len} tokens",
        "where": f"{gpu.title}, {workload}",
    }


def _rounded(row: Sequence[SchemeError]) -> list[tuple[float, float]]:
    return [(float(f"{c.worst_error:.4g}"), float(f"{c.median_error:.4g}")) for c in row]


def _cell(
    gpu: Gpu,
    workload: Workload,
    k: StorageFormat,
    v: StorageFormat,
    measured: Callable[[Scheme], Sequence[Measured]],
) -> dict[str, Any]:
    scheme = Scheme("", k, v)
    moved = workload.minimal_bytes - workload.kv_bytes + scheme.kv_bytes(workload)
    whole = floors(workload, gpu).time_us
    known = []
    for timed in measured(scheme):
        text, word = f"{say_time(timed.time_us)} us", check_word(timed.source)
        known.append({"text": text, "word": word, "what": timed.what})
    return {
        "k": say_part(k),
        "v": say_part(v),
        "bytes": round(scheme.bytes_per_element(workload.head_dim), 4),
        "floor_text": f"{say_time(whole * moved / workload.minimal_bytes)} us",
        "times": known,
    }


class QuantView(View, script="view", controls=("bits", "k", "v", "outliers")):
    """The picture."""


def quant_bench(tables: dict[str, Any], outliers: str) -> Bench:
    """A bench of `quant_tables` that starts with eight bits, a scale a row, and one of
    `OUTLIERS`."""
    start = place_of(outliers, tables["outliers"])
    widths: dict[str, Any] = {"label_width": "10em", "most_width": "30em"}
    scales = {axes: list(map(say_part, parts_of(axes, 8))) for axes in (K_AXES, V_AXES)}
    controls = {
        "bits": dropdown("bits", tables["bits"], **widths),
        "k": dropdown("K: a scale for each", scales[K_AXES], **widths),
        "v": dropdown("V: a scale for each", scales[V_AXES], **widths),
        "outliers": dropdown("outliers in K", tables["outliers"], start, **widths),
    }
    return Bench(controls, QuantView, tables)
