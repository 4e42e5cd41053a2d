"""The workloads a kernel must get right before anybody times it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ..attention import DISTRIBUTIONS
from ..problem import (
    DRAWN_DTYPES,
    Rng,
    Supports,
    draw_supported,
    kinds_of,
    span,
    supported,
    takes_all,
)
from .workload import PAGE_SIZES, Workload

ODD_LENGTHS = (1, 31, 33, 130)
RAGGED = ((97, 1, 64), (64, 97, 1), (1, 64, 97))
"""Taken in turn, so that no sequence is always the full one: lengths ignored for it alone show."""
WHOLE_CASES = ("normal", "rising", "large", "one_hot")
"""With sequences of one length too; the others have them where the cases are long."""
LONG_CASES = (
    *((1, 1, 4113, "late_peaked"), (3, 1, 1100, "rising"), (9, 1, 1030, "early_peaked")),
    *((1, 1, 1201, "sunk"), (1, 1, 1301, "normal")),
)
"""Heads, KV heads, length: more than a thousand keys, and other groups than the usual ones."""
GROUPS = ((10, 2, "rising"), (7, 1, "large"), (18, 2, "one_hot"))
"""Five, seven and nine query heads a KV head, where there is more than one too."""
MANY = 131
"""Sequences, more than a warp or a block takes at a time."""
EVERY_END = (tuple((29 * i + 40) % 64 + 1 for i in range(64)), (127, 257, 128, 255, 129, 256))
"""Every length of 1..64, shuffled, and those around 128 and 256: every way a tile can end. In two
cases, since a short sequence takes as much of the cache as the longest beside it."""


def battery(workload: Workload, supports: Supports = takes_all) -> list[Workload]:
    """The given workload, then small ones that cover what it may leave out, without those that the
    kernel refuses through ``supports``.

    They keep the head dimension, element type and layout, and take every distribution, odd
    lengths, ragged lengths (each of 1..64 among them), grouped heads with more than one KV head, a
    few thousand keys with the weight at either end, groups of an odd size and of sixteen, many
    sequences, and if the workload is paged the other page size.
    """
    cases = [workload]
    kept = {name: getattr(workload, name) for name in ("head_dim", "dtype", "layout", "page_size")}
    small = Workload(3, 8, 2, 97, seed=workload.seed + 1, **kept)
    for index, distribution in enumerate(DISTRIBUTIONS):
        if distribution in WHOLE_CASES:
            cases.append(small.replace(distribution=distribution))
        ragged = RAGGED[index % len(RAGGED)]
        cases.append(small.replace(distribution=distribution, seq_lens=ragged))
    for length in ODD_LENGTHS:
        cases.append(small.replace(kv_len=length, batch=2, distribution="late_peaked"))
    # Heads as the given workload groups them, and no grouping at all.
    group = workload.group_size
    cases.append(small.replace(num_qo_heads=2 * group, num_kv_heads=2, kv_len=65))
    cases.append(small.replace(num_qo_heads=3, num_kv_heads=3, kv_len=65))
    # No sequence is full here.
    for heads, lengths in enumerate(EVERY_END, start=1):
        case = small.replace(batch=len(lengths), num_qo_heads=heads, num_kv_heads=1)
        case = case.replace(kv_len=max(lengths) + 2, seq_lens=lengths)
        cases.append(case.replace(distribution="late_peaked"))
    for heads, kv_heads, length, distribution in LONG_CASES:
        shape = {"num_qo_heads": heads, "num_kv_heads": kv_heads, "kv_len": length}
        cases.append(small.replace(batch=1, distribution=distribution, **shape))
    for index, (heads, kv_heads, distribution) in enumerate(GROUPS):
        shape = {"num_qo_heads": heads, "num_kv_heads": kv_heads, "kv_len": 33 + 7 * index}
        cases.append(small.replace(batch=2, distribution=distribution, **shape))
    lengths = tuple(5 * i % 11 + 1 for i in range(MANY))
    many = small.replace(batch=MANY, num_qo_heads=1, num_kv_heads=1, kv_len=11)
    cases.append(many.replace(seq_lens=lengths))
    for size in PAGE_SIZES if workload.is_paged else ():
        other = small.replace(page_size=size, distribution="late_peaked", kv_len=2 * size + 1)
        cases.append(other)
        cases.append(other.replace(seq_lens=(size, 2 * size + 1, size + 1)))
    return supported(cases, workload, supports)


def covered(cases: Sequence[Workload]) -> list[str]:
    """What workloads cover, each in a few words."""
    lengths = [int(n) for case in cases for n in (min(case.lengths), max(case.lengths))]
    fields = {"groups": "group_size", "B": "batch", "D": "head_dim"}
    said = [span("S", lengths)]
    said += [span(name, [getattr(one, field) for one in cases]) for name, field in fields.items()]
    if any(case.seq_lens for case in cases):
        said.append("ragged lengths")
    return said + kinds_of(cases, "distribution", "dtype", "layout")


SHORTEST_DRAWN, LONGEST_DRAWN = 1, 3000
MOST_DRAWN_ELEMENTS = 2**22
"""Of k or v: a drawn workload is small enough for the oracle to compute every head."""


def draw_workloads(
    count: int,
    seed: int,
    supports: Supports = takes_all,
    *,
    longest: int = LONGEST_DRAWN,
    most_elements: int = MOST_DRAWN_ELEMENTS,
) -> list[Workload]:
    """Seeded random workloads of every kind that a kernel takes: batch, heads, groups of 1..8,
    lengths (short as often as long, ragged in half of them), distributions, types and layouts.

    ``longest`` is in tokens of a sequence; ``most_elements`` are of k, padding included.
    """
    rng = np.random.default_rng([seed, 400])
    draw = functools.partial(_draw_workload, rng, longest, most_elements)
    return draw_supported(draw, count, supports)


def _draw_workload(rng: Rng, longest: int, most_elements: int) -> Workload:
    head_dim = int(rng.choice((64, 128)))
    # Evenly over the logarithm: a tile's worth of rows as often as a thousand.
    length = int(np.exp(rng.uniform(np.log(SHORTEST_DRAWN), np.log(longest + 1))))
    kv_heads = int(rng.integers(1, 9))
    most = max(1, most_elements // (length * head_dim * kv_heads))
    batch = int(rng.integers(1, min(most, 16) + 1))
    kind = str(rng.choice(("all", "any", "ends", "none"), p=(0.5, 0.3, 0.1, 0.1)))
    drawn: np.ndarray | None = None
    if kind == "any":
        drawn = rng.integers(1, length + 1, batch)
    elif kind == "ends":  # hardly anything beside everything
        drawn = rng.choice((1, length), batch)
    elif kind == "none":  # nobody is full
        drawn = rng.integers(1, max(2, length), batch)
    page_size = int(rng.choice((0, *PAGE_SIZES)))
    return Workload(
        batch,
        kv_heads * int(rng.integers(1, 9)),
        kv_heads,
        length,
        head_dim,
        seq_lens=None if drawn is None else tuple(int(n) for n in drawn),
        dtype=str(rng.choice(DRAWN_DTYPES)),
        layout="paged" if page_size else "contiguous",
        distribution=str(rng.choice(DISTRIBUTIONS)),
        seed=int(rng.integers(2**31)),
        page_size=page_size,
    )
