"""gemv2_warp: a warp a row, four columns a lane at a time."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("gemv1_thread.py"))
RUNG = operation_of(FIRST).rung(
    __file__,
    source="gemv.cu",
    entry="gemv_warp",
    grid="cdiv(rows, 4)",
    block="32, 4",
    supports=lambda problem: "columns are multiples of 4" if problem.columns % 4 else None,
)
