"""histogram: counts of 256 values, a histogram a block in shared memory."""

import numpy as np

from labtools.problem import from_reference

OPERATION = from_reference(
    "histogram:count",
    {"values": "i32[count]=uniform:0,256", "bins": "i32[256]:inout", "n": "i32:count"},
    lambda values, bins: bins + np.bincount(values, minlength=256),
    sizes=[1000, 100000, 1 << 24],
)
RUNG = OPERATION.rung(
    __file__, entry="histogram_kernel", grid="min(cdiv(count, 256), num_sms * 8)", block=256
)
