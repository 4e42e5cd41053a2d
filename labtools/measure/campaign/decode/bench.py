"""The bench: the fast rungs beside every fair library, where the guide states how fast they are."""

from __future__ import annotations

import math
from collections.abc import Mapping

from labtools.problem import HEADLINE, Workload, kernels_dir

from ..section import Choice, Plan, Section
from .shapes import shapes

TABLE_WORKLOADS = (
    *("8,32,8,4096,128", "1,32,8,4096,128", "8,32,8,1024,128", "4,8,8,512,64"),
    *("64,32,8,2048,128", "1,32,8,131072,128", "8,64,8,16384,128", "16,32,32,4096,128"),
)
"""The workloads that the guide states its ratios on."""
AIMS: Mapping[str, tuple[float, ...]] = {
    "8,32,8,4096,128": (1.12, 1.75, 2.6),
    "1,32,8,4096,128": (1.6, 1.9, 2.2),
    "8,32,8,1024,128": (1.3, 1.7, 2.1),
    "4,8,8,512,64": (1.5,),
    **dict.fromkeys(TABLE_WORKLOADS[4:], (1.0, 1.85, 3.3)),
}
"""What the guide set out to reach on an NVIDIA H200: times as fast as the fastest fair fp16
library, of `INVERTED` in order. Chosen before anything was measured."""
NOTED_WORKLOADS = (
    *("64,32,8,4096,128", "1,32,32,4096,128", "16,32,8,8192,128", "128,32,8,1024,128"),
)
"""Those for which libraries' times were noted before, beside the ones of the table."""
PAGED_WITH = (16, 64)
"""Tokens of a page, where the varied workloads have their cache in pages."""
VARIED_WORKLOADS = ("8,32,8,4096,128", "1,32,8,4096,128", "64,32,8,2048,128")

ALONE_LENGTHS = (512, 2048, 16384)
"""Of a single sequence, beside that of the table: what of its time does not shrink with it."""

SLOW = ("r00_two_passes", "r01_online_softmax", "r02_one_barrier")
FROM_R03 = (
    *("r03_one_warp", "r04_split_first", "r05_cp_async", "r06_int8", "r07_int4"),
    *("r08_split_loads", "r09_inverted", "r10_inverted_int8", "r11_inverted_int4"),
)
FAST = ("r08_split_loads", "r09_inverted", "r10_inverted_int8", "r11_inverted_int4")
INVERTED = FAST[1:]

TRIED_LAYOUTS: Mapping[str, tuple[Choice, ...]] = {
    "8,32,8,4096,128": (
        *(
            ("r09_inverted", {"warps": warps, "stages": stages})
            for warps, stages in ((8, 2), (4, 2), (4, 3), (4, 4), (4, 6), (2, 5), (1, 6))
        ),
        ("r09_inverted", {"cluster": 1, "split": 2}),
        ("r09_inverted", {"cluster": 1, "split": 1}),
        *(
            (rung, {"warps": warps, "stages": stages})
            for rung in INVERTED[1:]
            for warps, stages in ((4, 2), (4, 3), (8, 2), (8, 3))
        ),
    ),
    "1,32,8,4096,128": (
        *(("r09_inverted", {"cluster": cluster, "split": 8}) for cluster in (1, 2, 4)),
        *((rung, {"cluster": 1, "split": 16}) for rung in INVERTED),
        *((rung, {"warps": 4}) for rung in INVERTED[1:]),
        ("r10_inverted_int8", {"tile": 64}),
    ),
    # Lab 5 asks whether so short a sequence gains from more pieces.
    "1,32,8,512,128": tuple(("r08_split_loads", {"split": split}) for split in (8, 32)),
    # Here clusters of eight do not all fit with a multiprocessor for each block.
    "2,32,8,8192,128": (
        *((rung, {}) for rung in INVERTED),
        ("r09_inverted", {"warps": 8, "stages": 3}),
        ("r09_inverted", {"cluster": 4}),
        ("r09_inverted", {"cluster": 1, "split": 8}),
    ),
    "64,32,8,2048,128": tuple((rung, {"warps": 4}) for rung in INVERTED),
}
"""Choices of the rule for the inverted rungs' layout, beside what it did not choose."""

FLASHINFER = ("flashinfer", "flashinfer_tensor_cores")
FLASHINFER_FP8 = ("flashinfer_fp8", "flashinfer_fp8_tensor_cores")
SDPA = ("sdpa", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient")
PEERS = (*SDPA, *FLASHINFER, *FLASHINFER_FP8)

MOST_R03_KV_BYTES = 150_000_000
"""A kernel that is some twenty times as slow as the others is timed up to this size."""


def written(*names: str) -> tuple[Choice, ...]:
    """Rungs at their default knobs; one that is not in the ladder's folder is left out."""
    there = {path.stem for path in (kernels_dir() / "decode").glob("*.py")}
    return tuple((name, {}) for name in names if name in there)


def ragged(workload: Workload) -> Workload:
    """The same padded shape with lengths from a twentieth of it up to all of it.

    A single sequence has one length and stays as it is.
    """
    if workload.batch == 1:
        return workload
    longest, count = workload.kv_len, workload.batch
    # A step that shares no factor with the batch visits every length once, in no order.
    step = next(n for n in (7, 5, 3, 11, 1) if math.gcd(n, count) == 1)
    order = [(step * i + 3) % count for i in range(count)]
    lengths = tuple(longest - (longest * 19 * n) // (20 * max(count - 1, 1)) for n in order)
    return workload.replace(seq_lens=lengths)


def bench_sections() -> tuple[Section, ...]:
    """Every workload beside its peers; see the names above."""
    table, noted = shapes(*TABLE_WORKLOADS), shapes(*NOTED_WORKLOADS)
    small = tuple(one for one in (*table, *noted) if one.kv_bytes <= MOST_R03_KV_BYTES)
    varied = shapes(*VARIED_WORKLOADS)
    paged = tuple(
        one.replace(layout="paged", page_size=size) for one in varied for size in PAGED_WITH
    )
    uneven = tuple(ragged(one) for one in varied if one.batch > 1)
    return (
        # Everything that there is, once, on the headline workload.
        Section(
            (HEADLINE,),
            written(*SLOW, *FROM_R03),
            (*PEERS, "sdpa_math", "sdpa_expanded"),
            profile=written(*FAST),
        ),
        Section(small, written("r03_one_warp"), PEERS),
        Section((*table, *noted), written(*FAST), PEERS),
        Section(
            tuple(one.replace(dtype="bfloat16") for one in varied),
            written(*INVERTED),
            (*SDPA, *FLASHINFER),
        ),
        Section(paged, written(*INVERTED), (*FLASHINFER, *FLASHINFER_FP8)),
        Section(uneven, written(*INVERTED), (*FLASHINFER, *FLASHINFER_FP8)),
        *(Section(shapes(text), tried, ceiling=False) for text, tried in TRIED_LAYOUTS.items()),
        Section(
            tuple(HEADLINE.replace(batch=1, kv_len=length) for length in ALONE_LENGTHS),
            written(*INVERTED),
            ("sdpa", *FLASHINFER),
            ceiling=False,
        ),
    )


BENCH = Plan("bench", "the fast rungs and every library, side by side", bench_sections())
