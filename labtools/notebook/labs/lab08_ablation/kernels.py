"""The kernels that the bench offers: points of the recorded grid, and what each is there for."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from labtools.optimize.ablation import pair_variants
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import Point
from labtools.problem import LabError

from ...bench import place_of


@dataclass(frozen=True)
class ShownKernel:
    """A point of the grid."""

    name: str  # of the choice
    key: str  # of the point; empty is the fastest that a round may lead with, at the headline
    about: str  # one or two sentences: what it is


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
KERNELS = tuple(ShownKernel(**one) for one in _TABLE["kernel"])
NAMES = [kernel.name for kernel in KERNELS]
TAKEN_APART = KERNELS[NAMES.index("eight warps, two pieces")].key
"""The kernel that the page takes apart, two methods at once as well."""


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
    return point_of(bench, KERNELS[place_of(name, NAMES)])


def shown_points(bench: RecordedBench) -> tuple[Point, ...]:
    """Every recorded point that the bench shows: the kernels, and each with methods out."""
    family, found = bench.family, list[Point]()
    for kernel in KERNELS:
        point = point_of(bench, kernel)
        methods = family.methods_on(point)
        pairs = pair_variants(family, point, methods).points.values()
        found += [point, *(family.remove(point, name) for name in methods)]
        found += [left for left in pairs if bench.grid.number(left) is not None]
    return tuple(dict.fromkeys(found))
