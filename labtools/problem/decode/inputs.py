"""Seeded inputs that find wrong kernels.

Each distribution steers the scores ``s[n] = sm_scale * q . k[n]`` towards a profile ``t[n]``:

``normal``       no profile; q, k, v standard normal.
``late_peaked``  the last rows weigh most, so a kernel that drops them is far off.
``early_peaked`` the first rows weigh most, so a kernel that reads only the end is far off.
``rising``       the scores climb, so the maximum moves often: a missing rescale shows.
``large``        scores past +-100, so exp overflows unless the maximum is subtracted. For every
                 other (sequence, KV head) all scores are below -100: a maximum that starts at
                 zero leaves no weight at all.
``sunk``         all scores are below -5000: any number that a maximum starts at shows, unless it is
                 as low as a number can be. One row takes all the weight, whatever is rounded.
``one_hot``      one row takes all the weight, so the output is that row of v.
``constant_v``   v is the same in every row, so the weights must sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dtypes import element_dtype
from .workload import Workload

LATE_PEAK = 12.0
RISE = 15.0
LARGE_SPREAD = 60.0
LARGE_PEAK = 150.0
LARGE_FALL = 260.0
ONE_HOT_PEAK = 60.0
SUNK, SUNK_PEAK = -9000.0, -6000.0


@dataclass(frozen=True)
class Inputs:
    """The arrays of one problem.

    Args:
        q: float16 or bfloat16 ``[B, Hq, D]``.
        k: as q, ``[B, Hkv, S, D]``; rows past a sequence's length hold NaN. Paged:
            ``[num_pages, Hkv, page_size, D]`` with the pages in shuffled order, NaN in the rows
            past a length and in pages that belong to no sequence.
        v: as k.
        seq_lens: int32 ``[B]``.
        sm_scale: 1 / sqrt(D).
        workload: what they were drawn for.
        page_table: paged: int32 ``[B, max_pages]``, the pages of each sequence in order; behind
            its last page stands ``num_pages``, which is no page. None where there are no pages.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    seq_lens: np.ndarray
    sm_scale: float
    workload: Workload
    page_table: np.ndarray | None = None

    @property
    def problem(self) -> Workload:
        """The workload."""
        return self.workload

    def buffers(self) -> dict[str, np.ndarray]:
        """The input arrays by the names that a Launch uses."""
        named = {"q": self.q, "k": self.k, "v": self.v, "seq_lens": self.seq_lens}
        if self.page_table is not None:
            named["page_table"] = self.page_table
        return named

    def kv_rows(self, sequence: int, kv_head: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of k and of v that one KV head of a sequence has, each ``[length, D]``."""
        length = int(self.seq_lens[sequence])
        if self.page_table is None:
            return self.k[sequence, kv_head, :length], self.v[sequence, kv_head, :length]
        pages = self.page_table[sequence, : -(-length // self.workload.page_size)]
        dim = self.workload.head_dim
        k, v = (array[pages, kv_head].reshape(-1, dim)[:length] for array in (self.k, self.v))
        return k, v


def make_page_table(workload: Workload, seed: int | None = None) -> np.ndarray:
    """Which pages each sequence of a paged workload has, int32 ``[B, max_pages]``.

    The pages are given out in shuffled order, a few to nobody. Entries behind a sequence's last
    page hold ``num_pages``, which is out of range, so that following one shows.

    Args:
        workload: a paged one.
        seed: another shuffle; None takes the workload's.
    """
    rng = np.random.default_rng([workload.seed if seed is None else seed, workload.num_pages])
    order = rng.permutation(workload.num_pages).astype(np.int32)
    table = np.full((workload.batch, workload.max_pages), workload.num_pages, np.int32)
    first = 0
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        count = -(-length // workload.page_size)
        table[sequence, :count] = order[first : first + count]
        first += count
    return table


def into_pages(rows: np.ndarray, workload: Workload, table: np.ndarray) -> np.ndarray:
    """``[B, Hkv, S, D]`` to ``[num_pages, Hkv, page_size, D]``; NaN where no row belongs."""
    pages = np.full(workload.kv_shape, np.nan, rows.dtype)
    size = workload.page_size
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        for index, page in enumerate(table[sequence, : -(-length // size)]):
            part = rows[sequence, :, index * size : (index + 1) * size]
            pages[page, :, : part.shape[1]] = part
    return pages


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
    dtype = element_dtype(workload.dtype)
    table = make_page_table(workload) if workload.is_paged else None
    k, v = k.astype(dtype), v.astype(dtype)
    if table is not None:
        k, v = into_pages(k, workload, table), into_pages(v, workload, table)
    return Inputs(
        q=q.reshape(batch, workload.num_qo_heads, dim).astype(dtype),
        k=k,
        v=v,
        seq_lens=lengths,
        sm_scale=workload.sm_scale,
        workload=workload,
        page_table=table,
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
            elif workload.distribution == "early_peaked":
                row[: max(1, length // 64)] = LATE_PEAK
            elif workload.distribution == "sunk":
                row[:] = SUNK
                row[rng.integers(length)] = SUNK_PEAK
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
