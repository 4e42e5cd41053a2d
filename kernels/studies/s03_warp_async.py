"""s03, one warp, tiles through shared memory.

Idea: asynchronous copies bring tiles of R rows into a ring of S stages, so that what is in flight
is bounded by shared memory instead of registers, and a row is waited for only when it is used.
Limiter: loads in flight, and a load's latency in the chain.
Cost: shared loads and two warp barriers a tile; a stage of shared memory for every tile.
"""

from labtools.problem import Knob, Rung, head_dims, split_launches


def launch(problem, limits, knobs):
    """One warp a (sequence, query head, piece); then the merge."""
    return split_launches(problem, "decode_s03", knobs["split"], block=32)


RUNG = Rung.beside(
    __file__,
    title="One warp, tiles through shared memory",
    idea="asynchronous copies into a ring of tiles",
    limiter="loads in flight",
    cost="a trip through shared memory",
    knobs=(
        Knob("rows", (2, 4, 8), 4, "KV rows of a tile"),
        Knob("stages", (2, 3, 4), 3, "tiles in shared memory"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
