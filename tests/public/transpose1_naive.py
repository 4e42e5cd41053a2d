"""transpose1_naive: reads along rows, writes along columns."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "transpose:rows,columns",
    {
        **{"out": "f32[columns,rows]:out", "x": "f32[rows,columns]"},
        **{"width": "i32:columns", "height": "i32:rows"},
    },
    lambda x: x.T.copy(),
    sizes=[(100, 70), (32, 32), (4096, 4096)],
)
RUNG = OPERATION.rung(
    __file__,
    source="transpose.cu",
    entry="transpose_naive",
    grid="cdiv(columns, 32), cdiv(rows, 32)",
    block="32, 8",
)
