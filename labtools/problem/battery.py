"""The workloads a kernel must get right before anybody times it."""

from __future__ import annotations

from collections.abc import Callable

from .workload import DISTRIBUTIONS, Workload

ODD_LENGTHS = (1, 31, 33, 130)
RAGGED = ((97, 1, 64), (64, 97, 1), (1, 64, 97))
"""Taken in turn, so that no sequence is always the full one: lengths ignored for it alone show."""
EVERY_END = (*((29 * i + 40) % 64 + 1 for i in range(64)), 127, 128, 129, 255, 256, 257)
"""Every length of 1..64, shuffled, and those around 128 and 256: every way a tile can end."""


def battery(
    workload: Workload, supports: Callable[[Workload], str | None] = lambda workload: None
) -> list[Workload]:
    """The given workload, then small ones that cover what it may leave out.

    The small ones keep the head dimension and take every distribution, odd lengths, ragged
    lengths (each of 1..64 among them) and grouped heads with more than one KV head. A workload
    that the kernel refuses through ``supports`` is left out, except the given one.
    """
    cases = [workload]
    small = Workload(3, 8, 2, 97, workload.head_dim, seed=workload.seed + 1)
    for index, distribution in enumerate(DISTRIBUTIONS):
        cases.append(small.replace(distribution=distribution))
        ragged = RAGGED[index % len(RAGGED)]
        cases.append(small.replace(distribution=distribution, seq_lens=ragged))
    for length in ODD_LENGTHS:
        cases.append(small.replace(kv_len=length, batch=2, distribution="late_peaked"))
    # Heads as the given workload groups them, and no grouping at all.
    group = workload.group_size
    cases.append(small.replace(num_qo_heads=2 * group, num_kv_heads=2, kv_len=65))
    cases.append(small.replace(num_qo_heads=3, num_kv_heads=3, kv_len=65))
    # No sequence is full here, and there are many of them.
    cases.append(
        Workload(
            *(len(EVERY_END), 2, 1, max(EVERY_END) + 2, workload.head_dim),
            seq_lens=EVERY_END,
            distribution="late_peaked",
            seed=workload.seed + 1,
        )
    )
    unique = dict.fromkeys(cases)
    return [case for case in unique if case is workload or not supports(case)]
