"""transpose2_tiled: a tile in shared memory, whose rows are padded."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("transpose1_naive.py"))
RUNG = operation_of(FIRST).rung(
    __file__,
    source="transpose.cu",
    entry="transpose_tiled",
    grid="cdiv(columns, 32), cdiv(rows, 32)",
    block="32, 8",
)
