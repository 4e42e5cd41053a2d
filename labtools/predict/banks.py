"""Shared memory lane by lane: what a warp asks for, whether aligned, and in how many turns.

Shared memory has 32 banks of 4 bytes and serves one word of each a turn (a *wavefront*). Wide
accesses go in parts: 8 bytes a lane in halves of the warp, 16 bytes in quarters, and a matrix load
reads the 8 rows of one 8 x 8 matrix at a time. Two neighbouring parts of a load go in one turn
where lanes read in pairs what the other reads (`word_turns`). An access of n bytes needs an address
that is a multiple of n; one that is not faults.

Source: NVIDIA, CUDA C++ Programming Guide 13.0, sections on shared memory and on ``ldmatrix``; the
turns of each width are measured by the microbenchmarks ``pipe.lds32`` to ``pipe.ldsm``, and those
of drawn addresses by ``research.measure_units``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from labtools.problem import LabError
from labtools.problem.limits import COPY_BYTES

BANKS = 32
BANK_BYTES = 4
TILE_LAYOUTS = ("plain", "xor", "codes")


@dataclass(frozen=True)
class Tile:
    """Rows of equal length in shared memory."""

    rows: int  # of the tile
    row_bytes: int  # that hold data
    stride_bytes: int | None = None  # from one row to the next; None is ``row_bytes``
    # ``plain``, or ``xor``: 16-byte chunk c of row r stands at ``c ^ (r % 8)`` (of fewer than 8
    # chunks a row, at ``c ^ (r // (8 / chunks) % chunks)``). ``codes`` is that of a tile of codes,
    # of which a lane has n = rows / 8 neighbouring keys, n g and on: the number of a 16-byte chunk
    # in the tile, exclusive or three bits of g = r // n.
    layout: str = "plain"
    base: int = 0  # address of the first row, from an aligned start

    def __post_init__(self) -> None:
        if self.stride_bytes is None:
            object.__setattr__(self, "stride_bytes", self.row_bytes)
        if self.rows < 1 or self.row_bytes < 1 or self.stride < self.row_bytes:
            raise LabError(
                f"This is no tile: {self.rows} rows of {self.row_bytes} B, {self.stride} B apart.",
                "it needs rows, and the next row begins behind the one before",
                "for example Tile(64, 128, 130) is half smem[64][65] used as 64 columns",
            )
        chunks = self.row_bytes // COPY_BYTES
        whole = self.row_bytes % COPY_BYTES == 0 and self.stride % COPY_BYTES == 0
        if (
            self.layout not in TILE_LAYOUTS
            or (self.layout != "plain" and (not whole or chunks & (chunks - 1)))
            or (self.layout == "codes" and (self.rows % 32 or chunks not in (4, 8)))
        ):
            raise LabError(
                f"A row of {self.row_bytes} bytes has no layout {self.layout!r}.",
                "xor moves 16-byte chunks, of which a row must have a power of two; the layouts "
                f"are {', '.join(TILE_LAYOUTS)}",
                "the plain layout, with or without padding",
            )

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return int(self.stride_bytes or 0)

    @property
    def bytes(self) -> int:
        """Shared memory of the whole tile."""
        return self.rows * self.stride

    def address(self, row: np.ndarray, byte: np.ndarray) -> np.ndarray:
        """Where byte ``byte`` of row ``row`` stands; int64 arrays of one shape."""
        row, byte = np.asarray(row, np.int64), np.asarray(byte, np.int64)
        if self.layout == "xor":
            chunks = self.row_bytes // COPY_BYTES
            chunk, within = byte // COPY_BYTES, byte % COPY_BYTES
            turn = row % 8 if chunks >= 8 else row // (8 // chunks) % chunks
            byte = (chunk ^ turn) * COPY_BYTES + within
        elif self.layout == "codes":
            chunk, within = byte // COPY_BYTES, byte % COPY_BYTES
            g = row // (self.rows // 8)
            number = (row * (self.row_bytes // COPY_BYTES) + chunk) ^ (g % 2 * 4 + g // 2 % 4)
            return self.base + number * COPY_BYTES + within
        return self.base + row * self.stride + byte


def half_tile(rows: int, columns: int, padding: int = 0, layout: str = "plain") -> Tile:
    """The tile that ``half smem[rows][columns + padding]`` is, of which ``columns`` hold data."""
    return Tile(rows, 2 * columns, 2 * (columns + padding), layout)


@dataclass(frozen=True)
class Access:
    """One warp-wide access to a tile."""

    name: str  # for tables
    width: int  # bytes a lane
    # rows, bytes: [lanes] the row and the byte of it that each lane names
    rows: np.ndarray
    bytes: np.ndarray
    group: int  # lanes that are served together when nothing is in the way


@dataclass(frozen=True)
class AccessReport:
    """What an access meets."""

    access: str  # its name
    width: int  # bytes a lane
    wavefronts: int  # turns that shared memory takes
    least: int  # turns without any conflict
    ways: int  # the worst number of different words that one bank is asked for at once
    misaligned_lanes: int  # lanes whose address is no multiple of the width; one is a fault
    first_misaligned: int | None  # the lowest such address, or None

    @property
    def faults(self) -> bool:
        """Whether the hardware refuses it."""
        return self.misaligned_lanes > 0

    @property
    def conflict_free(self) -> bool:
        """Whether it is as fast as its width allows."""
        return not self.faults and self.wavefronts == self.least


def bank_turns(words: np.ndarray, group: int, each: int) -> list[int]:
    """Turns of each so many lanes that are served together: how often the most wanted bank is read.
    ``words`` numbers the first 4-byte word of each lane, which reads ``each`` words."""
    found = []
    for first in range(0, len(words), group):
        used = np.unique(words[first : first + group, None] + np.arange(each))
        found.append(int(np.bincount(used % BANKS).max()))
    return found


def word_turns(words: np.ndarray, lanes: np.ndarray, width: int, loads: bool) -> int:
    """Turns of a warp's access of ``width`` bytes by the ``lanes`` that are on, bool [32], of which
    ``words`` numbers the first 4-byte word of each.

    Of a load two neighbouring parts go together if lane i reads what lane i ^ 1 reads, for every i,
    or what lane i ^ 2 reads.
    """
    each = max(1, width // BANK_BYTES)
    place = np.full(len(lanes), -1, np.int64)
    place[lanes] = words
    together = 2 if loads and each > 1 and _in_pairs(place) else 1
    groups = place.reshape(each // together, -1)
    used = (one[one >= 0] for one in groups)
    return sum(max(bank_turns(one, len(one), each)) for one in used if len(one))


def _in_pairs(place: np.ndarray) -> bool:
    """Whether lanes read the same in pairs; one that is off (-1) reads what any other does."""
    lane = np.arange(len(place))
    return any(
        bool(((place == place[lane ^ apart]) | (place < 0) | (place[lane ^ apart] < 0)).all())
        for apart in (1, 2)
    )


def check_access(tile: Tile, access: Access) -> AccessReport:
    """Alignment and bank conflicts of an access, from the address of every lane."""
    address = tile.address(access.rows, access.bytes)
    wrong = address % access.width != 0
    turns = bank_turns(address // BANK_BYTES, access.group, -(-access.width // BANK_BYTES))
    return AccessReport(
        access.name,
        access.width,
        sum(turns),
        -(-len(address) // access.group),
        max(1, *turns),
        int(wrong.sum()),
        int(address[wrong].min()) if wrong.any() else None,
    )


_LANES = np.arange(32)


def copy_access(tile: Tile, first_row: int = 0) -> Access:
    """``cp.async`` of 16 bytes: the lanes take the chunks of rows one after another."""
    chunks = tile.row_bytes // COPY_BYTES
    number = first_row * chunks + _LANES
    rows, bytes_ = number // chunks % tile.rows, number % chunks * COPY_BYTES
    return Access("cp.async 16 B", COPY_BYTES, rows, bytes_, 8)


def matrix_access(tile: Tile, column_bytes: int = 0) -> Access:
    """``ldmatrix.x4`` of a 16 x 16 piece: lane l names row l % 16, chunk l / 16 behind a column."""
    bytes_ = column_bytes + _LANES // 16 * COPY_BYTES
    return Access("ldmatrix", COPY_BYTES, _LANES % 16 % tile.rows, bytes_, 8)


def matrix_access_transposed(tile: Tile, column_bytes: int = 0) -> Access:
    """``ldmatrix.x4.trans`` of a 16 x 16 piece: its matrices go along the row first."""
    rows = (_LANES // 16 * 8 + _LANES % 8) % tile.rows
    bytes_ = column_bytes + _LANES // 8 % 2 * COPY_BYTES
    return Access("ldmatrix.trans", COPY_BYTES, rows, bytes_, 8)


def _served(width: int) -> int:
    """Lanes of so many bytes that are served together."""
    return 32 * BANK_BYTES // max(width, BANK_BYTES)


def row_access(tile: Tile, row: int = 0, width: int = COPY_BYTES) -> Access:
    """Neighbouring lanes read neighbouring pieces of a row, and go on in the next one."""
    each = max(1, tile.row_bytes // width)
    rows = (row + _LANES // each) % tile.rows
    return Access(f"LDS.{8 * width} along rows", width, rows, _LANES % each * width, _served(width))


def column_access(tile: Tile, column_bytes: int = 0, width: int = 2) -> Access:
    """Lane l reads the same column of row l, as a product without matrix instructions does."""
    name, bytes_ = f"{width}-byte loads down a column", np.full(32, column_bytes)
    return Access(name, width, _LANES % tile.rows, bytes_, _served(width))


def codes_of_k(tile: Tile, first: int = 0) -> Access:
    """Lane (g, c) reads 16 bytes of key n g + ``first``: its dims of a row of K's codes."""
    rows = (_LANES // 4 * max(1, tile.rows // 8) + first) % tile.rows
    return Access("LDS.128 of K's codes", 16, rows, _LANES % 4 * COPY_BYTES, 8)


def codes_of_v(tile: Tile, first: int = 0) -> Access:
    """``ldmatrix.x4.trans`` of V's codes: rows n g + ``first`` and the next, two chunks each."""
    rows = (_LANES % 8 * max(1, tile.rows // 8) + first + _LANES // 8 % 2) % tile.rows
    return Access("ldmatrix.trans of V's codes", COPY_BYTES, rows, _LANES // 16 * COPY_BYTES, 8)


def _copied_rows(tile: Tile) -> range:
    return range(0, tile.rows, max(1, 32 // max(1, tile.row_bytes // COPY_BYTES)))


def _pieces(tile: Tile) -> range:
    return range(0, max(1, tile.row_bytes - 2 * COPY_BYTES + 1), 2 * COPY_BYTES)


def _keys(tile: Tile) -> range:
    return range(max(1, tile.rows // 8))


ACCESSES: Mapping[str, tuple[Callable[[Tile, int], Access], Callable[[Tile], range]]] = {
    "copy": (copy_access, _copied_rows),
    "matrix": (matrix_access, _pieces),
    "matrix_transposed": (matrix_access_transposed, _pieces),
    "row": (row_access, lambda tile: range(tile.rows)),
    "column": (column_access, lambda tile: range(0, tile.row_bytes, 2)),
    "codes_of_k": (codes_of_k, _keys),
    "codes_of_v": (codes_of_v, _keys),
}
"""Access patterns by short name, and the rows, columns or keys at which each may start."""


@dataclass(frozen=True)
class TileReport:
    """A tile held against the accesses of a kernel."""

    tile: Tile  # what was checked
    stride_mod_16: int  # bytes by which the row stride misses a multiple of 16
    misaligned_rows: int  # rows that do not begin at a multiple of 16 bytes
    first_misaligned: int | None  # address of the first such row, or None
    # each pattern's report, the worst over the columns that it starts at
    accesses: tuple[AccessReport, ...]
    padding_bytes: int  # shared memory that holds no data

    @property
    def faults(self) -> bool:
        """Whether some access is refused by the hardware."""
        return any(one.faults for one in self.accesses)

    @property
    def conflict_free(self) -> bool:
        """Whether all accesses are as fast as their width allows."""
        return all(one.conflict_free for one in self.accesses)


def check_tile(
    tile: Tile, accesses: Sequence[str] = ("copy", "matrix", "matrix_transposed")
) -> TileReport:
    """Alignment of a tile's rows and bank conflicts of each access pattern, the worst over the
    16-byte columns (matrix loads) or 4-byte columns (column loads) that it may start at."""
    unknown = [name for name in accesses if name not in ACCESSES]
    if unknown:
        what = f"There is no access pattern {unknown[0]!r}."
        raise LabError(what, f"the patterns are {', '.join(ACCESSES)}", "name one of them")
    return _report(tile, tuple(accesses))


@cache
def _report(tile: Tile, accesses: tuple[str, ...]) -> TileReport:
    starts = tile.base + np.arange(tile.rows) * tile.stride
    wrong = starts[starts % COPY_BYTES != 0]
    return TileReport(
        tile,
        tile.stride % COPY_BYTES,
        len(wrong),
        int(wrong[0]) if len(wrong) else None,
        tuple(_worst(tile, name) for name in accesses),
        tile.rows * (tile.stride - tile.row_bytes),
    )


def _worst(tile: Tile, name: str) -> AccessReport:
    access, starts = ACCESSES[name]
    reports = [check_access(tile, access(tile, start)) for start in starts(tile)]
    return max(reports, key=lambda one: (one.misaligned_lanes, one.wavefronts))
