"""The splits: why two tries were reverted, what repairs one of them, and where a split pays.

Each cause is isolated by changing one thing. Of r04, what is allocated in every call is moved out,
and plain launches are replaced by a graph. Of r05, stages are added one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from labtools.problem import HEADLINE, Workload

from ..section import Plan, Section

Choice = tuple[str, Mapping[str, int]]

R03, R04, R05, R08 = "r03_one_warp", "r04_split_first", "r05_cp_async", "r08_split_loads"
BATCHES, LENGTHS = (1, 4, 16, 64), (512, 1024, 4096, 16384)
MOST_KV_BYTES = 2_200_000_000
SURFACE_SPLITS = (1, 4, 16, 0)
"""What every workload of the surface is tried with; 0 is the rule's own number of pieces."""
STAGES = (2, 3, 4, 5, 6, 8)
PIECES = (1, 2, 4, 8, 16, 32)


def surface() -> tuple[Workload, ...]:
    """The workloads of the sweep over batch and length, the headline's heads and the headline."""
    shapes = [
        HEADLINE.replace(batch=batch, kv_len=length)
        for batch, length in itertools.product(BATCHES, LENGTHS)
    ]
    return (HEADLINE, *(one for one in shapes if one.kv_bytes <= MOST_KV_BYTES))


def _with(rung: str, knob: str, values: tuple[int, ...]) -> tuple[Choice, ...]:
    return tuple((rung, {knob: value}) for value in values)


_ALONE = HEADLINE.replace(batch=1)
_FULL = HEADLINE.replace(batch=64)
_SHORT = HEADLINE.replace(batch=4, kv_len=1024)

SPLITS = Plan(
    "splits",
    "two tries that were reverted, each with its cause taken away, and the surface of the split",
    (
        # The headline first: a campaign that is cut short has it.
        Section(
            surface(),
            (*((R03, {}), (R04, {})), *_with(R08, "split", SURFACE_SPLITS)),
            ceiling=False,
        ),
        Section(surface(), ((R03, {}),), ceiling=False, timing="stream"),
        Section(surface(), ((R04, {}),), ceiling=False, timing="stream", outside=True),
        Section(surface(), ((R04, {}),), ceiling=False, outside=True),
        Section(
            (HEADLINE, _ALONE, HEADLINE.replace(batch=16), _FULL, _SHORT),
            _with(R05, "stages", STAGES),
            ceiling=False,
        ),
        Section((HEADLINE,), (*_with(R05, "stages", (2, 8)), (R08, {})), (), False, counters=True),
        Section((HEADLINE, _ALONE), _with(R04, "split", PIECES), ceiling=False, outside=True),
        Section((HEADLINE, _ALONE, _FULL, _SHORT), _with(R08, "split", PIECES), ceiling=False),
        Section(
            (HEADLINE,),
            (*_with(R08, "rows", (1, 2, 4)), *_with(R08, "warps", (1, 2, 8))),
            ceiling=False,
        ),
    ),
)
