"""Seeded inputs that find wrong kernels.

Each distribution steers the scores ``s[n] = sm_scale * q . k[n]`` towards a profile ``t[n]``:

``normal``       no profile; q, k, v standard normal.
``late_peaked``  the last rows weigh most, so a kernel that drops them is far off.
``rising``       the scores climb, so the maximum moves often: a missing rescale shows.
``large``        scores past +-100, so exp overflows unless the maximum is subtracted. For every
                 other (sequence, KV head) all scores are below -100: a maximum that starts at
                 zero leaves no weight at all.
``one_hot``      one row takes all the weight, so the output is that row of v.
``constant_v``   v is the same in every row, so the weights must sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .workload import Workload

LATE_PEAK = 12.0
RISE = 15.0
LARGE_SPREAD = 60.0
LARGE_PEAK = 150.0
LARGE_FALL = 260.0
ONE_HOT_PEAK = 60.0


@dataclass(frozen=True)
class Inputs:
    """The arrays of one problem.

    Args:
        q: float16 ``[B, Hq, D]``.
        k: float16 ``[B, Hkv, S, D]``; rows past a sequence's length hold NaN.
        v: as k.
        seq_lens: int32 ``[B]``.
        sm_scale: 1 / sqrt(D).
        workload: what they were drawn for.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    seq_lens: np.ndarray
    sm_scale: float
    workload: Workload

    def buffers(self) -> dict[str, np.ndarray]:
        """The input arrays by the names that a Launch uses."""
        return {"q": self.q, "k": self.k, "v": self.v, "seq_lens": self.seq_lens}


def make_inputs(workload: Workload) -> Inputs:
    """Draw the inputs of a workload; the same workload gives the same bits."""
    rng = np.random.default_rng([workload.seed, *_shape_words(workload)])
    batch, heads, length, dim = (
        workload.batch,
        workload.num_kv_heads,
        workload.kv_len,
        workload.head_dim,
    )
    q = rng.standard_normal((batch, heads, workload.group_size, dim), dtype=np.float32)
    k = rng.standard_normal((batch, heads, length, dim), dtype=np.float32)
    v = rng.standard_normal((batch, heads, length, dim), dtype=np.float32)
    if workload.distribution == "constant_v":
        v[:] = rng.standard_normal((batch, heads, 1, dim), dtype=np.float32)
    elif workload.distribution != "normal":
        # Give the query heads of a group a common direction u and lay t[n] along it in k[n]:
        # then q . k[n] / sqrt(D) is t[n] plus the noise of the normal parts.
        u = rng.standard_normal((batch, heads, dim), dtype=np.float32)
        profile = _score_profile(workload, rng)
        coefficient = profile * np.sqrt(dim) / np.square(u).sum(-1, keepdims=True)
        q = 0.25 * q + u[:, :, None, :]
        k = 0.25 * k + coefficient[..., None] * u[:, :, None, :]
    lengths = workload.lengths
    for sequence, n in enumerate(lengths):
        k[sequence, :, n:] = np.nan
        v[sequence, :, n:] = np.nan
    return Inputs(
        q=q.reshape(batch, workload.num_qo_heads, dim).astype(np.float16),
        k=k.astype(np.float16),
        v=v.astype(np.float16),
        seq_lens=lengths,
        sm_scale=workload.sm_scale,
        workload=workload,
    )


def _shape_words(workload: Workload) -> list[int]:
    return [
        workload.batch,
        workload.num_qo_heads,
        workload.num_kv_heads,
        workload.kv_len,
        workload.head_dim,
    ]


def _score_profile(workload: Workload, rng: np.random.Generator) -> np.ndarray:
    """The wanted scores t, float32 [B, Hkv, S]; only rows below each length matter."""
    shape = (workload.batch, workload.num_kv_heads, workload.kv_len)
    profile = np.zeros(shape, np.float32)
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        for head in range(workload.num_kv_heads):
            row = profile[sequence, head, :length]
            if workload.distribution == "late_peaked":
                row[length - max(1, length // 64) :] = LATE_PEAK
            elif workload.distribution == "rising":
                row[:] = np.linspace(-RISE, RISE, length)
            elif workload.distribution == "large":
                row[:] = LARGE_SPREAD * rng.standard_normal(length, dtype=np.float32)
                row[rng.integers(length)] = LARGE_PEAK
                if (sequence + head) % 2:
                    row -= max(float(row.max()), LARGE_PEAK) - LARGE_PEAK + LARGE_FALL
            elif workload.distribution == "one_hot":
                row[rng.integers(length)] = ONE_HOT_PEAK
    return profile
