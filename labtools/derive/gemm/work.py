"""What is computed, as the derivation of a tile sees it: products of matrices and what becomes one.

A convolution is a product whose first factor is read out of an image, so that neighbouring rows
share elements (the halo). A mixture of experts is many products of one width, whose numbers of
rows differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from labtools.problem import Gemm, LabError
from labtools.problem.limits import COPY_BYTES

from ..sm import ELEMENT

_ROUTING_SEED = 0


@dataclass(frozen=True)
class RowTiling:
    """One way to cut the rows of a product."""

    rows: int  # of a tile
    count: int  # tiles
    touched: int  # elements of A that all tiles touch for one channel, those shared counted again
    tile_touched: int  # those of the largest tile
    # height and width of the tile in an image; None where there is no image
    patch: tuple[int, int] | None = None


@dataclass(frozen=True)
class TiledWork:
    """A product ``[rows, depth] x [depth, columns]``, or several of one width."""

    text: str  # as it was typed
    rows: tuple[int, ...]  # of each product; one number for a matrix product
    columns: int  # of the output
    depth: int  # length of each sum

    @property
    def taps(self) -> int:
        """Elements of a sum that come from one channel of A."""
        return 1

    @property
    def channels(self) -> int:
        """Elements of A of one place."""
        return self.depth // self.taps

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product that counts."""
        return 2 * sum(self.rows) * self.columns * self.depth

    @property
    def a_bytes(self) -> int:
        """A, once."""
        return ELEMENT * sum(self.rows) * self.depth

    @property
    def b_bytes(self) -> int:
        """B of every product that has rows, once."""
        return ELEMENT * sum(one > 0 for one in self.rows) * self.columns * self.depth

    @property
    def out_bytes(self) -> int:
        """The output, once."""
        return ELEMENT * sum(self.rows) * self.columns

    @property
    def minimal_bytes(self) -> int:
        """A, B and the output, each once: also the footprint."""
        return self.a_bytes + self.b_bytes + self.out_bytes

    @property
    def copies_whole(self) -> bool:
        """Whether every row begins at a multiple of 16 bytes."""
        return self.channels * ELEMENT % COPY_BYTES == 0

    def tilings(self, rows: int) -> list[RowTiling]:
        """The ways to have tiles of so many rows; the first takes the fewest elements."""
        count = sum(-(-one // rows) for one in self.rows)
        return [RowTiling(rows, count, sum(self.rows), min(rows, max(self.rows)))]

    def blocks(self, rows: int, columns: int) -> int:
        """Tiles of the output."""
        return self.tilings(rows)[0].count * -(-self.columns // columns)

    def padded_share(self, rows: int, columns: int) -> float:
        """Part of the multiplications that tiles of such a size spend on nothing."""
        issued = self.blocks(rows, columns) * rows * columns
        return 1 - sum(self.rows) * self.columns / issued

    def a_loaded(self, rows: int) -> int:
        """Bytes of A that one block loads."""
        return ELEMENT * rows * self.depth

    def slot_bytes(self, rows: int, columns: int, depth: int, stages: int) -> int:
        """Shared memory of a block: a ring of slices of A and B."""
        return stages * ELEMENT * (rows + columns) * depth


@dataclass(frozen=True)
class ConvWork(TiledWork):
    """A convolution of images ``[B, H, W, C]`` with filters ``[K, R, S, C]``, as a product.

    A row is a place of the output, a column a filter. The edge is padded so that a filter of odd
    size and stride 1 keeps the size of the image; what lies outside is not read.
    """

    # images, height, width: of the input
    images: int = 1
    height: int = 1
    width: int = 1
    # filter_height, filter_width, stride: R, S and the step from one place to the next
    filter_height: int = 1
    filter_width: int = 1
    stride: int = 1

    @property
    def taps(self) -> int:
        """R S."""
        return self.filter_height * self.filter_width

    @property
    def a_bytes(self) -> int:
        """The images, once."""
        return ELEMENT * self.images * self.height * self.width * self.channels

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (-(-self.height // self.stride), -(-self.width // self.stride))

    def spans(self, axis: str, length: int) -> tuple[int, int, int]:
        """Tiles of so many places along one axis: their number, the input rows (or columns) that
        they touch together, and those of the largest.

        Args:
            axis: ``height`` or ``width``.
            length: places of a tile.
        """
        size, taps = (
            (self.height, self.filter_height)
            if axis == "height"
            else (self.width, self.filter_width)
        )
        places, before = -(-size // self.stride), (taps - 1) // 2
        touched = []
        for first in range(0, places, length):
            last = min(first + length, places) - 1
            low = max(0, first * self.stride - before)
            high = min(size - 1, last * self.stride - before + taps - 1)
            touched.append(high - low + 1)
        return len(touched), sum(touched), max(touched)

    def tilings(self, rows: int) -> list[RowTiling]:
        """Patches of an image, by height times width; the first touches the fewest elements."""
        return list(_patches(self, rows))

    def a_loaded(self, rows: int) -> int:
        """The patch with its halo, once for all taps."""
        return ELEMENT * self.tilings(rows)[0].tile_touched * self.channels

    def slot_bytes(self, rows: int, columns: int, depth: int, stages: int) -> int:
        """Two slabs of the patch, of so many channels, and a ring of slices of B."""
        slab = self.tilings(rows)[0].tile_touched * depth
        return ELEMENT * (2 * slab + stages * columns * depth)


@cache
def _patches(work: ConvWork, rows: int) -> tuple[RowTiling, ...]:
    found = []
    for high in (one for one in range(1, rows + 1) if rows % one == 0):
        down, all_down, most_down = work.spans("height", high)
        across, all_across, most_across = work.spans("width", rows // high)
        found.append(
            RowTiling(
                rows,
                work.images * down * across,
                work.images * all_down * all_across,
                most_down * most_across,
                (high, rows // high),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.count, one.touched, one.patch)))


FORMS = {
    "gemm": ("M,N,K", "gemm:4096,4096,4096"),
    "conv": ("B,H,W,C,K,R,S,stride", "conv:32,56,56,64,64,3,3,1"),
    "moe": ("tokens,experts,experts a token,N,K", "moe:4096,64,8,2048,7168"),
}
"""The sizes that each product is given by, and an example, which is also the usual one."""


def read_work(op: str, text: str | None) -> TiledWork:
    """The work that a short form names.

    Args:
        op: one of `FORMS`.
        text: ``NAME:`` and whole numbers; None takes the usual one.

    Raises:
        LabError: it names none.
    """
    letters, example = FORMS[op]
    text = "".join((text or example).lower().split())
    if op == "gemm":
        problem = Gemm.parse(text)
        return TiledWork(problem.short(), (problem.m,), problem.n, problem.k)
    found = re.fullmatch(rf"{op}:([0-9]+(?:,[0-9]+)*)", text)
    sizes = [int(one) for one in found[1].split(",")] if found else []
    if len(sizes) != len(letters.split(",")) or min(sizes) < 1 or max(sizes) > 2**24:
        raise LabError(
            f"This is not a workload: {text!r}.",
            f"{op} takes whole numbers from 1 to {2**24:,}: {letters}",
            f"a workload looks like {example}",
        )
    if op == "conv":
        images, height, width, channels, filters, r, s, stride = sizes
        if r > height or s > width:
            raise LabError(
                f"This is not a workload: {text!r}.",
                f"a filter of {r} x {s} is larger than an image of {height} x {width}",
                f"a workload looks like {example}",
            )
        places = images * -(-height // stride) * -(-width // stride)
        return ConvWork(
            *(text, (places,), filters, channels * r * s),
            *(images, height, width, r, s, stride),
        )
    tokens, experts, chosen, columns, depth = sizes
    if chosen > experts or experts > 4096:
        raise LabError(
            f"This is not a workload: {text!r}.",
            f"a token takes at most each expert once, and there are 4096 experts at most; here "
            f"{chosen} of {experts}",
            f"a workload looks like {example}",
        )
    return TiledWork(text, rows_of_experts(tokens, experts, chosen), columns, depth)


def rows_of_experts(tokens: int, experts: int, chosen: int) -> tuple[int, ...]:
    """Rows that each expert gets where tokens choose evenly: ragged by chance alone, seed 0."""
    rng = np.random.default_rng([_ROUTING_SEED, tokens, experts, chosen])
    even = [1 / experts] * experts
    counts = sum(rng.multinomial(tokens, even) for _ in range(chosen))
    return tuple(int(one) for one in np.asarray(counts))
