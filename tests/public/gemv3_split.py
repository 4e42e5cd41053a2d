"""gemv3_split: of the transposed matrix, whose rows are split over blocks that add atomically."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "gemv_transposed:rows,columns",
    {
        **{"A": "f32[rows,columns]", "x": "f32[rows]", "y": "f32[columns]:inout"},
        **{"M": "i32:rows", "N": "i32:columns"},
    },
    lambda A, x, y: y + x @ A,
    sizes=[(300, 70), (150, 300), (8192, 4096)],
    flops="2*rows*columns",
)
RUNG = OPERATION.rung(
    __file__,
    source="gemv.cu",
    entry="gemv_transposed<128>",
    grid="cdiv(columns, 256), cdiv(rows, 128)",
    block=256,
)
