"""The tile of a block: sizes that its kernels have as knobs, and what they ask of a GPU.

A launch asks this, and the derivation of a tile does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ..errors import LabError
from ..limits import MOST_FIXED_SMEM_BYTES, MOST_REGISTERS, MOST_THREADS, Limits
from ..rung import SWIZZLED_ROW_BYTES, Knob
from .gemm import Gemm

PIECE = 16
"""Rows and columns of the least part of an output that a warp takes: two products m16n8k16."""
PRODUCT_KNOBS = (
    Knob("tile_m", (16, 32, 64, 128, 256), 128, "rows of a block's tile of the output"),
    Knob("tile_n", (16, 32, 64, 128, 256), 128, "columns of it"),
    Knob("tile_k", (16, 32, 64), 64, "length of a slice of A and B"),
    Knob("warps_m", (1, 2, 4, 8), 2, "warps that share the rows of a tile"),
    Knob("warps_n", (1, 2, 4, 8), 2, "warps that share its columns"),
)
"""What every tiled kernel of the product can be set to."""


def product_supports(problem: Gemm) -> str | None:
    """Why a kernel in 16-bit elements cannot run a problem: its elements are others."""
    if problem.element_bytes != 2:
        return f"its elements are {problem.dtype}; this kernel is written for 16-bit floats"
    return None


@dataclass(frozen=True)
class ProductTile:
    """A block's tile of the output, and its ring."""

    # m, n: rows and columns of the output
    m: int
    n: int
    k: int  # length of a slice
    # warps_m, warps_n: warps along rows and columns
    warps_m: int
    warps_n: int
    stages: int = 1  # slices that the ring holds; 1 where there is none
    pad: int = 0  # elements that hold nothing, behind each row of a slice

    @classmethod
    def of(cls, knobs: Mapping[str, int]) -> Self:
        """The tile that a kernel's knobs name."""
        sizes = (knobs["tile_m"], knobs["tile_n"], knobs["tile_k"])
        warps = (knobs["warps_m"], knobs["warps_n"])
        return cls(*sizes, *warps, knobs.get("stages", 1), knobs.get("pad", 0))

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def sums(self) -> int:
        """Sums of a thread: one register each."""
        return self.m * self.n // self.threads

    @property
    def slice_bytes(self) -> int:
        """A slice of A and one of B, two bytes an element."""
        return 2 * (self.m + self.n) * (self.k + self.pad)

    @property
    def ring_bytes(self) -> int:
        """Shared memory of all stages."""
        return self.stages * self.slice_bytes

    @property
    def knobs(self) -> dict[str, int]:
        """The sizes as a kernel's knobs name them."""
        named = {"tile_m": self.m, "tile_n": self.n, "tile_k": self.k}
        named |= {"warps_m": self.warps_m, "warps_n": self.warps_n}
        return named | ({"stages": self.stages} if self.stages > 1 else {})

    def blocks(self, rows: int, columns: int) -> int:
        return -(-rows // self.m) * -(-columns // self.n)

    def why_not_shared(self) -> str | None:
        """Why the warps cannot share this tile, or None."""
        if self.m % (PIECE * self.warps_m) or self.n % (PIECE * self.warps_n):
            return (
                f"{self.warps_m} x {self.warps_n} warps do not share {self.m} x {self.n} elements "
                f"in whole pieces of {PIECE} x {PIECE}"
            )
        if self.threads > MOST_THREADS:
            return f"{self.warps} warps are more than the {MOST_THREADS // 32} of a block"
        if self.sums > MOST_REGISTERS:
            return f"{self.sums:,} sums a thread, and it has {MOST_REGISTERS} registers"
        return None

    def why_not(self, limits: Limits, fixed_size: bool = False) -> str | None:
        """Why no block can have this tile, or None; with ``fixed_size`` the kernel's shared memory
        has its size when it is compiled."""
        if why := self.why_not_shared():
            return why
        most = MOST_FIXED_SMEM_BYTES if fixed_size else limits.smem_per_block_bytes
        if self.ring_bytes > most:
            of_size = " of a fixed size" if fixed_size else ""
            return (
                f"{self.ring_bytes:,} bytes of shared memory are more than the {most:,}{of_size} "
                "that a block may have"
            )
        return None

    def check(self, limits: Limits, fixed_size: bool = False) -> None:
        """Refuse a tile that no block can have; the arguments are those of `why_not`."""
        _refuse(f"{self.m} x {self.n} x {self.k}", self.why_not(limits, fixed_size))


def _refuse(sizes: str, why: str | None) -> None:
    if why is not None:
        raise LabError(
            f"A tile of {sizes} does not fit.",
            why,
            "other sizes of the knobs; labtools derive --op gemm names one",
        )


SLICE = SWIZZLED_ROW_BYTES // 2
"""Elements of K that a slot of a ring of bulk copies has: a row of a swizzled box."""
WARPGROUP_ROWS = 64
"""Rows of the left factor that a warpgroup multiplies."""
WARPGROUP_THREADS = 128
BARRIER_BYTES = 8
SPARE_REGISTERS = 40
"""Of a multiplying thread, beside its sums: descriptors, places in the ring, counters. Read from
the compiled code."""
COPYING_REGISTERS = 40
"""Of a thread of the copying warps, which gave the rest away."""


@dataclass(frozen=True)
class RingTile:
    """A tile that a block multiplies with wgmma from a ring that the copy engine fills.

    The left factor, 64 rows for each warpgroup, is A, or B if they are swapped.
    """

    warpgroups: int  # that multiply; one more copies
    columns: int  # rows of the right factor
    stages: int  # slices that the ring holds
    split: int = 1  # blocks that share the slices of a tile
    swap: int = 0  # 1 takes B for the left factor

    @classmethod
    def of(cls, knobs: Mapping[str, int]) -> Self:
        """The tile that a kernel's knobs name."""
        sizes = (knobs["warpgroups"], knobs["tile_n"], knobs["stages"])
        return cls(*sizes, knobs["split"], knobs["swap"])

    @property
    def knobs(self) -> dict[str, int]:
        """The sizes as a kernel's knobs name them."""
        named = {"warpgroups": self.warpgroups, "tile_n": self.columns, "stages": self.stages}
        return named | {"split": self.split, "swap": self.swap}

    @property
    def rows(self) -> int:
        """Of the left factor."""
        return WARPGROUP_ROWS * self.warpgroups

    @property
    def workers(self) -> int:
        """Threads that multiply."""
        return WARPGROUP_THREADS * self.warpgroups

    @property
    def threads(self) -> int:
        return self.workers + WARPGROUP_THREADS

    @property
    def slice_bytes(self) -> int:
        """A slice of both factors, two bytes an element."""
        return 2 * (self.rows + self.columns) * SLICE

    @property
    def smem_bytes(self) -> int:
        """Of a block: the ring, two barriers a stage, and a word."""
        return self.stages * (self.slice_bytes + 2 * BARRIER_BYTES) + BARRIER_BYTES

    @property
    def registers(self) -> int:
        """Of a multiplying thread, estimated."""
        return self.columns // 2 + SPARE_REGISTERS

    def most_registers(self, limits: Limits) -> int:
        """What a multiplying thread can have, of the block's registers and at all."""
        left = limits.registers_per_sm - WARPGROUP_THREADS * COPYING_REGISTERS
        return min(MOST_REGISTERS, left // self.workers)

    def why_not(self, limits: Limits) -> str | None:
        """Why no block of a GPU can have this tile, or None."""
        most = limits.smem_per_block_bytes
        if self.smem_bytes > most:
            return f"{self.smem_bytes:,} bytes of shared memory, and a block has {most:,}"
        if self.registers > self.most_registers(limits):
            registers = self.workers * self.registers + WARPGROUP_THREADS * COPYING_REGISTERS
            return f"{registers:,} registers, and a block has {limits.registers_per_sm:,}"
        return None

    def check(self, limits: Limits) -> None:
        """Refuse a tile that no block can have."""
        _refuse(f"{self.rows} x {self.columns}, {self.stages} slices,", self.why_not(limits))

    def sides(self, m: int, n: int) -> tuple[int, int]:
        """Rows of the left and of the right factor of a product ``[m, n]``."""
        return (n, m) if self.swap else (m, n)

    def tiles(self, m: int, n: int) -> int:
        """Tiles of an output ``[m, n]``."""
        left, right = self.sides(m, n)
        return -(-left // self.rows) * -(-right // self.columns)
