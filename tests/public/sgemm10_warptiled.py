"""sgemm10_warptiled: a tile a warp."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_warptiled<128, 128, 16, 64, 64, 4, 8, 4, 128>",
    grid="n // 128, m // 128",
    block=128,
    supports=FIRST.supports,
)
