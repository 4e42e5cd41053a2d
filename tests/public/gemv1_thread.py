"""gemv1_thread: a thread a row."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "gemv:rows,columns",
    {
        **{"A": "f32[rows,columns]", "x": "f32[columns]", "y": "f32[rows]:out"},
        **{"M": "i32:rows", "N": "i32:columns"},
    },
    lambda A, x: A @ x,
    sizes=[(70, 300), (9, 1024), (16384, 2048)],
    flops="2*rows*columns",
)
RUNG = OPERATION.rung(
    __file__, source="gemv.cu", entry="gemv_thread", grid="cdiv(rows, 256)", block=256
)
