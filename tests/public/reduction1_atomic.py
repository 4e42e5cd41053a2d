"""reduction1_atomic: shuffles, shared memory among warps, and an atomic addition a block."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "sum_into:count",
    {"x": "f32[count]=uniform:0,1", "out": "f32[1]:inout", "N": "i32:count"},
    lambda x, out: out + x.sum(),
    sizes=[1000, 100000, 1 << 25],
)
RUNG = OPERATION.rung(
    __file__,
    source="reduction.cu",
    entry="reduce_atomic",
    grid="min(cdiv(count, 256), 1024)",
    block=256,
)
