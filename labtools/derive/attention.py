"""The ski slope of attention: the least traffic with memory, by the size of a buffer.

Scores and weights never leave. What can stay in the buffer is a tile of queries with its output,
while the keys stream past; or a tile of keys, while queries and outputs that are not whole stream
past, in fp32. The query heads of one KV head may share its keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from labtools.problem.prefill import Prefill

from .sm import ELEMENT, SUM
from .traffic import Nest, SlopePoint, powers, slope_of


def attention_nest(
    problem: Prefill, heads: int, queries: int, keys: int, key_bytes: float | None = None
) -> Iterator[tuple[int, int, str]]:
    """(buffer bytes, traffic bytes, what stays) of both orders of the loops for one tile: some
    heads that share a KV head, some queries of each, and some keys.

    ``key_bytes`` are those of one key's rows of K and V, as they are kept; None is in 16 bits.
    """
    dim, pairs = problem.head_dim, problem.batch * problem.num_kv_heads
    rows = heads * queries
    if key_bytes is None:
        key_bytes = 2 * ELEMENT * dim
    buffer = math.ceil(ELEMENT * dim * rows + key_bytes * keys + SUM * dim * rows)
    seen = problem.keys_seen()
    ends = np.maximum.reduceat(seen, np.arange(0, len(seen), queries))
    again = -(-problem.group_size // heads)
    row_bytes = ELEMENT * dim
    own = 2 * row_bytes * len(seen) * problem.group_size  # queries and output, once
    streamed = round(key_bytes * int(ends.sum()) * again)
    yield buffer, pairs * (own + streamed), "output"
    # Each tile of keys meets the queries that see its first key.
    meets = int((-(-seen // keys)).sum()) * problem.group_size
    wholes = len(seen) * problem.group_size
    spilled = 2 * SUM * dim * (meets - wholes)
    once = round(key_bytes * problem.kv_len)
    yield buffer, pairs * (once + row_bytes * (meets + wholes) + spilled), "K and V"


def attention_slope(
    problem: Prefill, buffers: Sequence[int], key_bytes: float | None = None
) -> list[SlopePoint]:
    """The slope at some sizes of the buffer, over tiles of powers of two and of the whole; decode
    is one query a sequence."""
    found: list[Nest] = []
    for heads in powers(problem.group_size):
        for queries in powers(problem.num_queries):
            for keys in powers(problem.kv_len):
                tile = (heads * queries, keys, problem.head_dim)
                for buffer, traffic, stays in attention_nest(
                    problem, heads, queries, keys, key_bytes
                ):
                    found.append((traffic, buffer, tile, stays))
    return slope_of(sorted(found), buffers)
