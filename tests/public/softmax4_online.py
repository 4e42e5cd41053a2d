"""softmax4_online: maximum and sum in one pass."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("softmax1_naive.py"))
RUNG = operation_of(FIRST).rung(
    __file__, source="softmax.cu", entry="softmax_online<256>", grid="rows", block=256
)
