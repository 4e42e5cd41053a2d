"""The read ceiling: how fast K and V can be read at all.

Idea: nothing but independent 16-byte loads, in several shapes of grid.
Cost: it computes no attention; the checksum only keeps the loads alive and is checked.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, kernel_supports


def launch(problem, limits, knobs):
    """A fixed grid that strides over both buffers; checksum uint32 [1]."""
    elements = problem.batch * problem.num_kv_heads * problem.kv_len * problem.head_dim
    return [
        Launch(
            entry="read_sweep",
            grid=(knobs["blocks"],),
            block=(knobs["threads"],),
            args=("k", "v", "checksum", np.uint64(elements * problem.element_bytes // 16)),
            workspace=(Workspace("checksum", (1,), "uint32"),),
        )
    ]


def supports(workload):
    """Whole buffers only: with ragged lengths the rows past a length would be read as well."""
    if workload.seq_lens is not None:
        return "it reads whole buffers, which is more than ragged lengths need"
    return kernel_supports((64, 128), ("float16", "bfloat16"))(workload)


RUNG = Rung.beside(
    __file__,
    title="Read ceiling",
    idea="independent 16-byte loads and nothing else",
    limiter="memory bandwidth",
    cost="computes no attention",
    knobs=(
        Knob("loads", (1, 2, 4, 8), 4, "16-byte loads in flight a thread"),
        Knob("threads", (128, 256, 512, 1024), 256, "threads a block"),
        Knob("blocks", tuple(range(1, 16385)), 1056, "blocks of the grid"),
    ),
    supports=supports,
    launch=launch,
)
