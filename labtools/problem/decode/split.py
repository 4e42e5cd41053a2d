"""How many pieces the rows of a sequence are cut into, and the two launches that a split takes.

A split gives one (sequence, head) to several blocks. It fills a GPU that would be half empty, and
it costs partial results that are written, read and joined. So the rule takes the fewest pieces
that keep the GPU busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..rung import Launch, Workspace
from .workload import Workload

MOST_PIECES = 64
LEAST_ROWS = 64
"""A piece with fewer rows costs more to join than it saves."""
ENOUGH_FILL = 0.85
"""Part of the best fill that is good enough, if fewer pieces reach it."""


def choose_split(
    workload: Workload,
    num_sms: int,
    blocks_per_sm: int,
    *,
    heads: int | None = None,
    tile_rows: int = 1,
    least_rows: int = LEAST_ROWS,
    most: int = MOST_PIECES,
    enough: float = ENOUGH_FILL,
) -> int:
    """The number of pieces a sequence, 1 .. ``most``: the fewest that keep the GPU nearly as busy
    (`fill_of_split`) as any number would.

    The idea of taking the smallest number within 15 % of the best is that of FlashAttention's split
    heuristic (Dao et al., `num_splits_heuristic`), here with lengths that differ and with several
    blocks an SM.

    Args:
        blocks_per_sm: resident on each SM: what fits, or what is enough to keep memory busy.
        heads: blocks a sequence without a split; None is one a query head, and a kernel whose
            block serves a whole group of query heads gives ``workload.num_kv_heads``.
        tile_rows: rows that a block takes at a time.
        least_rows: of a piece of the longest sequence.
        enough: part of the best fill that will do, above 0 and at most 1.

    Raises ValueError: a count below 1, or ``enough`` outside its range.
    """
    counts = (num_sms, blocks_per_sm, 1 if heads is None else heads, tile_rows, least_rows, most)
    if min(counts) < 1 or not 0 < enough <= 1:
        raise ValueError(f"choose_split needs counts of at least 1, got {counts} and {enough}")
    heads = workload.num_qo_heads if heads is None else heads
    lengths = workload.seq_lens or (workload.kv_len,) * workload.batch
    most_pieces = max(1, min(most, max(lengths) // least_rows))
    return _choose(lengths, heads, num_sms * blocks_per_sm, tile_rows, most_pieces, enough)


@lru_cache(maxsize=4096)
def _choose(
    lengths: tuple[int, ...], heads: int, slots: int, tile_rows: int, most: int, enough: float
) -> int:
    possible = range(1, most + 1)
    fills = [fill_of_split(lengths, split, heads, slots, tile_rows) for split in possible]
    good = enough * max(fills)
    return next(split for split, fill in zip(possible, fills, strict=True) if fill >= good)


def fill_of_split(
    lengths: Sequence[int], split: int, heads: int, slots: int, tile_rows: int = 1
) -> float:
    """Work over the time of all slots, 0..1: how busy ``split`` pieces keep a GPU.

    ``heads`` are blocks a sequence and piece, ``slots`` blocks that are resident at a time; a piece
    takes as long as its tiles. Blocks start in order, each as soon as a slot is free. Equal blocks
    then come in waves, which is exact. Of unequal ones the time is taken to be at most the mean
    load of a slot and the longest block on top (Graham 1966).
    """
    rows = np.asarray(lengths, np.int64)
    each = -(-rows // split)
    tiles = -(-each // tile_rows)
    blocks = len(rows) * heads * split
    longest = float(tiles.max())
    if int(tiles.min()) == longest:
        time = -(-blocks // slots) * longest
    elif blocks <= slots:
        time = longest
    else:
        pieces = -(-rows // each)  # those that are not empty
        mean = heads * int((tiles * pieces).sum()) / slots
        time = mean + longest
    work = heads * float((rows / tile_rows).sum())
    return work / (slots * time)


def split_launches(
    workload: Workload,
    entry: str,
    split: int,
    *,
    block: int,
    grid_x: int | None = None,
    buffers: Sequence[str] = ("q", "k", "v", "seq_lens"),
    scalars: Sequence[np.generic] | None = None,
    workspace: tuple[Workspace, ...] = (),
) -> list[Launch]:
    """A decode launch with ``split`` pieces a sequence, and the launch ``merge_pieces`` behind it.

    With one piece there is no second launch, and the first one writes ``out`` itself.

    Args:
        entry: the decode kernel; its grid is (``grid_x``, batch, ``split``).
        block: threads of a decode block.
        grid_x: blocks a sequence and piece; None is one a query head.
        buffers: the kernel's first arguments; then comes where it writes to: ``partial``, which
            is float32 ``[B, Hq, split, D + 2]``, or ``out``.
        scalars: the arguments behind; None is KV heads, padded length and the softmax scale for
            powers of two.
    """
    shape = (workload.batch, workload.num_qo_heads, split, workload.head_dim + 2)
    partial = (Workspace("partial", shape, "float32"),) if split > 1 else ()
    if scalars is None:
        scalars = decode_scalars(workload)
    decode = Launch(
        entry=entry,
        grid=(workload.num_qo_heads if grid_x is None else grid_x, workload.batch, split),
        block=(block, 1, 1),
        args=(*buffers, "partial" if split > 1 else "out", *scalars),
        workspace=workspace + partial,
    )
    if split == 1:
        return [decode]
    grid, threads = (workload.num_qo_heads, workload.batch, 1), (workload.head_dim, 1, 1)
    args = ("partial", "out")
    return [decode, Launch("merge_pieces", grid, threads, args=args, workspace=partial)]


def decode_scalars(workload: Workload) -> tuple[np.generic, ...]:
    """KV heads, padded length, and the softmax scale times log2(e), as kernels take them."""
    return (
        np.int32(workload.num_kv_heads),
        np.int32(workload.kv_len),
        np.float32(workload.sm_scale * np.log2(np.e)),
    )
