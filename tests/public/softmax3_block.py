"""softmax3_block: a block a row, which stays in shared memory."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("softmax1_naive.py"))
RUNG = operation_of(FIRST).rung(
    __file__,
    source="softmax.cu",
    entry="softmax_block<256>",
    grid="rows",
    block=256,
    smem="columns * 4",
    supports=lambda problem: (
        "columns are multiples of 4, up to 12,000" if problem.C % 4 or problem.C > 12000 else None
    ),
)
