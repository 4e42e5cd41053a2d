"""soa_to_aos: three arrays into points of three floats, in a loop over the grid."""

import numpy as np

from labtools.problem import from_reference

OPERATION = from_reference(
    "soa_to_aos:count",
    {
        **dict.fromkeys("xyz", "f32[count]"),
        **{"points": "f32[count,3]:out", "n": "i32:count"},
    },
    lambda x, y, z: np.stack([x, y, z], axis=1),
    sizes=[300, 10000, 1 << 23],
)
RUNG = OPERATION.rung(
    __file__,
    source="structures.cu",
    entry="soa_to_aos",
    grid="min(cdiv(count, 256), num_sms * 16)",
    block=256,
)
