"""How rows lie in shared memory: alignment proved for every row and stage, conflicts lane by lane.

An address is the base, some stages, some rows and a multiple of the access's own size; so it is
enough to look at the remainders of base, stage and row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from labtools.predict.banks import Tile, check_tile, half_tile
from labtools.problem.limits import COPY_BYTES

from .parts import Rejected

ALIGNMENTS = {
    "cp.async 16 B": 16,
    "ldmatrix": 16,
    "LDS.128": 16,
    "LDS.64": 8,
    "LDS.32": 4,
    "TMA": 128,
    "TMA, 128-byte swizzle": 1024,
    "wgmma descriptor": 16,
}
"""Bytes that the address of each kind of access must be a multiple of. CUDA C++ Programming Guide
13.0: cp.async and vector loads by their size, a row of ldmatrix 16; a box of a tensor copy begins
at a multiple of 128 bytes in shared memory, and with the 128-byte swizzle at one of 1024, where its
pattern of eight rows begins anew. PTX ISA: a descriptor of wgmma counts in 16 bytes."""
WHOLE_BOX = ("TMA", "TMA, 128-byte swizzle")
"""Kinds that name the beginning of a stage alone, not each row."""
PADS = (64, 65, 66, 72)
"""Elements from one row to the next that are shown beside xor, for rows of 64 elements."""
DOWN_A_COLUMN = "2 B down a column"
"""What scalar code does, and neither a copy nor a matrix load."""
ACCESS_KINDS = {
    "cp.async 16 B": "copy",
    "ldmatrix": "matrix",
    "ldmatrix.trans": "matrix_transposed",
    "LDS.128 along rows": "row",
    DOWN_A_COLUMN: "column",
}
"""Accesses that a layout is held against, by what `labtools.predict.banks` calls them."""


@dataclass(frozen=True)
class AlignmentProof:
    """Whether every row and every stage of a ring begins where an access may."""

    kind: str  # of access
    needs: int  # bytes that an address must be a multiple of
    row_mod: int  # remainder of the bytes of a row
    stage_mod: int  # of those of a stage
    first_wrong: tuple[int, int] | None  # (stage, row) of the first address that is none, or None
    said: str  # the proof, or what refutes it, in one sentence

    @property
    def holds(self) -> bool:
        """Whether no address is wrong."""
        return self.first_wrong is None


def prove_alignment(kind: str, tile: Tile, stages: int, stage_bytes: int) -> AlignmentProof:
    """Prove that an access of a kind of `ALIGNMENTS` is aligned in every row of every stage, or
    find where not; ``stage_bytes`` are from one stage to the next."""
    needs = ALIGNMENTS[kind]
    row_mod, stage_mod = tile.stride % needs, stage_bytes % needs
    rows = 1 if kind in WHOLE_BOX else tile.rows
    places = itertools.product(range(min(stages, needs)), range(min(rows, needs)))
    beside = ((s, r) for s, r in places if (tile.base + s * stage_mod + r * row_mod) % needs)
    wrong = next(beside, None)
    if wrong is None:
        said = f"a row is {row_mod} and a stage {stage_mod} mod {needs}"
        if kind in WHOLE_BOX:
            said = f"a stage is {stage_mod} mod {needs}, and a box begins with it"
    elif wrong[1]:
        said = (
            f"{tile.stride} mod {needs} = {row_mod}: row {wrong[1]} begins at byte "
            f"{tile.base + wrong[0] * stage_bytes + wrong[1] * tile.stride}"
        )
    else:
        said = f"{stage_bytes} mod {needs} = {stage_mod}: stage {wrong[0]} begins beside it"
    return AlignmentProof(kind, needs, row_mod, stage_mod, wrong, said)


@dataclass(frozen=True)
class LayoutChoice:
    """One layout of a tile, held against every kind of access."""

    name: str  # ``64``, ``65``, ... elements a row, or ``xor``.
    stride_bytes: int  # of a row
    padding_bytes: int  # of the tile that hold nothing
    aligned: dict[str, bool]  # by kind of access, whether every row begins where it may
    turns: dict[str, float | None]  # by kind, over the least; None where it faults
    why: str  # what speaks against it, or that nothing does

    @property
    def worst_turns(self) -> float:
        """The most turns over the least of the accesses along rows; 0 where each of them faults."""
        return max((turns or 0) for kind, turns in self.turns.items() if kind != DOWN_A_COLUMN)


def compare_layouts_of(rows: int, columns: int) -> list[LayoutChoice]:
    """Rows of 16-bit elements with paddings, and moved by xor, held against each kind of access; a
    row has a power of two of at least 16."""
    extra = [pad - PADS[0] for pad in PADS]
    made = [(str(columns + one), half_tile(rows, columns, one)) for one in extra]
    made.append(("xor", half_tile(rows, columns, layout="xor")))
    return [_choice(name, tile) for name, tile in made]


def _choice(name: str, tile: Tile) -> LayoutChoice:
    aligned, turns, against = {}, {}, []
    for kind, access in ACCESS_KINDS.items():
        (found,) = check_tile(tile, (access,)).accesses
        aligned[kind] = not found.faults
        turns[kind] = None if found.faults else found.wavefronts / found.least
        if found.faults:
            against.append(f"{kind} faults")
        elif found.wavefronts > found.least and kind != DOWN_A_COLUMN:
            against.append(f"{kind} takes {found.wavefronts / found.least:g} times the turns")
    mod = tile.stride % 16
    if mod:
        against.insert(0, f"{tile.stride} mod 16 = {mod}, so 16-byte copies fault from row 1 on")
    padding = tile.rows * (tile.stride - tile.row_bytes)
    if padding and not against:
        against.append(f"aligned and free of conflicts for {padding:,} bytes that hold nothing")
    why = "; ".join(against) or "aligned and free of conflicts, and no byte is lost"
    return LayoutChoice(name, tile.stride, padding, aligned, turns, why)


def best_layouts(layouts: Sequence[LayoutChoice]) -> dict[str, LayoutChoice]:
    """By kind of access, the layout that would serve it alone: aligned, in the fewest turns, then
    with the fewest bytes that hold nothing, then the first."""
    return {
        kind: min(
            (one for one in layouts if one.turns[kind] is not None),
            key=lambda one: (one.turns[kind] or 0, one.padding_bytes),
        )
        for kind in ACCESS_KINDS
    }


def rejected_layouts(
    rows: int, columns: int, stages: int, taken: str
) -> tuple[tuple[LayoutChoice, ...], list[Rejected]]:
    """The layouts of `compare_layouts_of`, and what speaks against those that are not taken."""
    layouts = tuple(compare_layouts_of(rows, columns))
    odd = half_tile(rows, columns, 1)
    broken = prove_alignment("cp.async 16 B", odd, stages, odd.bytes)
    named, unit = f"half smem[{rows}][{columns + 1}]", "bytes beside a multiple of 16"
    why = f"{broken.said}, where a 16-byte copy faults"
    rejected = [Rejected(named, odd.stride % COPY_BYTES, unit, why)]
    for one in layouts:
        if one.name in (taken, str(columns + 1)):
            continue
        number, unit, why = one.worst_turns, "times the turns", one.why
        if one.stride_bytes % COPY_BYTES:
            number, unit = one.stride_bytes % COPY_BYTES, "bytes beside 16"
        elif one.name == "xor":
            number, unit = 8, "places of one chunk"
            why = "free of conflicts too, but an address is then no constant beside a row's"
        elif one.padding_bytes:
            number, unit = one.padding_bytes, "bytes hold nothing"
        named = "xor" if one.name == "xor" else f"rows of {one.name}"
        rejected.append(Rejected(named, number, unit, why))
    return layouts, rejected


def swizzle_of(depth: int) -> str:
    """How a 16-byte chunk of a row of ``depth`` 16-bit elements moves, in words."""
    chunks = depth // 8
    lines = max(1, 8 // chunks)
    turn = "r mod 8" if lines == 1 else f"(r div {lines}) mod {chunks}"
    return f"chunk c of row r stands at c xor ({turn})"
