"""The bench: the fast rungs beside every fair library, where the guide states how fast they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from labtools.problem import HEADLINE, Workload, kernels_dir

from .campaign_section import Plan, Section

Choice = tuple[str, Mapping[str, int]]

TABLE_WORKLOADS = (
    *("8,32,8,4096,128", "1,32,8,4096,128", "8,32,8,1024,128", "4,8,8,512,64"),
    *("64,32,8,2048,128", "1,32,8,131072,128", "8,64,8,16384,128", "16,32,32,4096,128"),
)
"""The workloads that the guide states its ratios on."""
NOTED_WORKLOADS = (
    *("64,32,8,4096,128", "1,32,32,4096,128", "16,32,8,8192,128", "128,32,8,1024,128"),
)
"""Those for which libraries' times were noted before, beside the ones of the table."""
VARIED_WORKLOADS = ("8,32,8,4096,128", "1,32,8,4096,128", "64,32,8,2048,128")

SLOW = ("r00_two_passes", "r01_online_softmax", "r02_one_barrier")
LADDER = (
    *("r03_one_warp", "r04_split_first", "r05_cp_async", "r06_int8", "r07_int4"),
    *("r08_split_loads", "r09_inverted", "r10_inverted_int8", "r11_inverted_int4"),
)
FAST = ("r08_split_loads", "r09_inverted", "r10_inverted_int8", "r11_inverted_int4")
INVERTED = FAST[1:]

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


def _shapes(texts: Sequence[str], **changes: object) -> tuple[Workload, ...]:
    return tuple(Workload.parse(text).replace(**changes) for text in texts)


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
    table, noted = _shapes(TABLE_WORKLOADS), _shapes(NOTED_WORKLOADS)
    small = tuple(one for one in (*table, *noted) if one.kv_bytes <= MOST_R03_KV_BYTES)
    varied = _shapes(VARIED_WORKLOADS)
    paged = tuple(
        one.replace(layout="paged", page_size=size) for one in varied for size in (16, 64)
    )
    uneven = tuple(ragged(one) for one in varied if one.batch > 1)
    return (
        # Everything that there is, once, on the headline workload.
        Section(
            (HEADLINE,),
            written(*SLOW, *LADDER),
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
    )


BENCH = Plan("bench", "the fast rungs and every library, side by side", bench_sections())
