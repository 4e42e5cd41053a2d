"""s05, a block whose warps meet once.

Idea: every warp takes its own rows with a maximum, a sum and an output of its own; they are joined
through shared memory once, at the end.
Cost: the join, and W exponentials where one would do.
"""

from labtools.problem import Knob, Rung, head_dims, split_launches


def launch(problem, limits, knobs):
    """One block of warps a (sequence, query head, piece); then the merge."""
    return split_launches(problem, "decode_s05", knobs["split"], block=32 * knobs["warps"])


RUNG = Rung.beside(
    __file__,
    title="Warps that meet once",
    idea="warps with private results, joined once through shared memory",
    limiter="barriers, and too few warps",
    cost="the join at the end",
    knobs=(
        Knob("warps", (2, 4, 8), 4, "warps of one block"),
        Knob("rows", (1, 2, 4), 2, "KV rows that a warp takes at a time"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
