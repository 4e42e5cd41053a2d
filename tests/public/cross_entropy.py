"""cross_entropy: the loss of each row of logits in two passes, a block a row."""

import numpy as np

from labtools.problem import from_reference


def cross_entropy(logits, targets):
    most = logits.max(axis=1)
    total = np.exp(logits - most[:, None]).sum(axis=1)
    return np.log(total) + most - logits[np.arange(len(logits)), targets]


OPERATION = from_reference(
    "cross_entropy:rows,classes",
    {
        **{"losses": "f32[rows]:out", "logits": "f32[rows,classes]=uniform:-4,4"},
        **{"targets": "i32[rows]=uniform:0,classes", "V": "i32:classes"},
    },
    cross_entropy,
    sizes=[(5, 300), (3, 1100), (1024, 32000)],
    rows="rows",
)
RUNG = OPERATION.rung(__file__, entry="cross_entropy_forward", grid="rows", block=256)
