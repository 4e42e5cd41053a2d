"""bias_residual: a bias and a residual are added in float4, a block a row."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "bias_residual:rows,C",
    {
        **{"out": "f32[rows,C]:out", "x": "f32[rows,C]", "residual": "f32[rows,C]"},
        **{"bias": "f32[C]", "packs": "i32:C//4"},
    },
    lambda x, residual, bias: x + residual + bias,
    sizes=[(9, 300), (3, 2048), (16384, 1024)],
    rows="rows",
)
RUNG = OPERATION.rung(
    __file__,
    source="elementwise.cu",
    entry="add_bias_residual",
    grid="rows",
    block=256,
    supports=lambda problem: "columns are multiples of 4" if problem.C % 4 else None,
)
