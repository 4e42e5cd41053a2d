"""The splits: why two tries were reverted, what repairs one of them, and where a split pays.

Each cause is isolated by changing one thing. Of r04, what is allocated in every call is moved out,
and plain launches are replaced by a graph. Of r05, stages are added one by one.
"""

from __future__ import annotations

from labtools.problem import HEADLINE, Workload

from ..section import Plan, Section, combined
from .shapes import grid

_R03, _R04, _R05, _R08 = "r03_one_warp", "r04_split_first", "r05_cp_async", "r08_split_loads"
SURFACE_BATCHES, SURFACE_LENGTHS = (1, 4, 16, 64), (512, 1024, 4096, 16384)
SURFACE_SPLITS = (1, 4, 16, 0)
"""What every workload of the surface is tried with; 0 is the rule's own number of pieces."""
STAGES = (2, 3, 4, 5, 6, 8)
PIECES = (1, 2, 4, 8, 16, 32)


def surface() -> tuple[Workload, ...]:
    """The workloads of the sweep over batch and length, the headline's heads and the headline."""
    return (HEADLINE, *grid(SURFACE_BATCHES, SURFACE_LENGTHS))


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
            (*((_R03, {}), (_R04, {})), *combined(_R08, split=SURFACE_SPLITS)),
            ceiling=False,
        ),
        Section(surface(), ((_R03, {}),), ceiling=False, timing="stream"),
        Section(surface(), ((_R04, {}),), ceiling=False, timing="stream", outside=True),
        Section(surface(), ((_R04, {}),), ceiling=False, outside=True),
        Section(
            (HEADLINE, _ALONE, HEADLINE.replace(batch=16), _FULL, _SHORT),
            combined(_R05, stages=STAGES),
            ceiling=False,
        ),
        Section(
            (HEADLINE,), (*combined(_R05, stages=(2, 8)), (_R08, {})), (), False, counters=True
        ),
        Section((HEADLINE, _ALONE), combined(_R04, split=PIECES), ceiling=False, outside=True),
        Section((HEADLINE, _ALONE, _FULL, _SHORT), combined(_R08, split=PIECES), ceiling=False),
        Section(
            (HEADLINE,),
            (*combined(_R08, rows=(1, 2, 4)), *combined(_R08, warps=(1, 2, 8))),
            ceiling=False,
        ),
    ),
)
