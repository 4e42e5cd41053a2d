"""transpose3_columns: reads along columns, writes along rows."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("transpose1_naive.py"))
RUNG = operation_of(FIRST).rung(
    __file__,
    source="transpose.cu",
    entry="transpose_columns",
    grid="cdiv(rows, 32), cdiv(columns, 8)",
    block="32, 8",
)
