"""sgemm04_tile_1d: eight elements of a column a thread."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_tile_1d<64, 64, 8, 8>",
    grid="n // 64, m // 64",
    block=512,
    supports=FIRST.supports,
)
