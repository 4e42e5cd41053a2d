"""r07, INT4 cache: a quarter of the bytes, two codes in one.

Idea: k and v are kept as four-bit codes, two a byte, with one scale a row, written once when
the cache is written; a row is a quarter of the bytes. With k_group each channel of k has a scale of
its own for that many rows, as KIVI (arXiv 2402.02750) has it, and q takes it once a group.
Cost: two more loads and some arithmetic for every row, and accuracy: an element is off by up to
half a step of the largest that shares its scale, and there are sixteen times fewer steps.
"""

import numpy as np

from labtools.problem import (
    PER_CHANNEL_INT4,
    PER_ROW_INT4,
    SCHEMES,
    Knob,
    Launch,
    Rung,
    head_dims,
    quantise_launches,
)


def launch(problem, limits, knobs):
    """The preparation, which is not timed; then one warp a (sequence, query head)."""
    scheme = PER_CHANNEL_INT4 if knobs["k_group"] else PER_ROW_INT4
    cache, prepare = quantise_launches(problem, SCHEMES[scheme])
    decode = Launch(
        entry="decode_r07",
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
    title="INT4 cache",
    idea="codes of four bits and a scale a row: a quarter of the bytes",
    limiter="bytes from memory",
    cost="two more loads and the way back from codes in every row; accuracy",
    parent="r03_one_warp",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("k_group", (0, 32), 0, "rows of a channel of K that share a scale; 0: one a row"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
    stores=lambda workload, knobs: SCHEMES[PER_CHANNEL_INT4 if knobs["k_group"] else PER_ROW_INT4],
)
