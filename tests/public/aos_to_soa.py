"""aos_to_soa: structures of seven floats into seven arrays, a structure a thread."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "aos_to_soa:count",
    {"particles": "f32[count,7]", "out": "f32[7,count]:out", "n": "i32:count"},
    lambda particles: particles.T.copy(),
    sizes=[300, 5000, 3 << 20],
)
RUNG = OPERATION.rung(
    __file__, source="structures.cu", entry="aos_to_soa", grid="cdiv(count, 256)", block=256
)
