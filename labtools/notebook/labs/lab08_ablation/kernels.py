"""The kernels that the bench offers: points of the recorded grid, and what each is there for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import START_KEY, Point
from labtools.optimize.removals import pair_variants
from labtools.problem import LabError

LOOP_CHAMPION = "gqa=1 math=1 load=2 unroll=1 stages=3 swizzle=1 warps=8 split=2 merge=2"
"""What ``labtools loop run`` ends with at the headline on the recorded grid, seed 0."""


@dataclass(frozen=True)
class ShownKernel:
    """A point of the grid."""

    name: str  # of the choice
    key: str  # of the point; empty is the fastest that a round may lead with, at the headline
    about: str  # one or two sentences: what it is


KERNELS = (
    ShownKernel(
        "the start",
        START_KEY,
        "Rung r03: one warp a query head, 8 bytes a lane, no tile in shared memory, no pieces.",
    ),
    ShownKernel(
        "the start with grouped heads",
        "gqa=1",
        "The start, where a block serves all query heads of a KV head. Nothing else was changed.",
    ),
    ShownKernel(
        "many rows, one warp",
        "gqa=1 width=16 rows=8 unroll=1 split=4",
        "All heads of a group, eight rows before one rescaling, four pieces, no tile in shared "
        "memory.",
    ),
    ShownKernel(
        "the loop's champion",
        LOOP_CHAMPION,
        "What the automatic loop ended with on this grid: matrix products from a swizzled ring of "
        "tiles, eight warps, two pieces that join in a cluster.",
    ),
    ShownKernel(
        "the fastest at the headline",
        "",
        "The fastest point that a round may lead with, at the headline: the loop's champion with "
        "more methods. The loop did not come here.",
    ),
    ShownKernel(
        "few registers",
        "gqa=1 math=1 load=2 width=16 unroll=1 stages=3 swizzle=1 warps=4 split=4 merge=1 bounds=2",
        "Matrix products with at most 64 registers a thread, so that more warps could be resident.",
    ),
    ShownKernel(
        "four pieces in a cluster",
        "gqa=1 math=1 load=2 width=16 unroll=1 stages=3 swizzle=1 warps=4 split=4 merge=2 tail=1",
        "Matrix products, four pieces, and a last trip that alone looks where the rows end.",
    ),
)


def point_of(bench: RecordedBench, kernel: ShownKernel) -> Point:
    """The point that a choice stands for."""
    if kernel.key:
        return bench.family.read_key(kernel.key)
    best = bench.best_leading()
    if best is None:
        raise LabError("No point of the grid has a time.", "", "the other kernels")
    return best[0]


def find_kernel(bench: RecordedBench, name: str) -> Point:
    """The point of a choice, by its name."""
    for kernel in KERNELS:
        if kernel.name == name:
            return point_of(bench, kernel)
    raise LabError(
        f"{name} is not on this bench.",
        f"it offers {', '.join(kernel.name for kernel in KERNELS)}",
        "one of them",
    )


def shown_points(bench: RecordedBench) -> tuple[Point, ...]:
    """Every recorded point that the bench shows: the kernels, and each with methods out."""
    return tuple(dict.fromkeys(_points(bench)))


def _points(bench: RecordedBench) -> Iterator[Point]:
    family = bench.family
    for kernel in KERNELS:
        point = point_of(bench, kernel)
        methods = family.methods_on(point)
        yield point
        yield from (family.remove(point, name) for name in methods)
        pairs = pair_variants(family, point, methods).points.values()
        yield from (left for left in pairs if bench.grid.number(left) is not None)
