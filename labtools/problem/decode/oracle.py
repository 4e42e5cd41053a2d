"""The answer, in float64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .inputs import Inputs


def attention_oracle(
    inputs: Inputs, pairs: Iterable[tuple[int, int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Decode attention of the given (already rounded) inputs, computed in float64.

    Args:
        inputs: as `make_inputs` gives them, contiguous or paged; or dequantised ones.
        pairs: (sequence, query head) pairs to compute; None means all.

    Returns:
        out float64 ``[B, Hq, D]`` and lse float64 ``[B, Hq]`` (natural log of the sum of
        exponentials). Pairs that were not asked for hold NaN.
    """
    workload = inputs.workload
    out = np.full((workload.batch, workload.num_qo_heads, workload.head_dim), np.nan)
    lse = np.full((workload.batch, workload.num_qo_heads), np.nan)
    wanted: dict[tuple[int, int], list[int]] = {}
    if pairs is None:
        pairs = np.ndindex(workload.batch, workload.num_qo_heads)  # type: ignore[assignment]
    for sequence, head in pairs:  # type: ignore[union-attr]
        wanted.setdefault((sequence, head // workload.group_size), []).append(head)
    for (sequence, kv_head), heads in wanted.items():
        k, v = (rows.astype(np.float64) for rows in inputs.kv_rows(sequence, kv_head))
        q = inputs.q[sequence, heads].astype(np.float64)
        scores = inputs.sm_scale * (q @ k.T)
        peak = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - peak)
        total = weights.sum(axis=1, keepdims=True)
        out[sequence, heads] = (weights / total) @ v
        lse[sequence, heads] = (peak + np.log(total))[:, 0]
    return out, lse
