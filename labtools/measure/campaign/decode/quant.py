"""The quantised rungs: where fewer bytes help, and where they do nothing."""

from __future__ import annotations

from labtools.problem import HEADLINE, Workload

from ..section import Plan, Section, combined

QUANT_RUNGS = ("r03_one_warp", "r06_int8", "r07_int4")
UNROLLS = (1, 4, 8)
FITS_L2_AT_EIGHT_BITS = Workload(1, 32, 32, 4096, 128)
"""67 MB in fp16 and half of it in INT8: the L2 of an H200 holds the one and not the other."""

_CHOICES = (
    *(choice for rung in QUANT_RUNGS for choice in combined(rung, unroll=UNROLLS)),
    *combined("r07_int4", unroll=UNROLLS, k_group=(32,)),
)

QUANT = Plan(
    "quant",
    "eight and four bits in the one-warp kernel: bytes, the L2, and the chain",
    (
        Section((HEADLINE, FITS_L2_AT_EIGHT_BITS), _CHOICES, ceiling=False, counters=True),
        Section((HEADLINE,), combined("r05_cp_async"), ceiling=False, counters=True),
        Section(
            tuple(one.replace(cache_state="warm") for one in (HEADLINE, FITS_L2_AT_EIGHT_BITS)),
            _CHOICES,
            ceiling=False,
            counters=True,
        ),
        Section(
            (
                Workload(16, 32, 32, 4096, 128),
                Workload(64, 32, 32, 512, 128),
                Workload(64, 32, 8, 1024, 128),
            ),
            _CHOICES,
            ceiling=False,
        ),
    ),
)
