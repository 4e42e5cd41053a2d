"""sgemm02_coalesced: neighbouring threads read along rows."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("sgemm01_naive.py"))

RUNG = operation_of(FIRST).rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_coalesced<32>",
    grid="cdiv(m, 32), cdiv(n, 32)",
    block=1024,
    supports=FIRST.supports,
)
