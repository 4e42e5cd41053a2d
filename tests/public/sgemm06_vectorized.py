"""sgemm06_vectorized: loads of four floats and a transposed tile of A."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_vectorized<128, 128, 8, 8, 8>",
    grid="n // 128, m // 128",
    block=256,
    supports=FIRST.supports,
)
