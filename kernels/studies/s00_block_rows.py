"""s00, a block a row: two barriers around one set of partial sums.

Idea: one pass as in r01, but every thread adds up the warps' partial sums itself; the second
barrier keeps the next row's sums from overtaking. A split gives one sequence to several blocks.
Cost: still one barrier more than two alternating sets need; with a split, a second launch.
"""

from labtools.problem import Knob, Rung, head_dims, split_launches


def launch(problem, limits, knobs):
    """One block a (sequence, query head, piece), a thread a dim; then the merge."""
    return split_launches(problem, "decode_s00", knobs["split"], block=problem.head_dim)


RUNG = Rung.beside(
    __file__,
    title="A block a row, two barriers",
    idea="one pass with a single set of partial sums, hence two barriers a row",
    limiter="the barriers of a row, and too few blocks",
    cost="a barrier more than r02",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
