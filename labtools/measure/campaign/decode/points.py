"""The points that the forecast is held against: kernels, knobs and workloads, by stratum.

A point is a kernel with its knobs on a workload. Most candidates of a stratum are one kernel with
one knob changed at a time, so that the direction of a change is tested as well. Which plan a point
belongs to is decided by its kernel alone, in ``labtools/predict/points.toml``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from labtools.predict.accuracy import point_families
from labtools.problem import LabError, Problem, Workload, load_rung
from labtools.problem.limits import SMS_OF_H200

from ...gpu.job import ceiling_candidates, rung_candidate
from ..section import Choice, Plan, Section, one_knob_at_a_time
from .shapes import shapes

CEILING_FAMILY = "read_sweep"


@dataclass(frozen=True)
class PointSet:
    """Candidates of one stratum on some workloads, each with each."""

    stratum: str  # one of those that ``points.toml`` explains
    workloads: tuple[Workload, ...]  # what is computed
    rungs: tuple[Choice, ...]  # (id, knobs) pairs, of any family
    ceiling: bool = False  # the shapes of the read sweep belong to it too


def sets_of_family(name: str) -> list[PointSet]:
    """The points of one side of the split; sets that lose every candidate are left out.

    Raises:
        LabError: a kernel with points belongs to no family, or to both.
    """
    split = point_families()
    known = {one for ids in split.values() for one in ids}
    mentioned = {rung for points in POINTS for rung, _ in points.rungs}
    if not mentioned <= known:
        raise LabError(
            f"{sorted(mentioned - known)} have points and belong to no family.",
            "the split must say for each kernel whether it calibrates or tests",
            "add them to labtools/predict/points.toml",
        )
    mine = split[name]
    kept = []
    for points in POINTS:
        rungs = tuple(choice for choice in points.rungs if choice[0] in mine)
        ceiling = points.ceiling and CEILING_FAMILY in mine
        if rungs or ceiling:
            kept.append(PointSet(points.stratum, points.workloads, rungs, ceiling))
    return kept


def _warm(*texts: str) -> tuple[Workload, ...]:
    return shapes(*texts, cache_state="warm")


def _ragged(text: str, lengths: Iterable[int]) -> tuple[Workload, ...]:
    return shapes(text, seq_lens=tuple(lengths))


R00, R01, R02, R03 = "r00_two_passes", "r01_online_softmax", "r02_one_barrier", "r03_one_warp"
S00, S01, S02, S03 = "s00_block_rows", "s01_warp_rows", "s02_warp_int8", "s03_warp_async"
S04, S05 = "s04_gqa_warp", "s05_head_parallel_block"

# Every kernel with every knob but the split, one at a time.
_EVERY_KNOB = (
    *one_knob_at_a_time(R00, unroll=(1, 8)),
    *one_knob_at_a_time(R01, {"prefetch_v": 1}, unroll=(1, 2, 8), prefetch_v=(0,)),
    *one_knob_at_a_time(R02, unroll=(1, 2, 8), dims_per_thread=(2, 4)),
    *one_knob_at_a_time(R03, unroll=(1, 2, 8), launch_bounds=(0,)),
    *one_knob_at_a_time(S00, unroll=(1, 2, 8)),
    *one_knob_at_a_time(S01, rows=(1, 2, 8), launch_bounds=(0,)),
    *one_knob_at_a_time(S02, rows=(1, 2)),
    *one_knob_at_a_time(S03, rows=(2, 8), stages=(2, 4)),
    *one_knob_at_a_time(S04, group=(1, 2, 8), rows=(2,)),
    *one_knob_at_a_time(S05, warps=(2, 8), rows=(1, 4)),
)
# One or two of every kernel.
_FEW_KNOBS = (
    *((R00, {}), (R01, {"prefetch_v": 1}), (R02, {}), (R02, {"dims_per_thread": 2})),
    *one_knob_at_a_time(R03, unroll=(8,)),
    *((S00, {}), (S00, {"unroll": 8})),
    *one_knob_at_a_time(S01, rows=(8,)),
    *((S02, {}), (S03, {}), (S04, {})),
    *one_knob_at_a_time(S05, warps=(8,)),
)

_WARM_L2 = (
    PointSet("warm_l2", _warm("1,32,8,1024,128"), _EVERY_KNOB),
    PointSet("warm_l2", _warm("4,8,8,512,64", "4,16,4,1000,64"), _FEW_KNOBS),
    PointSet(
        "warm_l2",
        _warm("8,32,8,512,128"),
        (
            *one_knob_at_a_time(R02, unroll=(8,)),
            *one_knob_at_a_time(S00, {"split": 4}, split=(1, 2)),
            *one_knob_at_a_time(S01, {"split": 4}, split=(1, 2), rows=(8,)),
            *one_knob_at_a_time(S05, {"split": 4}, split=(1,)),
            *((S02, {"split": 4}), (S03, {"split": 4}), (S04, {"split": 4})),
        ),
        ceiling=True,
    ),
    PointSet(
        "warm_l2",
        _warm("2,32,32,512,128"),
        (
            *((R01, {}), (R02, {"dims_per_thread": 4}), (S00, {})),
            *((R03, {}), (S01, {}), (S03, {}), (S05, {})),
            *one_knob_at_a_time(S04, {"group": 1}, rows=(2,)),
        ),
        ceiling=True,
    ),
)

_CHAIN = (
    PointSet("chain", shapes("1,32,8,4096,128"), _EVERY_KNOB),
    PointSet("chain", shapes("4,8,8,2048,64"), _FEW_KNOBS),
    PointSet(
        "chain",
        shapes("8,32,8,4096,128"),
        (
            *((R00, {}), (R01, {}), (R02, {}), (R02, {"dims_per_thread": 4}), (S00, {})),
            *((R03, {}), (R03, {"unroll": 8}), (S01, {}), (S01, {"rows": 8})),
            *((S02, {}), (S03, {}), (S03, {"stages": 4}), (S04, {}), (S05, {"warps": 2})),
        ),
    ),
    PointSet(
        "chain",
        shapes("2,16,2,3000,128"),
        (
            *((R02, {}), (S00, {"unroll": 8}), (R03, {}), (S01, {"rows": 8}), (S05, {})),
            *one_knob_at_a_time(S04, {"group": 8}, group=(2, 4), rows=(2,)),
        ),
    ),
    PointSet(
        "chain",
        shapes("1,32,32,4096,128"),
        (
            *one_knob_at_a_time(S00, {"split": 2}, split=(1, 4)),
            *one_knob_at_a_time(S01, {"split": 2}, split=(1, 4), rows=(8,)),
            *one_knob_at_a_time(S02, {"split": 2}, split=(4,)),
            *((S03, {"split": 2}), (S04, {"group": 1, "split": 2})),
        ),
    ),
)

_CROSSOVER = (
    PointSet(
        "crossover",
        shapes("16,32,32,1024,128"),
        (
            *one_knob_at_a_time(R02, {"dims_per_thread": 4, "unroll": 8}, dims_per_thread=(2,)),
            *one_knob_at_a_time(S00, {"split": 2, "unroll": 8}, split=(4,), unroll=(4,)),
            *((R03, {"unroll": 8}), (S01, {"rows": 8})),
            *one_knob_at_a_time(S01, {"split": 2}, rows=(8,)),
            *one_knob_at_a_time(S01, {"split": 4, "rows": 2}, rows=(1,)),
            *one_knob_at_a_time(S05, warps=(2,), rows=(1, 4)),
            *one_knob_at_a_time(S02, {"split": 4}, rows=(2,)),
            *one_knob_at_a_time(S03, {"split": 2}, stages=(2,), split=(1,)),
        ),
    ),
    PointSet(
        "crossover",
        shapes("32,32,32,512,128"),
        (
            *one_knob_at_a_time(R02, unroll=(8,), dims_per_thread=(4,)),
            *one_knob_at_a_time(S00, unroll=(8,), split=(2,)),
            *one_knob_at_a_time(R03, unroll=(2, 8), launch_bounds=(0,)),
            *one_knob_at_a_time(S01, rows=(2, 8), launch_bounds=(0,)),
            *((S03, {}), (S03, {"rows": 2}), (S04, {"group": 1}), (S04, {"group": 1, "rows": 2})),
            *((S05, {"warps": 2}), (S02, {"split": 2})),
        ),
    ),
    PointSet(
        "crossover",
        shapes("64,32,8,1024,128"),
        (
            *one_knob_at_a_time(R02, {"dims_per_thread": 4}, unroll=(8,)),
            *((R03, {"unroll": 8}), (S05, {})),
            *one_knob_at_a_time(S01, {"split": 2}, rows=(8,)),
            *one_knob_at_a_time(S04, {"split": 8}, rows=(2,), split=(4,)),
            *((S02, {"split": 4}), (S03, {"split": 2})),
        ),
    ),
    PointSet(
        "crossover",
        shapes("24,16,16,1024,64"),
        (
            *one_knob_at_a_time(S00, {"split": 4}, split=(8,)),
            *one_knob_at_a_time(S01, {"split": 4}, rows=(8,), split=(8,)),
            *((S03, {"split": 4}), (S05, {"split": 2})),
        ),
    ),
    PointSet(
        "crossover",
        shapes("40,32,16,700,128"),
        (
            *((R02, {"dims_per_thread": 4}), (R03, {}), (R03, {"unroll": 8})),
            *((S01, {"rows": 8}), (S01, {"split": 2}), (S05, {})),
            *one_knob_at_a_time(S04, {"group": 2, "split": 4}, rows=(2,)),
        ),
    ),
    # A full machine of blocks that wait for barriers: memory is kept less than half busy.
    PointSet(
        "crossover",
        shapes("64,32,32,512,128"),
        (
            *one_knob_at_a_time(R01, {"prefetch_v": 1}, unroll=(8,), prefetch_v=(0,)),
            *((R02, {}), (S00, {}), (R00, {}), (R00, {"unroll": 8})),
        ),
    ),
)

_BANDWIDTH = (
    PointSet(
        "bandwidth",
        shapes("64,32,32,512,128"),
        (
            *one_knob_at_a_time(R02, {"dims_per_thread": 4, "unroll": 8}, unroll=(4,)),
            *one_knob_at_a_time(R03, unroll=(8,)),
            *one_knob_at_a_time(S01, {"split": 2}, split=(1,), rows=(2, 8), launch_bounds=(0,)),
            *((S01, {"rows": 8}), (S02, {"split": 2}), (S04, {"group": 1, "rows": 2, "split": 2})),
            *one_knob_at_a_time(S03, stages=(2, 4), rows=(8,)),
            *one_knob_at_a_time(S05, warps=(2, 8), rows=(1, 4)),
        ),
        ceiling=True,
    ),
    PointSet(
        "bandwidth",
        shapes("32,32,32,2048,128"),
        (
            *one_knob_at_a_time(S01, {"split": 4}, rows=(8,), split=(8,)),
            *one_knob_at_a_time(S05, {"split": 2}, warps=(8,)),
            *((S02, {"split": 4}), (S03, {"split": 4})),
            (S04, {"group": 1, "rows": 2, "split": 4}),
        ),
        ceiling=True,
    ),
    PointSet(
        "bandwidth",
        shapes("64,32,16,1024,128"),
        (
            *one_knob_at_a_time(S01, {"split": 2}, rows=(8,)),
            *((S05, {"rows": 4}), (S04, {"group": 2, "rows": 2, "split": 4})),
        ),
        ceiling=True,
    ),
    PointSet(
        "bandwidth",
        shapes("96,16,16,512,128"),
        (
            *((R02, {"dims_per_thread": 4, "unroll": 8}), (R03, {"unroll": 8})),
            *((S01, {"rows": 8}), (S01, {"split": 2}), (S05, {})),
        ),
        ceiling=True,
    ),
    PointSet(
        "bandwidth",
        shapes("64,32,32,1024,64"),
        (*one_knob_at_a_time(S01, {"split": 2}, rows=(8,)), (S03, {"split": 2}), (S05, {})),
        ceiling=True,
    ),
)

_LAUNCH = (
    PointSet(
        "launch",
        _warm("1,8,2,1,128", "8,32,8,2,128"),
        (
            *one_knob_at_a_time(R01, {"prefetch_v": 1}, prefetch_v=(0,)),
            *one_knob_at_a_time(R02, unroll=(1,), dims_per_thread=(4,)),
            *one_knob_at_a_time(S00, unroll=(1,)),
            *one_knob_at_a_time(R03, unroll=(1, 8)),
            *one_knob_at_a_time(S01, rows=(1, 8)),
            *one_knob_at_a_time(S02, rows=(1,)),
            *one_knob_at_a_time(S03, rows=(2,)),
            *one_knob_at_a_time(S04, group=(1,)),
            *one_knob_at_a_time(S05, warps=(2,)),
        ),
    ),
    PointSet("launch", _warm("1,8,2,1,128"), ((R00, {}), (R00, {"unroll": 1}))),
    PointSet(
        "launch",
        _warm("1,32,8,4,128", "2,16,4,8,64", "1,32,32,6,128"),
        (
            *((R02, {}), (S00, {})),
            *((R03, {}), (R03, {"unroll": 8}), (S01, {}), (S01, {"rows": 8})),
            *((S02, {}), (S03, {}), (S05, {})),
        ),
    ),
)

_TAIL = (
    # A full wave of one-warp blocks on 132 SMs is 4224 of them, and of 128 threads 2112.
    PointSet(
        "tail",
        shapes("133,32,8,256,128"),
        (
            *((R01, {"prefetch_v": 1}), (R02, {}), (R02, {"dims_per_thread": 4}), (S00, {})),
            *one_knob_at_a_time(R03, unroll=(8,)),
            *one_knob_at_a_time(S01, rows=(1, 8)),
            *((S02, {}), (S03, {}), (S05, {"warps": 2})),
        ),
    ),
    PointSet(
        "tail",
        shapes("67,32,8,256,128"),
        (
            *one_knob_at_a_time(R02, unroll=(8,)),
            *((R01, {}), (S00, {})),
            *((R00, {}), (S05, {})),
        ),
    ),
    PointSet(
        "tail",
        shapes("34,32,8,512,128"),
        (
            *one_knob_at_a_time(S05, {"warps": 8}, warps=(4,), rows=(1, 4)),
            (S01, {"split": 4}),
            (S04, {}),
        ),
    ),
    # Four SMs have two blocks and the others one.
    PointSet(
        "tail",
        shapes("17,8,8,1024,128"),
        (
            *((R01, {}), (R02, {}), (R02, {"dims_per_thread": 4}), (S00, {"unroll": 8})),
            *((R00, {}), (R03, {}), (R03, {"unroll": 8}), (S01, {}), (S01, {"rows": 8})),
            *((S03, {}), (S05, {}), (S04, {"group": 1})),
        ),
    ),
    PointSet(
        "tail",
        _ragged("8,32,8,8192,128", (256, 256, 256, 8192, 256, 256, 256, 256)),
        (
            *((R02, {}), (S00, {"split": 4}), (S00, {"split": 8})),
            *((R03, {}), (S02, {}), (S03, {}), (S04, {}), (S05, {})),
            *one_knob_at_a_time(S01, {"rows": 8}, split=(4, 8)),
        ),
    ),
    PointSet(
        "tail",
        _ragged("64,32,8,2048,128", (2048 - 31 * (i * 37 % 64) for i in range(64))),
        (
            *((R02, {}), (S00, {})),
            *((R03, {}), (S01, {}), (S01, {"rows": 8}), (S01, {"split": 2})),
            *((S03, {}), (S04, {"split": 4}), (S05, {})),
        ),
    ),
    PointSet(
        "tail",
        _ragged("32,8,8,4096,64", (4096, *(128 for _ in range(31)))),
        (
            *((R02, {}), (S00, {})),
            *((R03, {}), (S01, {}), (S03, {}), (S05, {})),
            *one_knob_at_a_time(S01, {"split": 8}, split=(16,)),
        ),
    ),
)

POINTS = (*_WARM_L2, *_CHAIN, *_CROSSOVER, *_BANDWIDTH, *_LAUNCH, *_TAIL)
"""Every point of both families."""


def _points_plan(family: str, title: str) -> Plan:
    """The points of one side of the split by kernel family."""
    return Plan(
        f"points_{family}",
        title,
        tuple(
            Section(
                points.workloads,
                points.rungs,
                ceiling=points.ceiling,
                counters=True,
                stratum=points.stratum,
            )
            for points in sets_of_family(family)
        ),
    )


POINTS_CALIBRATION = _points_plan("calibration", "points that the forecast may be calibrated on")
POINTS_TEST = _points_plan("test", "points that the forecast is tested on")


@functools.lru_cache(maxsize=1)
def points_by_stratum() -> dict[tuple[str, str], str]:
    """Every point of both families: (candidate's label, workload's key) to its stratum.

    Raises:
        LabError: a point stands in two strata.
    """
    found: dict[tuple[str, str], str] = {}
    for plan in (POINTS_CALIBRATION, POINTS_TEST):
        for section in plan.sections:
            candidates = [rung_candidate(load_rung(name), knobs) for name, knobs in section.rungs]
            if section.ceiling:
                # The points are laid out for it.
                candidates += ceiling_candidates(SMS_OF_H200)
            for one, workload in itertools.product(candidates, section.workloads):
                if one.supports(workload) is not None:
                    continue
                assert section.stratum is not None
                point = (one.label, workload.key())
                if found.setdefault(point, section.stratum) != section.stratum:
                    raise LabError(
                        f"{one.label} on {workload} stands in two strata.",
                        f"{found[point]} and {section.stratum}",
                        "leave one of them out of the points",
                    )
    return found


def stratum_of(label: str, workload: Problem) -> str | None:
    """The stratum of a point, or None for what is no point of either family.

    Args:
        label: of a candidate, as `Candidate.label` writes it: the id and every knob.
        workload: what it computed.
    """
    return points_by_stratum().get((label, workload.key()))
