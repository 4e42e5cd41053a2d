"""sgemm09_autotuned: sizes that a search found."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_autotuned<128, 128, 16, 8, 8, 256>",
    grid="n // 128, m // 128",
    block=256,
    supports=FIRST.supports,
)
