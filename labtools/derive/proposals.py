"""What a reader proposes, held against the limits one by one: sizes of a tile, a ring, a layout.

A derivation chooses. Here somebody else chooses, and each limit says whether it holds and by what
number. Every operation has three sizes to choose and the same layouts of rows in shared memory.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.predict.banks import Tile, check_tile

from .parts import AnyDesign

PADDINGS: Mapping[str, int | None] = {
    "one after another": 0,
    "2 bytes behind each": 2,
    "4 bytes behind each": 4,
    "16 bytes behind each": 16,
    "chunks moved by xor": None,
}
"""How rows can lie, by the bytes behind each; None moves chunks of 16 bytes instead."""
SHOWN_ROWS = 64
"""Rows that a layout is held against its accesses with."""
RING_LENGTHS = (2, 3, 4, 6)


@dataclass(frozen=True)
class DesignLimit:
    """A limit that a design must hold."""

    name: str  # short
    unit: str  # of its number
    at_most: bool  # whether the number must not be above the limit; else not below
    # holds, fails: what it means that it holds, or does not: a clause
    holds: str
    fails: str
    budget: bool = False  # whether it is shown as a bar
    # whether the kernel cannot be built, or faults, where it fails; else it takes longer
    hard: bool = False

    def kept(self, value: float, limit: float) -> bool:
        """Whether a number holds it."""
        return value <= limit if self.at_most else value >= limit


_LIMITS = {
    name: DesignLimit(**said)
    for name, said in tomllib.loads(
        Path(__file__).with_name("limits.toml").read_text("utf-8")
    ).items()
}
SMEM_BUDGET = _LIMITS["smem_budget"]
REGISTER_BUDGET = _LIMITS["register_budget"]
L2_BUDGET = _LIMITS["l2_budget"]
FLIGHT_BUDGET = _LIMITS["flight_budget"]
LATENCY_LIMIT = _LIMITS["latency_limit"]
ALIGNMENT_LIMIT = _LIMITS["alignment_limit"]
CONFLICT_LIMIT = _LIMITS["conflict_limit"]
SPEED = _LIMITS["speed"]


@dataclass(frozen=True)
class LayoutFate:
    """What a layout means for rows of one length."""

    row_share: float  # bytes from row to row over the bytes of a row
    beside: int  # bytes by which a row misses a multiple of 16
    turns: float | None  # over the least, of the worst access; None where one faults
    refused: str = ""  # why the copies cannot lay rows so, or an empty text


def fates_of(
    row_bytes: int, accesses: Sequence[str], *, moved: str = "xor", boxes: bool = False
) -> dict[str, LayoutFate]:
    """Every layout of `PADDINGS` for rows of a power of two of at least 32 bytes and the kernel's
    accesses, as `check_tile` names them; ``moved`` is the layout that moves chunks, and with
    ``boxes`` the copy engine lays rows, which leaves no room between them."""
    found = {}
    for name, padding in PADDINGS.items():
        stride = row_bytes + (padding or 0)
        report = check_tile(
            Tile(SHOWN_ROWS, row_bytes, stride, "plain" if padding is not None else moved), accesses
        )
        refused = "a box of the copy engine has no room between rows" if boxes and padding else ""
        found[name] = LayoutFate(
            stride / row_bytes,
            stride % 16,
            None if report.faults else max(one.wavefronts / one.least for one in report.accesses),
            refused,
        )
    return found


@dataclass(frozen=True)
class Proposal:
    """One choice of sizes."""

    fixed_bytes: int  # of a block's shared memory, what no layout changes
    row_bytes: int  # of it, the bytes of rows, without padding
    figures: dict[str, tuple[float, float]]  # by constraint: the number, and its limit
    cannot: str  # why a block of these sizes makes no sense at all, or an empty text
    # expected where everything that does not depend on the layout holds, else None
    time_us: float | None


@dataclass(frozen=True)
class DesignSpace:
    """All that can be proposed for a workload on a GPU, and what is derived there."""

    sizes: dict[str, tuple[int, ...]]  # three names, each with its values
    constraints: tuple[DesignLimit, ...]  # that figures are of, beside layout and shared memory
    smem_limit: int  # bytes of a block
    layouts: dict[str, LayoutFate]  # by name, see `PADDINGS`
    proposals: dict[tuple[int, ...], Proposal]  # by the places of the three values
    derived: tuple[tuple[int, ...], str]  # places of the derived sizes, and name of the layout
    design: AnyDesign
    specified: tuple[str, dict[str, int]] | None  # the shipped kernel to build and its knobs
    bound: str  # what no kernel can beat, such as ``memory``
    floor_us: float  # the time of that bound


def make_space(
    design: Any,
    sizes: dict[str, tuple[int, ...]],
    propose: Callable[..., Proposal],
    derived: Sequence[int],
    *,
    layout: str,
    **others: Any,
) -> DesignSpace:
    """A space with every proposal worked out: ``propose`` is given a value of each of three sizes,
    which the ``derived`` ones join. ``others`` are the other attributes; bound and floor are those
    of the design unless given."""
    joined = {
        name: tuple(sorted({*values, own}))
        for (name, values), own in zip(sizes.items(), derived, strict=True)
    }
    every = list(joined.values())
    proposals = {
        at: propose(*(values[n] for values, n in zip(every, at, strict=True)))
        for at in itertools.product(*(range(len(values)) for values in every))
    }
    at = tuple(values.index(own) for values, own in zip(every, derived, strict=True))
    return DesignSpace(
        sizes=joined,
        proposals=proposals,
        derived=(at, layout),
        design=design,
        specified=design.specified,
        bound=others.pop("bound", None) or design.bound,
        floor_us=others.pop("floor_us", None) or design.floor_us,
        **others,
    )
