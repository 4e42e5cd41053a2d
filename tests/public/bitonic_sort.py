"""bitonic_sort: rows of up to 1024 floats sorted in shared memory, a block a row."""

import numpy as np

from labtools.problem import from_reference

OPERATION = from_reference(
    "sorted_rows:rows,C",
    {"x": "f32[rows,C]", "out": "f32[rows,C]:out", "columns": "i32:C"},
    lambda x: np.sort(x, axis=1),
    sizes=[(3, 300), (2, 1000), (8192, 1024)],
    rows="rows",
)
RUNG = OPERATION.rung(
    __file__,
    entry="bitonic_sort<1024>",
    grid="rows",
    block=512,
    supports=lambda problem: "rows of up to 1024" if problem.C > 1024 else None,
)
