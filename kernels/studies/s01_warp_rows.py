"""s01, one warp, several rows at once.

Idea: the loads of R rows stand first, then R sums over the warp side by side, then one maximum
and one rescaling for all of them; what is left at the end of a sequence is masked.
Cost: registers for R rows of k and v, and exponentials of rows that are not there.
"""

from labtools.problem import Knob, Rung, head_dims, split_launches


def launch(problem, limits, knobs):
    """One warp a (sequence, query head, piece); then the merge."""
    return split_launches(problem, "decode_s01", knobs["split"], block=32)


RUNG = Rung.beside(
    __file__,
    title="One warp, several rows at once",
    idea="the loads and sums of several rows side by side, one rescaling for all of them",
    limiter="the chain from a load to the next row",
    cost="registers; a masked tail",
    knobs=(
        Knob("rows", (1, 2, 4, 8), 4, "KV rows at a time"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
