"""The workloads a kernel must get right before anybody times it."""

from __future__ import annotations

from collections.abc import Callable

from .workload import DISTRIBUTIONS, Workload

ODD_LENGTHS = (1, 31, 33, 130)


def battery(
    workload: Workload, supports: Callable[[Workload], str | None] = lambda workload: None
) -> list[Workload]:
    """The given workload, then small ones that cover what it may leave out.

    The small ones keep the head dimension and take every distribution, odd lengths, ragged
    lengths (a length of 1 among them) and grouped heads with more than one KV head. A workload
    that the kernel refuses through ``supports`` is left out, except the given one.
    """
    cases = [workload]
    small = Workload(3, 8, 2, 97, workload.head_dim, seed=workload.seed + 1)
    for distribution in DISTRIBUTIONS:
        cases.append(small.replace(distribution=distribution))
        cases.append(small.replace(distribution=distribution, seq_lens=(97, 1, 64)))
    for length in ODD_LENGTHS:
        cases.append(small.replace(kv_len=length, batch=2, distribution="late_peaked"))
    # Heads as the given workload groups them, and no grouping at all.
    group = workload.group_size
    cases.append(small.replace(num_qo_heads=2 * group, num_kv_heads=2, kv_len=65))
    cases.append(small.replace(num_qo_heads=3, num_kv_heads=3, kv_len=65))
    unique = dict.fromkeys(cases)
    return [case for case in unique if case is workload or not supports(case)]
