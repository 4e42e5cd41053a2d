"""What a campaign measures, as data: sections of workloads and candidates, expanded to groups."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from labtools.problem import HEADLINE, LabError, Workload, list_baselines, load_rung

from .campaign_bench import BENCH
from .campaign_points import sets_of_family
from .campaign_quant import QUANT
from .campaign_section import Plan, Section
from .campaign_splits import SPLITS
from .live_job import Candidate, ceiling_candidates, rung_candidate

MOST_KV_BYTES = 2_200_000_000


@dataclass
class Group:
    """One workload with everything that is timed on it, in one set of processes.

    Args:
        profile: by label, what every counter is read of.
        counters: what the counters of a bound are read of, where ``profile`` does not name it.
        sanitize: what the sanitizer watches.
    """

    workload: Workload
    candidates: dict[str, Candidate] = field(default_factory=dict)
    ceiling: bool = False
    profile: dict[str, Candidate] = field(default_factory=dict)
    counters: dict[str, Candidate] = field(default_factory=dict)
    sanitize: dict[str, Candidate] = field(default_factory=dict)


def _shapes(*texts: str, **changes: str) -> tuple[Workload, ...]:
    return tuple(Workload.parse(text).replace(**changes) for text in texts)


def _grid(
    batches: Iterable[int], lengths: Iterable[int], most_kv_bytes: int = MOST_KV_BYTES
) -> tuple[Workload, ...]:
    shapes = (
        HEADLINE.replace(batch=batch, kv_len=length)
        for batch, length in itertools.product(batches, lengths)
    )
    return tuple(shape for shape in shapes if shape.kv_bytes <= most_kv_bytes)


def _all_knobs(**choices: Sequence[int]) -> list[dict[str, int]]:
    """Every combination of some knobs' values."""
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


_LADDER: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("r00_two_passes", {}),
    ("r01_online_softmax", {"prefetch_v": 0}),
    ("r01_online_softmax", {"prefetch_v": 1}),
    ("r02_one_barrier", {}),
    ("r03_one_warp", {}),
)
_BASELINES = ("sdpa", "sdpa_flash", "sdpa_expanded", "flashinfer", "flashinfer_tensor_cores")
_SINGLE = "1,32,8,4096,128"

# The shapes for which libraries' times on an H200 have been noted before.
_NOTED_SHAPES = _shapes(
    *("8,32,8,4096,128", _SINGLE, "8,32,8,1024,128", "64,32,8,4096,128"),
    *("4,8,8,512,64", "1,32,32,4096,128", "16,32,32,4096,128", "16,32,8,8192,128"),
    *("64,32,8,2048,128", "1,32,8,131072,128", "8,64,8,16384,128", "128,32,8,1024,128"),
)

# Unrolling, launch bounds and the shape of the block, each with each: they confound one another.
_BLOCK_SHAPES: tuple[tuple[str, Mapping[str, int]], ...] = (
    *(
        ("r02_one_barrier", knobs)
        for knobs in _all_knobs(
            unroll=(1, 2, 4, 8), launch_bounds=(0, 1), dims_per_thread=(1, 2, 4)
        )
    ),
    *(("r00_two_passes", knobs) for knobs in _all_knobs(unroll=(1, 2, 4, 8))),
    *(
        ("r01_online_softmax", knobs)
        for knobs in _all_knobs(unroll=(1, 2, 4, 8), prefetch_v=(0, 1))
    ),
    *(("r03_one_warp", knobs) for knobs in _all_knobs(unroll=(1, 2, 4, 8), launch_bounds=(0, 1))),
)

LADDER = Plan(
    "ladder",
    "r00 to r03 and the baselines",
    (
        Section(
            (HEADLINE,),
            _LADDER,
            _BASELINES,
            profile=(*_LADDER, ("r03_one_warp", {"unroll": 1}), ("r03_one_warp", {"unroll": 8})),
        ),
        Section(_shapes("8,32,8,4096,128", _SINGLE), (*_LADDER, *_BLOCK_SHAPES), _BASELINES),
        Section(_NOTED_SHAPES, _LADDER, _BASELINES),
        # The second bench draws every baseline over the length of the cache.
        Section(_grid((8,), (256, 512, 1024, 2048, 4096, 8192, 16384)), _LADDER, _BASELINES),
        Section(
            _grid((1, 4, 16, 64, 128), (512, 1024, 4096, 16384)),
            _LADDER,
            ("sdpa", "sdpa_flash", "flashinfer", "flashinfer_tensor_cores"),
        ),
        Section(
            _shapes(
                *("4,8,8,512,64", "1,32,8,512,128", "1,32,8,1024,128", _SINGLE),
                cache_state="warm",
            ),
            _LADDER,
            ("sdpa", "sdpa_flash"),
        ),
    ),
)

QUICK = Plan(
    "quick",
    "a short campaign that touches every part",
    (
        Section(
            _shapes("2,8,2,512,128"),
            (("r02_one_barrier", {}), ("r03_one_warp", {}), ("r03_one_warp", {"unroll": 1})),
            ("sdpa", "sdpa_expanded"),
            profile=(("r03_one_warp", {}),),
        ),
        Section(_shapes("2,8,2,512,128", cache_state="warm"), (("r03_one_warp", {}),), ("sdpa",)),
    ),
)


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

