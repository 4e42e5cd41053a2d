"""The workloads a kernel must get right before anybody times it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from ..attention import DISTRIBUTIONS, NOT_TELLING, TELLING, other_head_dims, shortest_rows
from ..pairs import case_cost, in_turn, joint_cases, size_levels
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

LENGTH_CLASSES = {
    "1-32": ((16, 32), (17,), (7, 23, 31)),
    "33-256": ((256, 64), (65, 129), (97, 130, 200)),
    "257-700": ((512,), (257, 513), (300, 700)),
    "701+": ((768,), (769,), (803, 1030, 775)),
}
"""Keys of a sequence by length class: whole tiles, one key more, anything else. Taken in turn."""
TILES, LAST_TILE = ("whole", "one more", "other"), {0: "16n", 1: "+1"}
BATCH_SIZES, KV_HEADS, GROUPS = (1, 3, 19), (1, 2, 5), (1, 4, 7, 16)
_STARTS = {"S": (1, 33, 257, 701), "B": (1, 2, 19), "Hkv": (1, 2, 5), "group": (1, 2, 7, 16)}
"""Where each level of a size begins."""
RAGGED = ("full", "equal", "ragged")
"""Sequences as long as the cache is wide; all of one length below it; of several lengths."""
SIZES_OF_LEVEL: dict[str, dict[int, tuple[int, ...]]] = {
    **{"batch": {3: (8, 3, 16, 2, 4)}, "num_kv_heads": {2: (2, 4, 3), 5: (8, 5, 6)}},
    "group_size": {4: (4, 6), 7: (8, 7, 12, 7)},
}
"""Sizes of one level, which a kernel may tell apart all the same. They are taken in turn in cases
of at most `MOST_SIZED_VISITS` visits."""
MOST_SIZED_VISITS = 4000
LONG_CASE, LEAPING_CASE, LONGEST_CASE = (8209, 5, 4127, 2011), (4127, 16_519), 2**18 + 41
"""Keys: of two batches, the second with scores that leap in one row of q or in another alone, and
of one sequence, as many as models take and more."""
MOST_LONGEST_DIM = 64
"""Of that one's head dimension: with a larger one it has fewer keys, since a cache that a kernel
writes first takes many times its size to be watched."""
ONE_LONG = (("rising", 4133), ("faint", 4099))
"""Kinds of inputs, and keys of one sequence of one head: what other values of knobs are tried on,
too."""
OTHER_ENDS = (65, 66, 68, 72, 80, 96, 192, 128)
"""Keys of sequences as long as the cache is wide, each a multiple of another power of two."""
OTHER_LENGTHS = (17, 389, 97)
"""Lengths of the case of each distribution that is not telling."""
MANY = ((1027, 1, 4), (83, 8, 5))
"""Sequences, KV heads and group: more than a block has threads, and more heads than blocks are
resident."""
MANY_SPLIT = (137, 1, 8, 301)
"""More than a thousand heads, and keys: a kernel that splits a sequence splits many."""
MANY_HEADS = (((3, 1, 2, 3, 3, 2, 1, 3), 16, 8), ((31, 5), 8, 6), ((33, 5), 1, 71))
"""Lengths, KV heads and group: heads of large models."""
LARGE_GROUPS = (41, 64, 97)
"""Of three KV heads. A reciprocal in float32 divides wrongly by the first and the last, and by the
query heads of the first."""
EVERY_END = (tuple((29 * i + 40) % 64 + 1 for i in range(64)), (127, 257, 128, 255, 129, 256))
"""Every length of 1..64, shuffled, and those around 128 and 256: every way a tile can end. In two
cases, since a short sequence takes as much of the cache as the longest beside it."""


def battery(workload: Workload, supports: Supports = takes_all) -> list[Workload]:
    """The given workload, then small ones that cover what it may leave out, without those that the
    kernel refuses through ``supports``.

    They keep element type and layout. Every two levels of `levels_of` meet in one of them, as far
    as the kernel takes both; every distribution comes with short and with long sequences; then each
    length of 1..64 as the end of a sequence, many sequences, many heads, many keys, no keys, the
    other head dimension, and if the workload is paged the other page size.
    """
    kept = {name: getattr(workload, name) for name in ("head_dim", "dtype", "layout", "page_size")}
    small = Workload(3, 8, 2, 97, seed=workload.seed + 1, **kept)
    cases = [workload, *_joint_cases(small, workload.group_size, supports)]

    def add(lengths: Sequence[int], width: int, kv_heads: int, group: int, drawn: str) -> None:
        """The case with this group, or with the workload's own where that is refused."""
        shape = {"batch": len(lengths), "num_kv_heads": kv_heads, "kv_len": width}
        case = small.replace(**shape, num_qo_heads=kv_heads * group, distribution=drawn)
        case = case.replace(seq_lens=tuple(lengths))
        if supports(case):
            case = case.replace(num_qo_heads=kv_heads * workload.group_size)
        cases.append(case)

    for number, values in enumerate(NOT_TELLING):
        add(OTHER_LENGTHS, max(OTHER_LENGTHS) + number % 2, 2, 1 + number % 2, values)
        if workload.is_paged and number % 2:  # so that the last has the other size, too
            other = cases[-1].replace(page_size=sum(PAGE_SIZES) - workload.page_size)
            cases[-1] = cases[-1] if supports(other) else other
    # No sequence is full here.
    for group, ends in enumerate(EVERY_END, start=1):
        add(ends, max(ends) + 2, 1, group, "late_peaked")
    add((LONGEST_CASE,), LONGEST_CASE, 1, 1, "normal")
    cases[-1] = shortest_rows(cases[-1], supports)
    if cases[-1].head_dim > MOST_LONGEST_DIM:
        keys = LONGEST_CASE * MOST_LONGEST_DIM // cases[-1].head_dim
        cases[-1] = cases[-1].replace(kv_len=keys, seq_lens=(keys,))
    add(LONG_CASE, max(LONG_CASE), 1, 1, "sink")
    add(LEAPING_CASE, max(LEAPING_CASE), 2, 2, "rising")
    cases[-1] = shortest_rows(cases[-1], supports)
    for sequences, kv_heads, group in MANY:
        add([5 * i % 3 + 1 for i in range(sequences)], 3, kv_heads, group, "large")
    sequences, kv_heads, group, width = MANY_SPLIT
    lengths = [width if i % 20 == 9 else 5 * i % 3 + 1 for i in range(sequences)]
    add(lengths, width, kv_heads, group, "normal")
    for few, kv_heads, group in MANY_HEADS:
        add(few, max(few), kv_heads, group, "normal")
    for group in LARGE_GROUPS:
        add((2, 1, 2), 2, 3, group, "normal")
    add((0, 5, 0), 5, 2, 4, "normal")
    cases.append(small.replace(kv_len=1, distribution="rising"))
    for one in other_head_dims(small, supports):
        ragged = one.replace(batch=6, seq_lens=(97, 1, 64, 2, 33, 80), distribution="rising")
        cases += [ragged, one.replace(batch=1, kv_len=80, distribution="sink")]
    for size in PAGE_SIZES if workload.is_paged else ():
        other = small.replace(page_size=size, distribution="late_peaked", kv_len=2 * size + 1)
        cases.append(other)
        cases.append(other.replace(seq_lens=(size, 2 * size + 1, size + 1)))
    for keys in OTHER_ENDS:
        add((keys,), keys, 1, workload.group_size, "normal")
    for values, keys in ONE_LONG:
        add((keys,), keys, 1, 1, values)
    return supported(cases, workload, supports)


