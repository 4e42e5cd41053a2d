"""The plan of points that test the forecast of kernels with roles.

The workloads were chosen, and every forecast sealed, after the model was fixed: none of them had
been measured before.
"""

from __future__ import annotations

from labtools.problem import Gemm, Prefill

from .gemm import FEW_ROWS_RING, G02
from .prefill import P03
from .section import Plan, Section

ROLES_TEST = Plan(
    "roles_test",
    "Points of p03 and g02 that were forecast before anybody had measured them",
    (
        Section(
            (Prefill(2, 16, 4, 1024, 128), Prefill(1, 16, 16, 2048, 64, causal=True)),
            ((P03, {}),),
            ("prefill_sdpa",),
            ceiling=False,
        ),
        Section(
            (Prefill(8, 8, 8, 512, 64),),
            ((P03, {"block_n": 128, "warpgroups": 1, "pingpong": 0}),),
            ("prefill_sdpa",),
            ceiling=False,
        ),
        Section((Gemm(16, 8192, 4096),), ((G02, FEW_ROWS_RING),), ("torch_matmul",), ceiling=False),
        Section(
            (Gemm(512, 4096, 2048),),
            ((G02, {"tile_n": 128, "stages": 6}),),
            ("torch_matmul",),
            ceiling=False,
        ),
        Section((Gemm(2048, 3072, 4096),), ((G02, {}),), ("torch_matmul",), ceiling=False),
    ),
)
