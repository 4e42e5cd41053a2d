"""Derived tiles beside those that a search finds: measured once on a GPU, kept as one table.

``python -m research.search_tiles`` writes the table, ``kernels/grids/tiles.<gpu>.json``.
Problems of another draw stand in a table of their own, with the seed in its name.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from labtools.problem import LabError, kernels_dir, load_rung
from labtools.toolchain.sources import hash_source

from .fields import ShippedId

WITHIN = (1.10, 1.25)
"""Times the best of the search that a derived tile may take: near it, and not far from it."""


@dataclass(frozen=True)
class TimedTile:
    """One point of the search."""

    kernel: ShippedId
    knobs: dict[str, int]  # those that differ from its defaults
    # of every process, one after the other, microseconds
    samples_us: Annotated[tuple[float, ...], Field(min_length=1)]

    @property
    def median_us(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_us)


@dataclass(frozen=True)
class SearchedProblem:
    """A problem with the derived tile and the others that were timed beside it."""

    problem: str  # its short form
    derived: TimedTile  # the derived tile
    others: tuple[TimedTile, ...]  # the search's
    failures: dict[str, str]  # points without a time, and why, by their label
    # date, driver: of this row, where it was measured after the table; else empty
    date: str = ""
    driver: str = ""

    @property
    def best(self) -> TimedTile:
        """The fastest of all, the derived one among them."""
        return min((self.derived, *self.others), key=lambda one: one.median_us)

    @property
    def ratio(self) -> float:
        """Time of the derived tile over the best."""
        return self.derived.median_us / self.best.median_us

    def deriving(self, kernel: str, knobs: Mapping[str, int]) -> SearchedProblem | None:
        """The same times with this tile for the derived one, or None where it was not timed."""
        rung = load_rung(kernel)
        wanted = rung.resolve_knobs(knobs)
        tiles = (self.derived, *self.others)
        for one in tiles:
            if one.kernel == kernel and rung.resolve_knobs(one.knobs) == wanted:
                rest = tuple(other for other in tiles if other is not one)
                return dataclasses.replace(self, derived=one, others=rest)
        return None


@dataclass(frozen=True)
class TileSearch:
    """What was searched on one GPU."""

    gpu: str  # what the device calls itself
    driver: str  # version
    date: str  # of the measurement, ISO 8601; rows that were measured later have their own
    seed: int  # of the drawn problems
    sources: dict[ShippedId, str]  # hash of each kernel's text
    problems: tuple[SearchedProblem, ...]  # in the order in which they were drawn

    @property
    def stale(self) -> list[str]:
        """Kernels whose text is another now."""
        return [name for name, held in self.sources.items() if text_hash(name) != held]

    def misses(self, within: float) -> list[SearchedProblem]:
        """Problems whose derived tile takes over ``within`` times the best, the worst first."""
        found = [one for one in self.problems if one.ratio > within]
        return sorted(found, key=lambda one: -one.ratio)


def text_hash(kernel: str) -> str:
    """Hash of a shipped kernel's text with its headers, whatever its knobs."""
    rung = load_rung(kernel)
    return hash_source(rung.source_text, {}, rung.include_dirs)


def search_path(gpu: str, seed: int | None = None) -> Path:
    """Where the table of a GPU's short name stands, or that of another draw by its seed."""
    drawn = "" if seed is None else f".seed{seed}"
    return kernels_dir() / "grids" / f"tiles.{gpu}{drawn}.json"


def layout_search_path(gpu: str) -> Path:
    """Where the table of the layouts of r09 to r11 stands, of a GPU's short name."""
    return kernels_dir() / "grids" / f"layouts.{gpu}.json"


def search_paths(gpu: str) -> list[Path]:
    """Every table of a GPU: its own, then those of other draws."""
    own = search_path(gpu)
    return [own, *sorted(own.parent.glob(f"tiles.{gpu}.seed*.json"))]


def read_search(path: Path) -> TileSearch:
    """The table of a file."""
    try:
        return _READ.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        what = f"The search over tiles in {path.name} cannot be read."
        still = "every derivation; python -m research.search_tiles measures it on a GPU"
        raise LabError(what, f"{type(error).__name__}: {error}", still) from error


_READ = TypeAdapter(TileSearch)