def _joint_cases(small: Workload, group: int, supports: Supports) -> list[Workload]:
    """Small workloads in which every two levels meet, of telling distributions."""
    numbers = itertools.count()
    choices = {
        **{"klass": list(LENGTH_CLASSES), "tile": range(len(TILES)), "batch": BATCH_SIZES},
        **{"kv_heads": KV_HEADS, "shared": sorted({*GROUPS, group}), "ragged": RAGGED},
    }

    def make(
        klass: str, tile: int, batch: int, kv_heads: int, shared: int, ragged: str
    ) -> Workload | None:
        number = next(numbers)
        if ragged == "ragged" and batch == 1:
            return None
        length = LENGTH_CLASSES[klass][tile]
        shape = (batch, kv_heads * shared, kv_heads)
        return _of_lengths(small, shape, length[number % len(length)], ragged, number)

    # The costly ones come last, and each distribution falls on short and on long sequences.
    how = (levels_of, lambda one: case_cost(one.visits, one.kv_len), supports)
    named = joint_cases(make, choices, *how)
    resized = []
    for index, one in enumerate(named):
        alike = [of.get(n := getattr(one, name), (n,)) for name, of in SIZES_OF_LEVEL.items()]
        batch, kv_heads, shared = (ways[(index + i) % len(ways)] for i, ways in enumerate(alike))
        levels = levels_of(one)
        length = LENGTH_CLASSES[levels["S"]][[*LAST_TILE.values(), "other"].index(levels["S end"])]
        shape = (batch, kv_heads * shared, kv_heads)
        other = _of_lengths(small, shape, length[index % len(length)], levels["lengths"], index)
        if other.visits <= MOST_SIZED_VISITS and levels_of(other) == levels:
            one = one if supports(other) else other
        resized.append(one)
    return in_turn(resized, TELLING, supports)


def _of_lengths(
    small: Workload, shape: tuple[int, int, int], length: int, ragged: str, number: int
) -> Workload:
    """A workload of (B, Hq, Hkv) whose longest sequence has ``length`` keys."""
    batch, heads, kv_heads = shape
    lengths, width = None, length
    if ragged == "equal":
        lengths, width = (length,) * batch, length + 3 + number % 64
    elif ragged == "ragged":
        # One has them all, at a place of its own; the others end anywhere, half of them near the
        # end of a tile.
        rng = np.random.default_rng([number, 403])
        drawn = rng.integers(1, length + 1, batch)
        near = (drawn + 32) // 64 * 64 + rng.integers(-1, 2, batch)
        drawn[::2] = np.clip(near[::2], 1, length)
        drawn[number % batch] = length
        lengths = tuple(int(n) for n in drawn)
        width = length + number % 2
    return small.replace(
        batch=batch, num_qo_heads=heads, num_kv_heads=kv_heads, kv_len=width, seq_lens=lengths
    )


def levels_of(workload: Workload) -> dict[str, str]:
    """What a workload has of each factor whose levels meet in pairs in a battery."""
    lengths, batch = {int(n) for n in workload.lengths}, workload.batch
    sizes = {"S": max(lengths), "B": batch, "Hkv": workload.num_kv_heads}
    levels = size_levels({**sizes, "group": workload.group_size}, _STARTS, {"S": LAST_TILE})
    full = lengths == {workload.kv_len}
    return {**levels, "lengths": "ragged" if len(lengths) > 1 else "full" if full else "equal"}


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
