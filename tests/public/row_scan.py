"""row_scan: inclusive sums along rows, by shuffles and a carry from tile to tile."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "inclusive_scan:rows,C",
    {"x": "f32[rows,C]", "out": "f32[rows,C]:out", "columns": "i32:C"},
    lambda x: x.cumsum(axis=1),
    sizes=[(9, 300), (3, 2100), (4096, 8192)],
    rows="rows",
)
RUNG = OPERATION.rung(__file__, entry="inclusive_scan<256, 4>", grid="rows", block=256)
