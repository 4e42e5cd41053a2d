"""sgemm03_shared: square tiles in shared memory."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_shared<32>",
    grid="cdiv(m, 32), cdiv(n, 32)",
    block=1024,
    supports=FIRST.supports,
)
