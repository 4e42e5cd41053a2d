"""The answer, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..attention import softmax
from .inputs import Inputs

ROWS_AT_ONCE = 4096
"""Of a head: so many in float64 stay in the caches."""


@dataclass(frozen=True)
class Weights:
    """What some query heads make of the rows of one KV head."""

    # sequence, kv_head: which rows
    sequence: int
    kv_head: int
    heads: tuple[int, ...]  # query heads
    weights: np.ndarray  # softmax weights, float64 ``[len(heads), S]``
    lse: np.ndarray  # natural log of the sum of exponentials, float64 ``[len(heads)]``


def attention_weights(
    inputs: Inputs, pairs: Iterable[tuple[int, int]] | None = None
) -> list[Weights]:
    """Softmax weights of (sequence, query head) pairs, None all, in float64, without v."""
    workload = inputs.workload
    wanted: dict[tuple[int, int], list[int]] = {}
    if pairs is None:
        pairs = np.ndindex(workload.batch, workload.num_qo_heads)  # type: ignore[assignment]
    for sequence, head in pairs:  # type: ignore[union-attr]
        wanted.setdefault((sequence, head // workload.group_size), []).append(head)
    found = []
    for (sequence, kv_head), heads in wanted.items():
        k = inputs.kv_rows(sequence, kv_head)[0]
        q = inputs.q[sequence, heads].astype(np.float64)
        scores = np.concatenate([q @ rows.T for _, rows in _wide_rows(k)], axis=1)
        weights, lse = softmax(inputs.sm_scale * scores)
        found.append(Weights(sequence, kv_head, tuple(heads), weights, lse))
    return found


def _wide_rows(rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows ``[n, D]`` in float64, some after some, and which they are."""
    for first in range(0, max(1, len(rows)), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        yield some, rows[some].astype(np.float64, copy=False)


def apply_weights(inputs: Inputs, weights: Iterable[Weights]) -> tuple[np.ndarray, np.ndarray]:
    """The weighted rows of v, as `attention_oracle` returns them; k is not looked at."""
    workload = inputs.workload
    out = np.full((workload.batch, workload.num_qo_heads, workload.head_dim), np.nan)
    lse = np.full((workload.batch, workload.num_qo_heads), np.nan)
    for one in weights:
        v = inputs.kv_rows(one.sequence, one.kv_head)[1]
        out[one.sequence, list(one.heads)] = sum(
            one.weights[:, some] @ rows for some, rows in _wide_rows(v)
        )
        lse[one.sequence, list(one.heads)] = one.lse
    return out, lse


def attention_oracle(
    inputs: Inputs, pairs: Iterable[tuple[int, int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Decode attention of (sequence, query head) pairs, None all, of the given (already rounded)
    inputs: out float64 ``[B, Hq, D]`` and lse float64 ``[B, Hq]`` (natural log of the sum of
    exponentials). Pairs that were not asked for hold NaN."""
    return apply_weights(inputs, attention_weights(inputs, pairs))
