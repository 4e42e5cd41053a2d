"""The quantisation bench: bits, what shares a scale, outliers; error beside bytes and time.

Python works out every case once, so that the controls also work in a page that has no kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import traitlets

from labtools.predict import Gpu, floors
from labtools.problem import (
    HEADLINE,
    Inputs,
    Scheme,
    TensorScheme,
    Workload,
    dequantise_tensor,
    make_outlier_inputs,
    quantise_tensor,
)

from ..bench import Bench, View, dropdown
from ..tables import check_word
from ..timeline.view import Measured, say_time
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


def parts_of(axes: Sequence[tuple[str, int]], bits: int) -> list[TensorScheme]:
    """What the list of one tensor offers, in order: each without a bias, then with one."""
    return [
        TensorScheme(bits, axis, group, asymmetric)
        for axis, group in axes
        for asymmetric in (False, True)
    ]


@dataclass(frozen=True)
class QuantCase:
    """One scheme on one kind of inputs.

    Args:
        worst_error: largest relative error of a (sequence, head).
        median_error: the median.
    """

    worst_error: float
    median_error: float


def quant_errors(inputs: Sequence[Inputs], bits: int) -> list[list[QuantCase]]:
    """Error of every pair of a K scheme and a V scheme of so many bits, ``[k][v]``.

    The same numbers as `labtools.problem.scheme_errors`; the weights of a K scheme are worked out
    once for all V schemes.
    """
    ks, vs = parts_of(K_AXES, bits), parts_of(V_AXES, bits)
    errors: list[list[list[float]]] = [[[] for _ in vs] for _ in ks]
    for drawn in inputs:
        v_back = [_back(drawn.v, drawn, part) for part in vs]
        exact = _weights(drawn, drawn.k)
        expected = _apply(exact, drawn.v)
        size = np.linalg.norm(expected, axis=-1)
        for i, k in enumerate(ks):
            weights = _weights(drawn, _back(drawn.k, drawn, k))
            for j, back in enumerate(v_back):
                off = np.linalg.norm(_apply(weights, back) - expected, axis=-1)
                errors[i][j] += (off / size).ravel().tolist()
    return [[QuantCase(max(e), float(np.median(e))) for e in row] for row in errors]


def _back(x: np.ndarray, inputs: Inputs, part: TensorScheme) -> np.ndarray:
    return dequantise_tensor(quantise_tensor(x, inputs.seq_lens, part))


def _weights(inputs: Inputs, k: np.ndarray) -> np.ndarray:
    """Softmax weights, float64 ``[B, Hkv, group, S]``."""
    w = inputs.workload
    q = inputs.q.astype(np.float64).reshape(w.batch, w.num_kv_heads, w.group_size, w.head_dim)
    scores = inputs.sm_scale * (q @ k.astype(np.float64).swapaxes(-1, -2))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return total


def _apply(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
    out: np.ndarray = weights @ v.astype(np.float64)
    return out


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
        gpu: whose memory rate gives the floor.
        workload: for which bytes and times are told.
        measured: times of the kernels that read a cache of a given scheme, perhaps none.
        sample: shape of the inputs whose error is told.
        seeds: of those inputs.
        outliers: magnitudes of the outlier channels by label.
        limits: largest error that is wanted, by bits.

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
    k: TensorScheme,
    v: TensorScheme,
    measured: Callable[[Scheme], Sequence[Measured]] | None,
) -> dict[str, Any]:
    scheme = Scheme("", k, v)
    moved = workload.minimal_bytes - workload.kv_bytes + scheme.kv_bytes(workload)
    whole = floors(workload, gpu).time_us
    known = [
        {"text": say_time(timed.time_us), "word": check_word(timed.source), "what": timed.what}
        for timed in (measured(scheme) if measured else ())
    ]
    return {
        "k": say_part(k),
        "v": say_part(v),
        "bytes": round(scheme.bytes_per_element(workload.head_dim), 4),
        "floor_text": say_time(whole * moved / workload.minimal_bytes),
        "times": known,
    }


class QuantView(View, script="quant/view"):
    """The picture; every ``*_index`` says which choice a control shows."""

    tables = traitlets.Dict().tag(sync=True)
    bits_index = traitlets.Int(0).tag(sync=True)
    k_index = traitlets.Int(0).tag(sync=True)
    v_index = traitlets.Int(0).tag(sync=True)
    outliers_index = traitlets.Int(0).tag(sync=True)


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


def _name(part: TensorScheme) -> str:
    """The part in words, whatever its bits."""
    return say_part(dataclasses.replace(part, bits=8))
