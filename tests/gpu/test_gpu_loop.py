"""The optimisation loop live: planted methods, repeats, planted slowdowns, and whole plays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from labtools.optimize import loop
from labtools.optimize.ablation import ablate_methods
from labtools.optimize.attribution import threshold_of
from labtools.optimize.family import load_family
from labtools.optimize.grid import grid_path, read_grid
from labtools.optimize.live_bench import LiveBench
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.searches import read_searches, searches_path
from labtools.problem import repository_root
from research.search_baselines import runs_until
from tests.planted_cases import CASES, PLANTED, hold_case, hold_together, judge

STENCIL = repository_root() / "tests" / "families" / "row_stencil.py"
REPEATS = int(os.environ.get("LABTOOLS_LIVE_REPEATS", "5"))
SEEDS = int(os.environ.get("LABTOOLS_LIVE_SEEDS", "2"))
NEAR = 1.05
SOONER = 0.7


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBench]:
    family = load_family(PLANTED)
    with LiveBench(family, family.workloads[0]) as bench:
        yield bench


@pytest.mark.parametrize("name", CASES)
def test_a_planted_method_is_classed_right(live: LiveBench, name: str) -> None:
    hold_case(live, CASES[name])


def test_two_that_only_work_together_are_not_additive(live: LiveBench) -> None:
    methods = CASES["two that only work together"].methods
    hold_together(live, live.family.apply(live.family.start, methods), methods)


REPEATED = "all three at once"


@pytest.mark.parametrize(
    "name", [one if one == REPEATED else pytest.param(one, marks=pytest.mark.slow) for one in CASES]
)
def test_verdicts_that_are_decided_agree_over_the_repeats(live: LiveBench, name: str) -> None:
    case = CASES[name]
    point = live.family.apply(live.family.start, case.methods)
    for _ in range(REPEATS):
        for method, found in judge(live, point, case.methods).classes.items():
            assert found in {case.classes[method], "undecided"}


def test_identical_kernels_claim_nothing_and_a_known_slower_one_is_slower(live: LiveBench) -> None:
    least = live.least_effect()
    assert least.pairs >= 19
    assert threshold_of(least) < 0.1
    point = live.family.apply(live.family.start, ["compute.harm"])
    (one,) = ablate_methods(live, point, ["compute.harm"])
    assert one.high < -2 * one.threshold, "the roles are not swapped"


def test_a_family_that_brings_its_own_operation_is_tuned(tmp_path: Path) -> None:
    family, folder = load_family(STENCIL), tmp_path / "loop"
    loop.init(folder, family, None, "gpu", 0, 3, "largest-remainder")
    result = loop.run(folder, family, max_rounds=3)
    state = LoopFolder.look(folder).state
    assert result.rounds >= 1 and any(one.classes for one in state.history)
    with LiveBench(family, family.workloads[0]) as bench:
        timed = bench.time([family.start, family.read_key(result.champion.point)])
    start, champion = map(timed.median_us, timed.samples)
    print(f"{start:.2f} us at the start, {champion:.2f} us after {result.runs} runs")
    assert champion <= 1.01 * start


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_play_comes_near_the_best_point_of_the_recorded_grid(seed: int, tmp_path: Path) -> None:
    """The grid's best fifty points are timed beside the champion, in one call.

    The runs of a play are timed in calls of their own, minutes before it.
    """
    family = load_family("tunable")
    folder = tmp_path / "loop"
    loop.init(folder, family, None, "gpu", seed, 4, "largest-remainder")
    result = loop.run(folder, family, max_rounds=6)
    assert result.rounds <= 6
    runs = [one.time_us or math.inf for one in LoopFolder.look(folder).state.timed]
    assert result.runs == len(runs)
    grid = read_grid(grid_path("tunable", "h200"))
    assert grid.full is not None
    best = [family.point(grid.plan.knobs_of(number)) for number in grid.full.samples]
    champion = family.read_key(result.champion.point)
    with LiveBench(family, family.workloads[0]) as bench:
        timed = bench.time([champion, *best])
    fastest = min(timed.median_us(one) for one in timed.samples)
    found = timed.median_us(champion)
    print(f"seed {seed}: {result.rounds} rounds, {result.runs} runs, {result.champion.point}:")
    print(f"  {found:.2f} us, {found / fastest:.3f} of the fastest; {result.stopped}")
    assert found <= NEAR * fastest
    soon = runs_until([runs], fastest, NEAR).median_runs
    near, _ = read_searches(searches_path("tunable", "h200")).named("random").near
    assert near.factor == NEAR
    drawn = near.median_runs
    print(f"  within {NEAR:g} times the fastest at run {soon}; random search on the grid: {drawn}")
    assert soon is not None and drawn is not None and soon <= SOONER * drawn
