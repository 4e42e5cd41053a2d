"""The family of decode kernels: its points are right, it starts at r03, and all can be launched."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter

import pytest
from devices import LIMITS, some_of

import labtools.problem as lp
from labtools.measure.check import check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.optimize.family import Point, load_family
from labtools.predict import forecast, load_gpu
from labtools.toolchain import compile_rung
from labtools.toolchain.cache import code_digest
from labtools.toolchain.sass import Sass, read_sass

FAMILY = load_family("tunable")
RUNG = FAMILY.rung
EVERY_POINT = "LABTOOLS_TUNABLE_POINTS"
"""So many drawn runs of points are checked on the CPU; all of them take an hour or two."""
DRAWN = int(os.environ.get(EVERY_POINT, "6"))
OFF = {
    **dict.fromkeys(("gqa", "math", "load", "swizzle", "merge", "reduce", "lazy", "exp2"), 0),
    **dict.fromkeys(("cache", "bounds", "ilp", "tail"), 0),
    **dict.fromkeys(("rows", "unroll", "stages", "warps", "split"), 1),
    "width": 8,
}
"""The value of each knob that leaves its method out."""
KEYS = {
    "r03": "start",
    "many rows": "width=16 rows=8 unroll=1 warps=4 split=4 reduce=1 lazy=1 tail=1",
    "ring of FMA": "gqa=1 load=2 width=16 rows=4 stages=2 warps=4 split=4 merge=1",
    "products": "gqa=1 math=1 load=2 width=16 unroll=1 stages=3 swizzle=1 warps=8 split=2 merge=2 "
    "lazy=1 ilp=1",
    "few loads": "math=1 load=1 swizzle=2 warps=4 split=8 exp2=0 tail=1",
}
BASES = {name: dict(FAMILY.read_key(key).knobs) for name, key in KEYS.items()}
BEST = BASES["products"]
SMALL = lp.Workload(2, 8, 2, 137, 128)
LONG = lp.Workload(1, 2, 1, 700, 128)
RAGGED = lp.Workload(4, 8, 1, 150, 128, seq_lens=(1, 150, 33, 64), distribution="late_peaked")

OTHERS = code_digest("problem", "measure", "optimize")
"""A draw from this is another one after a change of the code."""


def draw(count: int) -> list[tuple[Point, lp.Workload]]:
    """Runs of points on workloads, as many beside a base as of the whole closure."""
    rng, found = random.Random(OTHERS), []
    for points in (neighbours(), FAMILY.closure()):
        every = list(itertools.product(points, (SMALL, RAGGED, LONG)))
        found += rng.sample(every, min(count // 2, len(every)))
    return list(dict.fromkeys(found))


def code_of(knobs: dict[str, int], arch: str = "sm_90") -> Sass:
    """The machine code of the kernel itself."""
    return read_sass(compile_rung(RUNG, lp.HEADLINE, LIMITS, knobs, arch=arch), "decode_tunable")


def defines_of(point: Point) -> tuple[tuple[str, str], ...]:
    """What two points with one machine code have in common."""
    return tuple(sorted(RUNG.defines(lp.HEADLINE, LIMITS, point.knobs).items()))


def neighbours() -> list[Point]:
    """Of each base every knob at each of its values, canonical; each kernel once."""
    found: dict[Point, None] = {}
    for knobs in BASES.values():
        for knob in RUNG.knobs:
            for value in knob.choices:
                try:
                    point = FAMILY.point({**knobs, knob.name: value})
                except lp.LabError:
                    continue
                found[point] = None
    return list(found)


def test_it_is_no_step_of_the_ladder() -> None:
    assert RUNG.id in [one.id for one in lp.list_families()]
    assert RUNG.is_family
    assert RUNG.id not in [one.id for one in lp.list_rungs()]
    assert not any(one.is_family for one in lp.list_rungs())


def test_the_start_is_r03() -> None:
    """The same instructions, but for their order; and the same time as far as that is known."""
    r03 = lp.load_rung("r03")
    theirs = read_sass(compile_rung(r03, lp.HEADLINE, LIMITS, arch="sm_90"), "decode_r03")
    codes = (code_of({}), theirs)
    ours, expected = (Counter(one.opcode for one in code.executable) for code in codes)
    assert ours == expected
    assert [len(code.innermost_loops[0].loads_in_flight) for code in codes] == [8, 8]
    times = [forecast(one, lp.HEADLINE, "h200").time_us for one in (RUNG, r03)]
    assert times[0] == pytest.approx(times[1], rel=0.03)


def test_the_best_is_near_r09() -> None:
    r09 = forecast(lp.load_rung("r09"), lp.HEADLINE, "h200").time_us
    points = [FAMILY.point(BEST), FAMILY.point({**BEST, "merge": 1, "warps": 4, "split": 4})]
    for point in points:
        assert point in FAMILY.grid()
        assert forecast(RUNG, lp.HEADLINE, "h200", point.knobs).time_us < 1.15 * r09


def test_the_grid_has_the_size_that_is_timed() -> None:
    grid, every = FAMILY.grid(), FAMILY.closure()
    assert FAMILY.start in grid
    assert 200 <= len(grid) <= len(every)
    assert 1500 <= len(every) <= 3000


def test_every_knob_changes_somewhere_in_the_grid() -> None:
    for knob in RUNG.knobs:
        found = {one.knobs[knob.name] for one in FAMILY.grid()}
        assert found | {OFF[knob.name]} == set(knob.choices), knob.name


def test_two_points_are_two_kernels() -> None:
    """Where definitions are the same the launches differ, by the number of pieces."""
    by_code: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in FAMILY.closure():
        by_code.setdefault(defines_of(point), []).append(point)
    for points in by_code.values():
        pieces = [one.knobs["split"] for one in points]
        assert len(set(pieces)) == len(pieces)


@pytest.mark.parametrize("workload", [str(one) for one in FAMILY.workloads])
def test_every_point_can_be_launched_on_an_h200(workload: str) -> None:
    problem = lp.parse_problem(workload)
    for point in FAMILY.closure():
        launches = lp.timed_launches(RUNG.launches(problem, LIMITS, point.knobs))
        main = launches[0]
        # The join's own shared memory is static: what blocks of a cluster send, and counters.
        cluster = main.grid[0] if point.knobs["merge"] == 2 else 1
        heads = problem.group_size if point.knobs["gqa"] else 1
        static = 256 + (16 * (heads * 32 + cluster) + 8 * heads * cluster)
        assert main.smem_bytes + static <= LIMITS.smem_per_block_bytes
        assert main.grid[0] % cluster == 0
        assert len(launches) == 1 + (point.knobs["split"] > 1 and point.knobs["merge"] == 0)


def test_static_shared_memory_is_what_was_allowed_for() -> None:
    for knobs in (BEST, {**BEST, "split": 8, "warps": 4}, {**BEST, "merge": 1}):
        resources = compile_rung(RUNG, lp.HEADLINE, LIMITS, knobs).resources_of("decode_tunable")
        assert resources.shared_bytes <= 256 + 16 * (4 * 32 + 8) + 8 * 4 * 8


@pytest.mark.slow
@pytest.mark.parametrize(("point", "workload"), draw(DRAWN), ids=repr)
def test_a_drawn_point_is_right(point: Point, workload: lp.Workload) -> None:
    run = run_on_cpu(RUNG, workload, dict(point.knobs), orders=(0, 2))
    assert run.ok, f"{point.key} on {workload}: {run}"


@pytest.mark.slow
@pytest.mark.parametrize("base", some_of(list(BASES), 1))
def test_a_base_is_right_on_the_battery(base: str) -> None:
    report = check_rung(RUNG, SMALL, BASES[base], on="cpu", seed=5)
    assert report.verdict == "undecided", report.summary  # right, but for the PTX that a GPU runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "group"),
    some_of([(base, group) for base in ("many rows", "products") for group in (1, 4, 8)], 3),
)
def test_groups(base: str, group: int) -> None:
    knobs = {**BASES[base], "gqa": 1}
    workload = lp.Workload(2, 2 * group, 2, 61, 128, seq_lens=(61, 18), seed=group)
    assert run_on_cpu(RUNG, workload, knobs).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "old", "new"),
    [
        ("many rows", "if (MASKED && r * TEAMS + team_of_lane() >= valid)", "if (false)"),
        ("many rows", "mine.acc[h].x[i] += __shfl_xor_sync", "__shfl_xor_sync"),
        ("products", "if (g + 8 * (i / 2) >= valid) score[i] = -INFINITY;", ";"),
        ("few loads", "EXP2 ? score : score * LOG2_E", "score"),
        ("ring of FMA", "filling + 1 == STAGES", "filling == STAGES"),
    ],
)
def test_a_kernel_with_a_mistake_is_wrong(base: str, old: str, new: str) -> None:
    text = RUNG.source_text
    assert text.count(old) == 1
    broken = RUNG.with_source(text.replace(old, new))
    assert not all(run_on_cpu(broken, one, BASES[base]).ok for one in (RAGGED, LONG))


@pytest.mark.parametrize(
    ("without", "with_it", "opcodes"),
    [
        ({}, {"warps": 4}, "BAR"),
        ({"split": 4, "merge": 1}, {"split": 4, "merge": 2}, "UCGABAR_ARV"),
    ],
    ids=str,
)
def test_a_method_without_a_signature_of_its_own_is_seen_in_the_machine_code(
    without: dict[str, int], with_it: dict[str, int], opcodes: str
) -> None:
    def count(knobs: dict[str, int]) -> int:
        return sum(one.matches(opcodes) for one in code_of(knobs).executable)

    assert count(without) == 0
    assert count(with_it) > 0


def test_bounds_that_are_too_tight_spill() -> None:
    def spilled(bounds: int) -> int:
        knobs = {**BEST, "bounds": bounds}
        code = compile_rung(RUNG, lp.HEADLINE, LIMITS, knobs).resources_of("decode_tunable")
        return code.spill_store_bytes

    assert spilled(1) == 0
    assert spilled(2) > 0


def test_what_the_kernel_is_not_written_for_is_refused() -> None:
    with pytest.raises(lp.LabError, match="shared memory"):
        RUNG.launches(lp.HEADLINE, LIMITS, {"math": 1})
    ampere = load_gpu("a100-40gb").limits
    with pytest.raises(lp.LabError, match="clusters"):
        RUNG.launches(lp.HEADLINE, ampere, {"split": 4, "merge": 2})
    assert RUNG.launches(lp.HEADLINE, ampere, {"split": 4, "merge": 1})
    for workload in (SMALL.replace(head_dim=64), SMALL.replace(num_qo_heads=18)):
        assert RUNG.supports(workload) is not None