_SPLITS: tuple[tuple[str, Mapping[str, int]], ...] = (
    *(("s01_warp_rows", knobs) for knobs in _all_knobs(rows=(1, 4), split=(1, 2, 4, 8, 16, 32))),
    *(("s00_block_rows", knobs) for knobs in _all_knobs(unroll=(4,), split=(1, 2, 4, 8, 16, 32))),
)
_BYTES: tuple[tuple[str, Mapping[str, int]], ...] = tuple(
    (rung, knobs)
    for rung in ("s01_warp_rows", "s02_warp_int8")
    for knobs in _all_knobs(rows=(1, 4), split=(1, 8))
)
_SHAPES_OF_BLOCKS: tuple[tuple[str, Mapping[str, int]], ...] = tuple(
    (rung, knobs)
    for rung in ("r02_one_barrier", "r03_one_warp")
    for knobs in _all_knobs(unroll=(1, 4, 8))
)

FINDINGS = Plan(
    "findings",
    "one-warp blocks, half the bytes and more blocks: where each helps and where it does not",
    (
        Section(
            _shapes("2,32,8,4096,128", "32,32,8,4096,128", "64,32,8,1024,128", "128,32,8,1024,128"),
            _SHAPES_OF_BLOCKS,
            ceiling=False,
            counters=True,
        ),
        Section(
            _shapes("1,32,8,4096,128", "8,32,8,4096,128", "64,32,8,1024,128", "64,32,32,512,128"),
            (*_BYTES, *_SPLITS),
            ceiling=False,
            counters=True,
        ),
        Section(
            _shapes("1,32,8,1024,128", "8,32,8,512,128", cache_state="warm"),
            (*_BYTES, *_SPLITS),
            ceiling=False,
        ),
        Section(_shapes("8,32,8,256,128"), _SPLITS, ceiling=False, counters=True),
        Section(
            _shapes(*(f"1,32,8,{length},128" for length in (1, 4, 16, 64, 256))),
            (("r03_one_warp", {}),),
            ceiling=False,
            counters=True,
        ),
        Section(
            _shapes("128,32,8,1024,128"),
            (
                ("r02_one_barrier", {"dims_per_thread": 2}),
                ("r02_one_barrier", {"unroll": 2}),
                ("r00_two_passes", {}),
            ),
            ceiling=False,
            counters=True,
        ),
    ),
)

_EVERY_PLAN = (LADDER, QUICK, POINTS_CALIBRATION, POINTS_TEST, FINDINGS, BENCH, SPLITS, QUANT)
PLANS = {plan.name: plan for plan in _EVERY_PLAN}
NUM_SMS = 132
"""Of the GPU that the points are laid out for, NVIDIA H200; the read sweep's grids follow it."""


def load_plan(name: str) -> Plan:
    """A plan by name.

    Raises:
        LabError: there is none of that name.
    """
    if name not in PLANS:
        raise LabError(
            f"There is no plan {name!r}.", f"the plans are {', '.join(PLANS)}", "name one of them"
        )
    return PLANS[name]


def expand_plan(plan: Plan) -> tuple[list[Group], dict[str, str]]:
    """The groups of a plan, one a workload, in order of first mention.

    Returns:
        The groups, and what is left out everywhere (a library that is not installed) with why.
    """
    baselines = {baseline.id: baseline for baseline in list_baselines()}
    groups: dict[str, Group] = {}
    left_out: dict[str, str] = {}
    for section in plan.sections:
        rungs = [
            rung_candidate(load_rung(name), knobs, timing=section.timing, outside=section.outside)
            for name, knobs in section.rungs
        ]
        others = [Candidate(baselines[name], "baseline") for name in section.baselines]
        for workload in section.workloads:
            group = groups.setdefault(workload.key(), Group(workload))
            for candidate in (*rungs, *others):
                reason = candidate.supports(workload)
                if reason is None:
                    group.candidates.setdefault(candidate.label, candidate)
                elif "not installed" in reason:
                    left_out[candidate.label] = reason
            group.ceiling = group.ceiling or section.ceiling
            fitting = [one for one in rungs if one.supports(workload) is None]
            profiled = fitting if section.profile == "all" else _named(section.profile)
            # Verdicts take a minute a rung: only for those that a section names.
            watched = _named(() if section.profile == "all" else section.profile)
            group.profile.update({one.label: one for one in profiled})
            group.sanitize.update({one.label: one for one in (*watched, *_named(section.sanitize))})
            if section.counters:
                group.counters.update({one.label: one for one in fitting})
    return list(groups.values()), left_out


def _named(pairs: Iterable[tuple[str, Mapping[str, int]]]) -> list[Candidate]:
    return [rung_candidate(load_rung(name), knobs) for name, knobs in pairs]


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
                candidates += ceiling_candidates(NUM_SMS)
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


def stratum_of(label: str, workload: Workload) -> str | None:
    """The stratum of a point, or None for what is no point of either family.

    Args:
        label: of a candidate, as `Candidate.label` writes it: the id and every knob.
        workload: what it computed.
    """
    return points_by_stratum().get((label, workload.key()))
