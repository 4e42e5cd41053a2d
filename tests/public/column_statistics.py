"""column_statistics: the sums that batch normalisation needs, a thread a column."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "column_statistics:rows,columns",
    {
        "x": "f32[rows,columns]",
        **dict.fromkeys(("sums", "of_squares"), "f32[columns]:out"),
        **{"N": "i32:rows", "C": "i32:columns"},
    },
    lambda x: (x.sum(axis=0), (x * x).sum(axis=0)),
    sizes=[(40, 150), (9, 1000), (2048, 16384)],
    flops="3*rows*columns",
)
RUNG = OPERATION.rung(__file__, entry="column_statistics", grid="cdiv(columns, 128)", block=128)
