"""What is computed, as the derivation of a tile sees it: products of matrices and what becomes one.

A convolution is a product whose first factor is read out of an image, so that neighbouring rows
share elements (the halo). A mixture of experts is many products of one width, whose numbers of
rows differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
    patch: tuple[int, int] | None = None  # height and width of the tile in an image


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

    images: int = 1
    height: int = 1  # of an image
    width: int = 1
    filter_height: int = 1
    filter_width: int = 1
    stride: int = 1  # from one place to the next

    @property
    def taps(self) -> int:
        """R S."""
        return self.filter_height * self.filter_width

    @property
    def a_bytes(self) -> int:
        """The images, once."""
        return ELEMENT * self.images * self.height * self.width * self.channels

    def _spans(self, size: int, taps: int, length: int) -> tuple[int, int, int]:
        """Tiles of so many places along one axis: their number, the input rows (or columns) that
        they touch together, and those of the largest."""
        places, before = -(-size // self.stride), (taps - 1) // 2
        touched = []
        for first in range(0, places, length):
            last = min(first + length, places) - 1
            low = max(0, first * self.stride - before)
            high = min(size - 1, last * self.stride - before + taps - 1)
            touched.append(high - low + 1)
        return len(touched), sum(touched), max(touched)

    @cache  # noqa: B019  (a work is small, and there are few)
    def tilings(self, rows: int) -> list[RowTiling]:
        """Patches of an image, by height times width; the first touches the fewest elements."""
        found = []
        for high in (one for one in range(1, rows + 1) if rows % one == 0):
            wide = rows // high
            down, all_down, most_down = self._spans(self.height, self.filter_height, high)
            across, all_across, most_across = self._spans(self.width, self.filter_width, wide)
            count, touched = self.images * down * across, self.images * all_down * all_across
            found.append(RowTiling(rows, count, touched, most_down * most_across, (high, wide)))
        return sorted(found, key=lambda one: (one.count, one.touched, one.patch))

    def a_loaded(self, rows: int) -> int:
        """The patch with its halo, once for all taps."""
        return ELEMENT * self.tilings(rows)[0].tile_touched * self.channels

    def slot_bytes(self, rows: int, columns: int, depth: int, stages: int) -> int:
        """Two slabs of the patch, of so many channels, and a ring of slices of B."""
        slab = self.tilings(rows)[0].tile_touched * depth
        return ELEMENT * (2 * slab + stages * columns * depth)


def _wrong(op: str, text: str, why: str) -> LabError:
    example = f"a workload looks like {FORMS[op].example}"
    return LabError(f"This is not a workload: {text!r}.", why, example)


def _sizes(op: str, text: str, letters: str) -> list[int]:
    """The whole numbers of a short form, of which each letter names one."""
    found = re.fullmatch(rf"{op}:([0-9]+(?:,[0-9]+)*)", text)
    sizes = [int(one) for one in found[1].split(",")] if found else []
    if len(sizes) != len(letters.split(",")) or min(sizes) < 1 or max(sizes) > 2**24:
        raise _wrong(op, text, f"{op} takes whole numbers from 1 to {2**24:,}: {letters}")
    return sizes


def _gemm(text: str) -> TiledWork:
    problem = Gemm.parse(text)
    return TiledWork(problem.short(), (problem.m,), problem.n, problem.k)


def _conv(text: str) -> TiledWork:
    sizes = _sizes("conv", text, "B,H,W,C,K,R,S,stride")
    images, height, width, channels, filters, r, s, stride = sizes
    if r > height or s > width:
        why = f"a filter of {r} x {s} is larger than an image of {height} x {width}"
        raise _wrong("conv", text, why)
    places, depth = images * -(-height // stride) * -(-width // stride), channels * r * s
    return ConvWork(text, (places,), filters, depth, images, height, width, r, s, stride)


def _experts(text: str) -> TiledWork:
    """Tokens choose evenly, so that the experts' rows are ragged by chance alone, seed 0."""
    sizes = _sizes("moe", text, "tokens,experts,experts a token,N,K")
    tokens, experts, chosen, columns, depth = sizes
    if chosen > experts or experts > 4096:
        each = "a token takes at most each expert once, and there are 4096 experts at most"
        raise _wrong("moe", text, f"{each}; here {chosen} of {experts}")
    rng = np.random.default_rng([_ROUTING_SEED, tokens, experts, chosen])
    counts = sum(rng.multinomial(tokens, [1 / experts] * experts) for _ in range(chosen))
    return TiledWork(text, tuple(int(one) for one in np.asarray(counts)), columns, depth)


@dataclass(frozen=True)
class Form:
    """A product that is given in short form."""

    example: str  # the usual one
    read: Callable[[str], TiledWork]
    kernel: str | None = None  # the shipped kernel that takes a derived tile as its knobs
    library: bool = False  # whether NVIDIA's heuristics know it
    ring: bool = False  # whether there is a kernel of it on wgmma


FORMS = {
    "gemm": Form("gemm:4096,4096,4096", _gemm, "g01_ring", library=True, ring=True),
    "conv": Form("conv:32,56,56,64,64,3,3,1", _conv),
    "moe": Form("moe:4096,64,8,2048,7168", _experts, library=True),
}
"""Every product that can be derived."""


def read_work(op: str, text: str | None) -> TiledWork:
    """The work that a short form of one of `FORMS` names; None is the usual one."""
    form = FORMS[op]
    return form.read("".join((text or form.example).lower().split()))
