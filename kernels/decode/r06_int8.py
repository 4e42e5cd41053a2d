"""r06, INT8 cache: half the bytes, in a kernel that was not waiting for bytes.

Idea: k and v are kept as eight-bit codes with one scale a row, written once when the cache is
written; a row is half as many bytes.
Cost: two more loads and some arithmetic for every row, and accuracy: an element is off by up to
half a step of its row's largest.
"""

import numpy as np

from labtools.problem import PER_ROW_INT8, SCHEMES, Knob, Launch, Rung, head_dims, quantise_launches


def launch(problem, limits, knobs):
    """The preparation, which is not timed; then one warp a (sequence, query head)."""
    cache, prepare = quantise_launches(problem, SCHEMES[PER_ROW_INT8])
    decode = Launch(
        entry="decode_r06",
        grid=(problem.num_qo_heads, problem.batch),
        block=(32,),
        args=(
            *("q", "k_codes", "v_codes", "k_scale", "v_scale", "seq_lens", "out"),
            np.int32(problem.num_kv_heads),
            np.int32(problem.kv_len),
            np.float32(problem.sm_scale * np.log2(np.e)),
        ),
        workspace=cache,
    )
    return [*prepare, decode]


RUNG = Rung.beside(
    __file__,
    title="INT8 cache",
    idea="codes of eight bits and a scale a row: half the bytes",
    limiter="bytes from memory",
    cost="two more loads and the way back from codes in every row; accuracy",
    parent="r03_one_warp",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
    stores=lambda workload, knobs: SCHEMES[PER_ROW_INT8],
)
