"""s02, s01 on a cache of eight-bit codes.

Idea: k and v are kept as codes of -127..127 with one fp32 scale a row, written once by a
preparation, as a cache is quantised when it is written; a row is half as many bytes.
Cost: conversions and multiplications by the scales for every row, and accuracy: the codes are
off by up to half a step of the row's largest element.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, head_dims, split_launches


def launch(problem, limits, knobs):
    """The preparation; one warp a (sequence, query head, piece); then the merge."""
    cache = (problem.batch, problem.num_kv_heads, problem.kv_len)
    codes = (
        Workspace("k_codes", (*cache, problem.head_dim), "int8"),
        Workspace("v_codes", (*cache, problem.head_dim), "int8"),
        Workspace("k_scale", cache, "float32"),
        Workspace("v_scale", cache, "float32"),
    )
    quantise = Launch(
        entry="quantise_cache",
        grid=(-(-problem.kv_len // 64), problem.num_kv_heads, problem.batch),
        block=(32,),
        args=(
            *("k", "v", "seq_lens", "k_codes", "v_codes", "k_scale", "v_scale"),
            np.int32(problem.kv_len),
        ),
        workspace=codes,
        prepare=True,
    )
    decode = split_launches(
        problem,
        "decode_s02",
        knobs["split"],
        block=32,
        buffers=("q", "k_codes", "v_codes", "k_scale", "v_scale", "seq_lens"),
        workspace=codes,
    )
    return [quantise, *decode]


RUNG = Rung.beside(
    __file__,
    title="One warp, INT8 cache",
    idea="half the bytes: codes of eight bits and a scale a row",
    limiter="bytes from memory",
    cost="conversions in every row; accuracy",
    knobs=(
        Knob("rows", (1, 2, 4), 4, "KV rows at a time"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    # A code's half step is then a tenth of a unit of the score.
    refuses={
        "large": "its scores are so large that eight bits of k move the weights too far",
        "outliers": "beside an outlier of a row its other elements have few of the eight bits",
        "equal_keys": "beside one large channel of k the others have few of the eight bits",
    },
    launch=launch,
    tolerance=0.05,
)
