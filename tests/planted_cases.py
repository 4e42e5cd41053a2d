"""The planted family: what each of its methods must be called, on any bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools.optimize.ablation import ablate_methods, ablate_pairs
from labtools.optimize.attribution import (
    Attribution,
    Interaction,
    MethodClass,
    classify,
    interactions,
)
from labtools.optimize.bench import TimingBench
from labtools.optimize.family import Point
from labtools.optimize.loop import check_methods
from labtools.optimize.sass_check import SassVerdict

PLANTED = Path(__file__).with_name("families") / "planted.py"


@dataclass(frozen=True)
class PlantedCase:
    """Methods that are applied together, and what each of them is."""

    classes: Mapping[str, MethodClass]  # of each, by its id
    helps: tuple[str, ...] = ()  # methods without which the point is slower, by more than counts
    harms: tuple[str, ...] = ()  # methods without which it is faster, by more than counts

    @property
    def methods(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(self.classes)


IDLE: dict[str, MethodClass] = {"memory.idle": "ineffective"}
HARM: dict[str, MethodClass] = {"compute.harm": "ineffective"}
DROPPED: dict[str, MethodClass] = {"memory.dropped": "implementation_failed"}
TWO: dict[str, MethodClass] = {"latency.first": "effective", "latency.second": "effective"}
CASES = {
    "no effect": PlantedCase(IDLE),
    "harmful": PlantedCase(HARM, harms=tuple(HARM)),
    "dropped by the compiler": PlantedCase(DROPPED),
    "all three at once": PlantedCase({**IDLE, **HARM, **DROPPED}, harms=tuple(HARM)),
    "two that only work together": PlantedCase(TWO, helps=tuple(TWO)),
    "spills": PlantedCase({"latency.tight": "implementation_failed"}, harms=("latency.tight",)),
    "faster and not what it claims": PlantedCase(
        {"memory.claimed": "implementation_failed"}, helps=("memory.claimed",)
    ),
}


@dataclass(frozen=True)
class Judged:
    """What a bench and the machine code say of a point's methods."""

    attribution: Mapping[str, Attribution]
    sass: Mapping[str, SassVerdict]
    classes: Mapping[str, MethodClass]


def judge(bench: TimingBench, point: Point, methods: Sequence[str]) -> Judged:
    """Time, look at the machine code, and class: as the loop's steps do."""
    found = {one.method: one for one in ablate_methods(bench, point, methods)}
    sass = {one.method: one for one in check_methods(bench, point, methods)}
    return Judged(found, sass, {name: classify(found.get(name), sass[name]) for name in methods})


def hold_case(bench: TimingBench, case: PlantedCase) -> Judged:
    """Play a case on a bench of the planted family; fails where one of its methods is misjudged."""
    found = judge(bench, bench.family.apply(bench.family.start, case.methods), case.methods)
    assert found.classes == case.classes
    for name, one in found.attribution.items():
        assert (one.decided == "above") == (name in case.helps), one
        assert (one.high < -one.threshold) == (name in case.harms), one
    return found


def hold_together(bench: TimingBench, point: Point, methods: Sequence[str]) -> Interaction:
    """Two methods of which each alone is worth nothing at a point without both of them."""
    single = ablate_methods(bench, point, methods)
    pairs = ablate_pairs(bench, point, methods)
    (found,) = interactions(single, pairs, bench.least_effect())
    assert not found.additive
    for one in single:
        assert one.decided == "above"
        alone = (1 + found.together) / (1 + one.relative) - 1
        assert alone < one.threshold, "with the other alone nothing is gained"
    return found
