"""Workloads of decode plans, by their short form or by batch and length."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from labtools.problem import HEADLINE, Workload

MOST_KV_BYTES = 2_200_000_000
"""A grid leaves out what has more bytes of K and V."""


def shapes(*texts: str, **changes: Any) -> tuple[Workload, ...]:
    """Workloads by their short form, each with the same changes.

    Raises:
        LabError: a text or a change that is no workload.
    """
    return tuple(Workload.parse(text).replace(**changes) for text in texts)


def grid(batches: Iterable[int], lengths: Iterable[int]) -> tuple[Workload, ...]:
    """The headline's heads with every batch and every length, up to `MOST_KV_BYTES`."""
    every = (
        HEADLINE.replace(batch=batch, kv_len=length)
        for batch, length in itertools.product(batches, lengths)
    )
    return tuple(one for one in every if one.kv_bytes <= MOST_KV_BYTES)
