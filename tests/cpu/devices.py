"""Devices as they would describe themselves, for tests that have none."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from labtools.predict import load_gpu
from labtools.toolchain import CompilerMissing, DeviceInfo, find_compiler, find_tool
from labtools.toolchain.cache import code_digest

T = TypeVar("T")


def _has_tools() -> bool:
    try:
        find_compiler()
    except CompilerMissing:
        return False
    return find_tool("nvdisasm") is not None


needs_tools = pytest.mark.skipif(not _has_tools(), reason="no compiler or no nvdisasm here")
EVERY = "LABTOOLS_EVERY_CASE"
"""Set to 1, nothing is drawn: tests of many alike cases take them all."""


def _name_of(case: object) -> str:
    return str(getattr(case, "id", case))


def some_of(every: Sequence[T], count: int, always: Sequence[T] = ()) -> list[T]:
    """Some cases of many alike ones, in their order; other ones after a change of the code.

    The draw follows from the code, since all processes of a test run must make the same one.

    Args:
        every: the cases.
        count: how many are drawn.
        always: those that are taken beside the drawn ones.
    """
    if os.environ.get(EVERY) == "1":
        return list(every)
    code = code_digest("problem", "toolchain", "predict", "optimize")
    rng = random.Random(code + "".join(map(_name_of, every)))
    left = [one for one in every if one not in always]
    chosen = rng.sample(left, min(count, len(left)))
    return [one for one in every if one in chosen or one in always]


H200 = DeviceInfo(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    sm_count=132,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    registers_per_block=65536,
    registers_per_sm=65536,
    smem_per_block_bytes=49152,
    smem_per_block_optin_bytes=232448,
    smem_per_sm_bytes=233472,
    smem_reserved_per_block_bytes=1024,
    l2_bytes=62914560,
    memory_bytes=150_000_000_000,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    bus_width_bits=6144,
    cuda_version="13.0",
    driver_version="580.95.05",
)

LIMITS = load_gpu("h200").limits
"""What the data sheet of the H200 gives a launch."""
