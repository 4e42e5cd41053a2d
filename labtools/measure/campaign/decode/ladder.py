"""Plans of the ladder: its rungs beside the libraries, a short campaign, and the findings."""

from __future__ import annotations

from labtools.problem import HEADLINE

from ..section import Choice, Plan, Section, combined
from .shapes import grid, shapes
from .splits import PIECES

_LADDER: tuple[Choice, ...] = (
    ("r00_two_passes", {}),
    ("r01_online_softmax", {"prefetch_v": 0}),
    ("r01_online_softmax", {"prefetch_v": 1}),
    ("r02_one_barrier", {}),
    ("r03_one_warp", {}),
)
_BASELINES = ("sdpa", "sdpa_flash", "sdpa_expanded", "flashinfer", "flashinfer_tensor_cores")
_SINGLE = "1,32,8,4096,128"

# The shapes for which libraries' times on an H200 have been noted before.
_NOTED_SHAPES = shapes(
    *("8,32,8,4096,128", _SINGLE, "8,32,8,1024,128", "64,32,8,4096,128"),
    *("4,8,8,512,64", "1,32,32,4096,128", "16,32,32,4096,128", "16,32,8,8192,128"),
    *("64,32,8,2048,128", "1,32,8,131072,128", "8,64,8,16384,128", "128,32,8,1024,128"),
)

# Unrolling, launch bounds and the shape of the block, each with each: they confound one another.
_BLOCK_SHAPES = (
    *combined(
        "r02_one_barrier", unroll=(1, 2, 4, 8), launch_bounds=(0, 1), dims_per_thread=(1, 2, 4)
    ),
    *combined("r00_two_passes", unroll=(1, 2, 4, 8)),
    *combined("r01_online_softmax", unroll=(1, 2, 4, 8), prefetch_v=(0, 1)),
    *combined("r03_one_warp", unroll=(1, 2, 4, 8), launch_bounds=(0, 1)),
)

LADDER = Plan(
    "ladder",
    "r00 to r03 and the baselines",
    (
        Section(
            (HEADLINE,),
            _LADDER,
            _BASELINES,
            profile=(*_LADDER, ("r03_one_warp", {"unroll": 1}), ("r03_one_warp", {"unroll": 8})),
        ),
        Section(shapes("8,32,8,4096,128", _SINGLE), (*_LADDER, *_BLOCK_SHAPES), _BASELINES),
        Section(_NOTED_SHAPES, _LADDER, _BASELINES),
        # The second bench draws every baseline over the length of the cache.
        Section(grid((8,), (256, 512, 1024, 2048, 4096, 8192, 16384)), _LADDER, _BASELINES),
        Section(
            grid((1, 4, 16, 64, 128), (512, 1024, 4096, 16384)),
            _LADDER,
            ("sdpa", "sdpa_flash", "flashinfer", "flashinfer_tensor_cores"),
        ),
        Section(
            shapes(
                *("4,8,8,512,64", "1,32,8,512,128", "1,32,8,1024,128", _SINGLE),
                cache_state="warm",
            ),
            _LADDER,
            ("sdpa", "sdpa_flash"),
        ),
    ),
)

QUICK = Plan(
    "quick",
    "a short campaign that touches every part",
    (
        Section(
            shapes("2,8,2,512,128"),
            (("r02_one_barrier", {}), ("r03_one_warp", {}), ("r03_one_warp", {"unroll": 1})),
            ("sdpa", "sdpa_expanded"),
            profile=(("r03_one_warp", {}),),
        ),
        Section(shapes("2,8,2,512,128", cache_state="warm"), (("r03_one_warp", {}),), ("sdpa",)),
    ),
)


_SPLITS = (
    *combined("s01_warp_rows", rows=(1, 4), split=PIECES),
    *combined("s00_block_rows", unroll=(4,), split=PIECES),
)
_BYTES = (
    *combined("s01_warp_rows", rows=(1, 4), split=(1, 8)),
    *combined("s02_warp_int8", rows=(1, 4), split=(1, 8)),
)
_SHAPES_OF_BLOCKS = (
    *combined("r02_one_barrier", unroll=(1, 4, 8)),
    *combined("r03_one_warp", unroll=(1, 4, 8)),
)

FINDINGS = Plan(
    "findings",
    "one-warp blocks, half the bytes and more blocks: where each helps and where it does not",
    (
        Section(
            shapes("2,32,8,4096,128", "32,32,8,4096,128", "64,32,8,1024,128", "128,32,8,1024,128"),
            _SHAPES_OF_BLOCKS,
            ceiling=False,
            counters=True,
        ),
        Section(
            shapes("1,32,8,4096,128", "8,32,8,4096,128", "64,32,8,1024,128", "64,32,32,512,128"),
            (*_BYTES, *_SPLITS),
            ceiling=False,
            counters=True,
        ),
        Section(
            shapes("1,32,8,1024,128", "8,32,8,512,128", cache_state="warm"),
            (*_BYTES, *_SPLITS),
            ceiling=False,
        ),
        Section(shapes("8,32,8,256,128"), _SPLITS, ceiling=False, counters=True),
        Section(
            shapes(*(f"1,32,8,{length},128" for length in (1, 4, 16, 64, 256))),
            (("r03_one_warp", {}),),
            ceiling=False,
            counters=True,
        ),
        Section(
            shapes("128,32,8,1024,128"),
            (
                ("r02_one_barrier", {"dims_per_thread": 2}),
                ("r02_one_barrier", {"unroll": 2}),
                ("r00_two_passes", {}),
            ),
            ceiling=False,
            counters=True,
        ),
    ),
)
