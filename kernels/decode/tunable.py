"""tunable: one kernel whose methods can be left out one by one.

Idea: what r03 to r09 do one after the other are knobs of one source, so that each can be taken
alone, or left out of a fast kernel, and its part of the time be measured.
Limiter: that of the knobs chosen, from r03's (its defaults) nearly to r09's.
Cost: sm_80 and up; a source that is longer than that of any one of its kernels.
"""

from pathlib import Path

import numpy as np

from labtools.problem import Knob, LabError, Launch, Rung, Workspace, kernel_supports
from labtools.problem.decode.block_plan import join_bytes, reset_launch, tile_bytes

TILE = 16
"""Keys that are copied to shared memory together."""
LOG2_E = np.log2(np.e)

KNOBS = (
    Knob("gqa", (0, 1), 0, "1: a block serves all query heads of a KV head"),
    Knob("math", (0, 1), 0, "0: FMA; 1: mma.sync.m16n8k16, from tiles in shared memory"),
    Knob("load", (0, 1, 2), 0, "to registers; 1: to shared memory; 2: so, by cp.async, in a ring"),
    Knob("width", (8, 16), 8, "bytes of one load or copy; with FMA 16 is half a warp a row"),
    Knob("rows", (1, 4, 8), 1, "keys of a warp, or half of one, before one rescaling (FMA)"),
    Knob("unroll", (1, 4), 4, "trips of the loop laid out in a row"),
    Knob("stages", (1, 2, 3, 4), 1, "tiles of a warp's ring (load=2)"),
    Knob("swizzle", (0, 1, 2), 0, "where a tile's chunks lie; 1: exclusive or; 2: padded (math=1)"),
    Knob("warps", (1, 4, 8), 1, "warps of a block, which join once, through shared memory"),
    Knob("split", (1, 2, 4, 8, 16), 1, "pieces of a sequence, a block each", compiled=False),
    Knob(
        "merge", (0, 1, 2), 0, "pieces join in 0: a second launch; 1: the last block; 2: clusters"
    ),
    Knob("reduce", (0, 1), 0, "1: the sums of several rows share their shuffles (FMA)"),
    Knob("lazy", (0, 1), 0, "1: the sums are rescaled only where a maximum rises far"),
    Knob("exp2", (0, 1), 1, "0: expf; 1: exp2f of scores that are scaled for it"),
    Knob("cache", (0, 1, 2), 1, "1: read-only loads, or L2 prefetch; 2: read-only, not kept in L1"),
    Knob("bounds", (0, 1, 2), 1, "1: the compiler knows the block size; 2: and 32 resident warps"),
    Knob("ilp", (0, 1), 0, "1: q . k is added up in two sums"),
    Knob("tail", (0, 1), 0, "1: only the last trip of a loop looks where the rows end"),
)


def heads_of_block(problem, knobs):
    """Query heads that a block serves."""
    return problem.group_size if knobs["gqa"] else 1


def cluster_of(knobs):
    """Blocks of a cluster."""
    return knobs["split"] if knobs["merge"] == 2 else 1


def defines(problem, limits, knobs):
    """What the source takes beside the knobs."""
    return {
        "GROUP_SIZE": str(heads_of_block(problem, knobs)),
        "IS_SPLIT": str(int(knobs["split"] > 1)),
        "CLUSTER": str(cluster_of(knobs)),
    }


def check_knobs(limits, knobs):
    """Refuse what the kernel is not written for.

    Raises:
        LabError: a matrix product without a tile in shared memory, or clusters that the GPU lacks.
    """
    if knobs["math"] and not knobs["load"]:
        raise LabError(
            "A matrix product reads its tile from shared memory.",
            "load=0 brings K and V to registers",
            "load=1 or load=2, or math=0",
        )
    if cluster_of(knobs) > limits.largest_cluster:
        raise LabError(
            f"There are no clusters of {knobs['split']} blocks on {limits.name}.",
            f"{limits.arch} has clusters of at most {limits.largest_cluster}",
            "merge=1, or fewer pieces",
        )


def smem_bytes(problem, knobs):
    """Dynamic shared memory: the tiles, and in their place what the warps join."""
    warps = knobs["warps"]
    if knobs["load"] == 0 and warps == 1 and knobs["split"] == 1:
        return 0  # the warp writes its result itself
    padding = 2 * TILE * 16 if knobs["swizzle"] == 2 else 0
    slots = {0: 0, 1: 1, 2: knobs["stages"]}[knobs["load"]]
    tiles = warps * slots * (tile_bytes(TILE, problem.head_dim, 16) + padding)
    return max(tiles, join_bytes(warps, heads_of_block(problem, knobs), problem.head_dim))


def keys_of_piece(problem, knobs):
    """Keys of one piece: whole turns of the warps."""
    of_warp = TILE if knobs["load"] else knobs["rows"] * knobs["width"] // 8
    turn = knobs["warps"] * of_warp
    keys = -(-problem.kv_len // knobs["split"])
    return -(-keys // turn) * turn


def partial_results(problem, knobs):
    """Where the pieces leave what they found, for a second launch or for the last block."""
    heads, split = heads_of_block(problem, knobs), knobs["split"]
    if knobs["merge"] == 0:
        rows = (problem.batch, problem.num_qo_heads, split, problem.head_dim + 2)
        return (Workspace("partial", rows, "float32"),)
    served = problem.batch * problem.num_qo_heads // heads
    return (
        Workspace("partial_rows", (served, split, heads, problem.head_dim), "float32"),
        Workspace("partial_known", (served, split, heads, 2), "float32"),
        Workspace("finished", (served * cluster_of(knobs),), "uint32"),
    )


def launch(problem, limits, knobs):
    """A block a (sequence, query or KV head, piece), and what joins the pieces."""
    check_knobs(limits, knobs)
    split = knobs["split"]
    heads = problem.num_qo_heads // heads_of_block(problem, knobs)
    results = partial_results(problem, knobs) if split > 1 else ()
    decode = Launch(
        entry="decode_tunable",
        grid=(split, heads, problem.batch) if split > 1 else (heads, problem.batch),
        block=(32 * knobs["warps"],),
        smem_bytes=smem_bytes(problem, knobs),
        args=(
            *("q", "k", "v", "seq_lens", "out"),
            np.int32(problem.num_kv_heads),
            np.int32(problem.kv_len),
            np.float32(problem.sm_scale * (LOG2_E if knobs["exp2"] else 1.0)),
            *((np.int32(keys_of_piece(problem, knobs)),) if split > 1 else ()),
            *(space.name for space in results),
        ),
        workspace=results,
    )
    if split == 1:
        return [decode]
    if knobs["merge"]:
        return [reset_launch(results[-1]), decode]
    merge = Launch(
        entry="merge_pieces",
        grid=(problem.num_qo_heads, problem.batch),
        block=(problem.head_dim,),
        args=("partial", "out", np.int32(split)),
        workspace=results,
    )
    return [decode, merge]


RUNG = Rung(
    id="tunable",
    title="A family with methods to leave out",
    source=Path(__file__).with_suffix(".cu"),
    idea="the methods of r03 to r09 in one source, each of which can be left out",
    limiter="that of the knobs chosen; the defaults are r03's",
    cost="sm_80 and up; a longer source than that of any one of its kernels",
    knobs=KNOBS,
    supports=kernel_supports(head_dims=(128,), groups=range(1, 9)),
    min_arch="sm_80",
    defines_extra=defines,
    launch=launch,
)
