"""The quantisation bench: bits, what shares a scale, outliers; error beside bytes and time.

Python works out every case once, so that the controls also work in a page that has no kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labtools.predict import Gpu, floors
from labtools.problem import (
    HEADLINE,
    Inputs,
    Scheme,
    SchemeError,
    StorageFormat,
    Workload,
    make_outlier_inputs,
    scheme_errors,
)

from ...bench import Bench, View, dropdown
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
    found = scheme_errors(inputs, schemes)
    return [found[i * len(vs) : (i + 1) * len(vs)] for i in range(len(ks))]


def quant_tables(
    gpu: Gpu,
    workload: Workload = HEADLINE,
    measured: Callable[[Scheme], Sequence[Measured]] | None = None,
    *,
    sample: Workload = BENCH_WORKLOAD,
    seeds: Sequence[int] = BENCH_SEEDS,
    outliers: Mapping[str, tuple[float, float]] | None = None,
    limits: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Every case of the bench.

    Args:
        measured: times of the kernels that read a cache of a given scheme, perhaps none.

    Returns:
        ``bits``, ``outliers``: the choices; ``limits``; ``cells[bits][k][v]``: bytes and times;
        ``errors[outliers][bits][k][v]``: (worst, median).
    """
    levels = dict(OUTLIERS if outliers is None else outliers)
    cells = [
        [
            [_cell(gpu, workload, k, v, measured) for v in parts_of(V_AXES, bits)]
            for k in parts_of(K_AXES, bits)
        ]
        for bits in (8, 4)
    ]
    errors = []
    for mean in levels.values():
        channels = 4 if mean[1] else 0
        drawn = [
            make_outlier_inputs(sample, seed, outlier_mean=mean, outlier_channels=channels)
            for seed in seeds
        ]
        errors.append(
            [
                [
                    [(float(f"{c.worst_error:.4g}"), float(f"{c.median_error:.4g}")) for c in row]
                    for row in quant_errors(drawn, bits)
                ]
                for bits in (8, 4)
            ]
        )
    return {
        "bits": [8, 4],
        "outliers": list(levels),
        "limits": [(limits or {}).get(bits) for bits in (8, 4)],
        "cells": cells,
        "errors": errors,
        "sample": f"{len(seeds) * sample.batch * sample.num_qo_heads} (sequence, head) pairs of "
        f"{sample.kv_len} tokens",
        "where": f"{gpu.title}, {workload}",
    }


def _cell(
    gpu: Gpu,
    workload: Workload,
    k: StorageFormat,
    v: StorageFormat,
    measured: Callable[[Scheme], Sequence[Measured]] | None,
) -> dict[str, Any]:
    scheme = Scheme("", k, v)
    moved = workload.minimal_bytes - workload.kv_bytes + scheme.kv_bytes(workload)
    whole = floors(workload, gpu).time_us
    known = [
        {
            "text": f"{say_time(timed.time_us)} us",
            "word": check_word(timed.source),
            "what": timed.what,
        }
        for timed in (measured(scheme) if measured else ())
    ]
    return {
        "k": say_part(k),
        "v": say_part(v),
        "bytes": round(scheme.bytes_per_element(workload.head_dim), 4),
        "floor_text": f"{say_time(whole * moved / workload.minimal_bytes)} us",
        "times": known,
    }


class QuantView(View, script="view", controls=("bits", "k", "v", "outliers")):
    """The picture."""


def quant_bench(tables: dict[str, Any], *, outliers: str | None = None) -> Bench:
    """A bench that starts with eight bits and a scale a row.

    Args:
        tables: from `quant_tables`.
        outliers: which inputs to start with; None takes the first.
    """
    levels = tables["outliers"]
    start = levels.index(outliers) if outliers is not None else 0
    lists = {
        "bits": ("bits", [str(bits) for bits in tables["bits"]], 0),
        "k": ("K: a scale for each", [_name(part) for part in parts_of(K_AXES, 8)], 0),
        "v": ("V: a scale for each", [_name(part) for part in parts_of(V_AXES, 8)], 0),
        "outliers": ("outliers in K", levels, start),
    }
    widths = {"label_width": "10em", "most_width": "30em"}
    controls = {
        name: dropdown(label, options, index, **widths)
        for name, (label, options, index) in lists.items()
    }
    return Bench(controls, QuantView, tables)


def _name(part: StorageFormat) -> str:
    """The part in words, whatever its bits."""
    return say_part(dataclasses.replace(part, codec="int8"))
