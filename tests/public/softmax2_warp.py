"""softmax2_warp: a warp a row, with shuffles."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("softmax1_naive.py"))
RUNG = operation_of(FIRST).rung(
    __file__, source="softmax.cu", entry="softmax_warp", grid="cdiv(rows, 4)", block=128
)
