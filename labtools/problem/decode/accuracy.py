"""What keeping the cache in few bits costs by itself, before any kernel rounds anything.

Attention in float64 of what the cache keeps, against the same of the cache as it was. A kernel's
own error, against what it was given, is another question, which every check answers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from ..compare import worst_relative_error
from .inputs import Inputs, make_inputs
from .oracle import attention_oracle
from .outliers import make_outlier_inputs, scheme_errors
from .scheme import Scheme
from .workload import Workload

E4M3_LARGEST = 448.0
SAMPLE_HEADS = (8, 2)
"""Query and KV heads of the one sequence that an error is computed on."""
MOST_TOKENS = 4096


def as_e4m3(inputs: Inputs) -> Inputs:
    """The inputs with k and v as an 8-bit float (e4m3) of one scale a tensor keeps them.

    The scale is 1 unless a value does not fit, as the FP8 baselines have it.
    """
    import ml_dtypes

    kept = {}
    for name in ("k", "v"):
        wide = getattr(inputs, name).astype(np.float32)
        scale = np.float32(max(1.0, float(np.nanmax(np.abs(wide))) / E4M3_LARGEST))
        kept[name] = (wide / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    return dataclasses.replace(inputs, **kept)


def errors_of_scheme(problem: Workload, keeps: Scheme | None) -> Mapping[str, float]:
    """The worst relative error of a (sequence, head) that comes from what the cache keeps, None
    being e4m3 as the libraries have it: ``normal``, and ``outliers`` of `make_outlier_inputs`.

    One sequence of the problem's length (`MOST_TOKENS` at most), head_dim and type, with
    `SAMPLE_HEADS`; the timed inputs themselves would take minutes.
    """
    sample = Workload(
        *(1, *SAMPLE_HEADS, min(problem.kv_len, MOST_TOKENS), problem.head_dim), dtype=problem.dtype
    )
    return _errors_of_scheme(sample, keeps)


@functools.lru_cache(maxsize=64)
def _errors_of_scheme(sample: Workload, keeps: Scheme | None) -> Mapping[str, float]:
    found = {}
    for name, inputs in _drawn(sample).items():
        if keeps is not None:
            found[name] = scheme_errors([inputs], [keeps])[0].worst_error
        else:
            expected, _ = attention_oracle(inputs)
            found[name] = worst_relative_error(attention_oracle(as_e4m3(inputs))[0], expected)
    return found


@functools.lru_cache(maxsize=2)
def _drawn(sample: Workload) -> Mapping[str, Inputs]:
    return {"normal": make_inputs(sample), "outliers": make_outlier_inputs(sample)}
