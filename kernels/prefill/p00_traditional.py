"""p00, prefill the traditional way: the kernel of the case study before anybody asked the hardware.

As written (``pad=0``) it is broken: a row of a tile is 65 halves, so seven of eight rows begin
where no copy of 16 bytes may go, and the kernel faults. Repaired (``pad=1``) a row is 72 halves,
and all else is as it was. Times and counters of this rung are those of the repaired point.

Idea: tiles of Q, K and V in shared memory, asynchronous copies of 16 bytes, an online softmax.
Cost: no tensor cores, and a copy is waited for where it starts.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, kernel_supports


def launch(problem, limits, knobs):
    """One block for BLOCK_M queries of a (sequence, query head)."""
    queries, keys = knobs["block_m"], knobs["block_n"]
    stride = problem.head_dim + (8 if knobs["pad"] else 1)
    return [
        Launch(
            entry="prefill_p00",
            grid=(-(-problem.num_queries // queries), problem.num_qo_heads, problem.batch),
            block=(32 * knobs["warps"],),
            smem_bytes=2 * (queries + 2 * keys) * stride + 4 * queries * keys,
            args=(
                *("q", "k", "v", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.num_queries),
                np.int32(problem.kv_len),
                np.int32(problem.causal),
                np.float32(problem.sm_scale * np.log2(np.e)),
            ),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Prefill, the traditional way",
    idea="tiles in shared memory, asynchronous copies, an online softmax, scalar arithmetic",
    limiter="the instructions of scalar products",
    cost="no tensor cores; a copy is waited for where it starts",
    knobs=(
        Knob("block_m", (64, 80, 128), 64, "queries of a block"),
        Knob("block_n", (64, 80, 128), 64, "keys of a tile"),
        Knob("warps", (4, 8), 4, "warps of a block"),
        Knob(
            "pad",
            (0, 1),
            1,
            "halves behind a row of a tile: 0 as written, one; 1 repaired, eight",
            broken={0: "faults"},
        ),
    ),
    supports=kernel_supports(),
    min_arch="sm_80",
    launch=launch,
    operation="prefill",
)
