"""The plans of the matrix product: its rungs beside cuBLAS, and the layouts of a tile."""

from __future__ import annotations

from labtools.problem import Gemm

from .section import Plan, Section

G00, G01, G02 = "g00_tiled", "g01_ring", "g02_hopper"
FEW_ROWS = {"tile_m": 16, "tile_n": 32, "tile_k": 64, "warps_m": 1, "warps_n": 2, "stages": 8}
"""A tile for an output of 16 rows, which many blocks must share."""
FEW_ROWS_RING = {"warpgroups": 1, "tile_n": 16, "stages": 8, "swap": 1}
"""The same with bulk copies: B lies on the left."""

GEMM = Plan(
    "gemm",
    "Matrix products, a tile a block, beside cuBLAS",
    (
        Section(
            (Gemm(4096, 4096, 4096),),
            (
                *((G00, {}), (G00, {"pad": 0}), (G01, {}), (G01, {"stages": 3})),
                (G01, {"tile_n": 256, "warps_n": 4}),
                *((G02, {}), (G02, {"tile_n": 128, "stages": 6}), (G02, {"stages": 3})),
            ),
            ("torch_matmul",),
            ceiling=False,
            profile=((G00, {}), (G00, {"pad": 0}), (G01, {}), (G02, {})),
        ),
        Section(
            (Gemm(16, 4096, 4096), Gemm(100, 4000, 4090)),
            (
                *((G00, {}), (G01, {}), (G01, FEW_ROWS), (G02, {}), (G02, FEW_ROWS_RING)),
                (G02, {**FEW_ROWS_RING, "split": 2}),
            ),
            ("torch_matmul",),
            ceiling=False,
        ),
    ),
)

S06 = "s06_tile_layouts"
LAYOUT_STUDY = Gemm(2048, 2048, 512)
"""The product in which a tile's layouts are compared."""
LAYOUT_STRIDES = {64: 64, 65: 65, 66: 66, 72: 72, 0: 64}
"""Elements from one row of the tile of s06 to the next, by its knob; 0 moves chunks by xor."""

LAYOUTS_PLAN = Plan(
    "layouts",
    "One tile in five layouts, under each kind of read that its rows are aligned for",
    (
        Section(
            (LAYOUT_STUDY,),
            tuple(
                (S06, {"layout": layout, "access": access})
                for access in (2, 4, 16, 0)
                for layout, stride in LAYOUT_STRIDES.items()
                if 2 * stride % (access or 16) == 0
            ),
            ceiling=False,
            profile="all",
        ),
    ),
)
