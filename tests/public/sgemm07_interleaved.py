"""sgemm07_interleaved: a layout of the tile of B against bank conflicts."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_interleaved<128, 128, 8, 8, 8>",
    grid="n // 128, m // 128",
    block=256,
    supports=FIRST.supports,
)
