"""reduction2_groups: cooperative groups, in a launch for the blocks and one for their sums."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "sum:count",
    {
        "x": "f32[count]=uniform:0,1",
        "out": "f32[1]:out",
        "N": "u32:count",
        "blocks": "u32:min(cdiv(count, 512), 512)",
    },
    lambda x: x.sum(),
    sizes=[1000, 100000, 1 << 25],
)
RUNG = OPERATION.rung(
    __file__,
    source="reduction.cu",
    workspace={"partial": "f32[blocks]"},
    launches=[
        {
            "entry": "reduce_groups<float, 256>",
            "grid": "blocks",
            "block": 256,
            "smem": 1024,
            "args": ["x", "partial", "N"],
        },
        {
            "entry": "reduce_groups<float, 256>",
            "grid": 1,
            "block": 256,
            "smem": 1024,
            "args": ["partial", "out", "blocks"],
        },
    ],
)
