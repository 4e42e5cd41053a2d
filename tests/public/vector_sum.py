"""vector_sum: an element a thread."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "vector_sum:count",
    {"a": "f32[count]", "b": "f32[count]", "c": "f32[count]:out", "n": "i32:count"},
    lambda a, b: a + b,
    sizes=[1000, 70000, 1 << 25],
)
RUNG = OPERATION.rung(
    __file__, source="elementwise.cu", entry="vector_add", grid="cdiv(n, 256)", block=256
)
