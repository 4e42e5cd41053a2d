"""Seeded inputs that find wrong kernels.

`labtools.problem.attention` says what each distribution is for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..attention import draw_qkv, score_profile
from ..problem import DrawnArrays
from ..storage import element_dtype
from .workload import Workload

TIMES_LARGER, LARGEST_KEY = 256, 3e4
"""Elements of every second key of plausible padding, in those of a key; at most so large, in fp16
and in bf16 finite."""


@dataclass(frozen=True)
class Inputs(DrawnArrays):
    """The arrays of one problem."""

    q: np.ndarray  # float16 or bfloat16 ``[B, Hq, D]``
    # as q, ``[B, Hkv, S, D]``; rows past a sequence's length are padding. Paged: ``[num_pages, Hkv,
    # page_size, D]`` with the pages in shuffled order, padding in the rows past a length and in
    # pages that belong to no sequence. Padding is NaN, or with an odd seed numbers like the others
    # and much larger ones: what a kernel makes of one of them it does not make of the others.
    k: np.ndarray
    v: np.ndarray  # as k
    seq_lens: np.ndarray  # int32 ``[B]``
    sm_scale: float  # 1 / sqrt(D)
    workload: Workload  # what they were drawn for
    # paged: int32 ``[B, max_pages]``, the pages of each sequence in order; behind its last page
    # stands ``num_pages``, which is no page. None where there are no pages.
    page_table: np.ndarray | None = None

    @property
    def problem(self) -> Workload:
        """The workload."""
        return self.workload

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
    """Which pages each sequence of a paged workload has, int32 ``[B, max_pages]``; another ``seed``
    than the workload's shuffles them otherwise.

    The pages are given out in shuffled order, a few to nobody. Entries behind a sequence's last
    page hold ``num_pages``, which is out of range, so that following one shows.
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
    """``[B, Hkv, S, D]`` to ``[num_pages, Hkv, page_size, D]``; padding where no row belongs."""
    pages = np.full(workload.kv_shape, np.nan, rows.dtype)
    size = workload.page_size
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        for index, page in enumerate(table[sequence, : -(-length // size)]):
            part = rows[sequence, :, index * size : (index + 1) * size]
            pages[page, :, : part.shape[1]] = part
    if is_plausible(workload) and (first := np.argwhere(~np.isnan(pages[:, 0, 0, 0]))).size:
        # Pages of nobody, and what no row reaches, look like the first page of somebody.
        pages = np.where(np.isnan(pages), pages[first[0, 0]][:, :1], pages)
    return pages


def is_plausible(workload: Workload) -> bool:
    """Whether padding looks like keys and values, and is not NaN."""
    return workload.seed % 2 == 1


def _fill_padding(
    workload: Workload, k: np.ndarray, v: np.ndarray, sequence: int, length: int
) -> None:
    """What stands past a sequence's length in its k and v, ``[Hkv, S, D]``: NaN, or its own keys
    over again with other values, every second key so much larger that beside its score the others
    weigh nothing."""
    if not is_plausible(workload):
        k[:, length:] = v[:, length:] = np.nan
    elif length:
        k[:, length:] = k[:, np.arange(k.shape[1] - length) % length]
        larger = k[:, length + sequence % 2 :: 2]
        np.clip(larger * TIMES_LARGER, -LARGEST_KEY, LARGEST_KEY, out=larger)


def make_inputs(workload: Workload) -> Inputs:
    """Draw the inputs of a workload; the same workload gives the same bits."""
    rng = np.random.default_rng([workload.seed, *workload.shape_words()])
    profile = functools.partial(_score_profiles, workload, rng)
    q, k, v = draw_qkv(rng, workload, workload.group_size, profile)
    lengths = workload.lengths
    for sequence, n in enumerate(lengths):
        _fill_padding(workload, k[sequence], v[sequence], sequence, int(n))
    dtype = element_dtype(workload.dtype)
    table = make_page_table(workload) if workload.is_paged else None
    k, v = k.astype(dtype), v.astype(dtype)
    if table is not None:
        k, v = into_pages(k, workload, table), into_pages(v, workload, table)
    return Inputs(
        q=q.reshape(workload.output.shape).astype(dtype),
        k=k,
        v=v,
        seq_lens=lengths,
        sm_scale=workload.sm_scale,
        workload=workload,
        page_table=table,
    )


def _score_profiles(workload: Workload, rng: np.random.Generator) -> np.ndarray:
    """The wanted scores t, float32 [B, Hkv, S]; only rows below each length matter."""
    shape = (workload.batch, workload.num_kv_heads, workload.kv_len)
    profile = np.zeros(shape, np.float32)
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        for head in range(workload.num_kv_heads):
            odd = (sequence + head) % 2 == 1
            row = score_profile(workload.distribution, length, odd, rng)
            profile[sequence, head, :length] = row
    return profile
