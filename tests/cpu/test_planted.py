"""Planted methods, each classed right: with forecasts, with noisy times, and on the real grid."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from loop_play import noisy_samples

from labtools.optimize.ablation import ablate_methods
from labtools.optimize.accuracy import ForecastError
from labtools.optimize.attribution import (
    AA,
    THRESHOLD,
    MethodClass,
    TimeRatio,
    least_effect_of,
    noise_of,
    ratio_of,
    threshold_of,
)
from labtools.optimize.bench import ForecastBench, RecordedBench, TimedPoints
from labtools.optimize.family import Family, Point, load_family
from labtools.optimize.grid import grid_path, read_grid, samples_of
from labtools.predict.machine import machine_of
from labtools.problem import Problem
from labtools.record import ProcessSamples, Samples
from tests.gpu import test_gpu_loop as live_tests
from tests.planted_cases import CASES, PLANTED, hold_case, hold_together, judge

PROCESSES, ROUNDS = 5, 10
TWO = ("latency.first", "latency.second")
HELD = ("_forecasts", "_ran")


class NoisyBench(ForecastBench):
    """Forecasts as a GPU's times: several processes, noise within them and between them.

    ``slower`` says by how much some points are slower than forecast.
    """

    one_call, noise = True, 0.005  # of a sample, relative
    shared: Mapping[str, Any] = {}  # what every seed has: forecasts, and what is executed

    def __init__(
        self, family: Family, seed: int, slower: Mapping[Point, float] | None = None
    ) -> None:
        super().__init__(family, family.workloads[0])
        self.__dict__.update(self.shared or {name: getattr(self, name) for name in HELD})
        type(self).shared = {name: getattr(self, name) for name in HELD}
        self.slower, self.calls = slower or {}, seed

    def samples(self, time_us: float, label: str) -> Samples:
        """Of one kernel in one call."""
        rng = np.random.default_rng(zlib.crc32(f"{label} {self.calls}".encode()))
        return noisy_samples(rng, time_us, PROCESSES, ROUNDS, self.noise)

    def time(self, points: Sequence[Point], problem: Problem | None = None) -> TimedPoints:
        """All in one call."""
        self.calls += 1000
        times = {one: self.forecast_of(one, problem).time_us for one in points}
        slower = {one: us * (1 + self.slower.get(one, 0)) for one, us in times.items()}
        return TimedPoints({one: self.samples(us, one.key) for one, us in slower.items()})

    def ratio(self, timed: TimedPoints, above: Point, below: Point) -> TimeRatio:
        """Of two points of one call."""
        return ratio_of(timed.samples[above], timed.samples[below])

    def least_effect(self) -> AA:
        """From identical kernels."""
        return self._identical

    @cached_property
    def _identical(self) -> AA:
        every = [self.samples(10.0, f"identical {number}") for number in range(21)]
        return least_effect_of(list(zip(every, every[1:], strict=False)), "live")


@pytest.fixture(scope="module")
def planted():
    return load_family(PLANTED)


@pytest.fixture(scope="module")
def forecasts(planted):
    """Forecasts of a model that is hardly wrong: what is planted is in the model."""
    bench = ForecastBench(planted, planted.workloads[0])
    bench.__dict__["error"] = ForecastError(math.log(1.001), 100, 1.0, 1.0, 1.0)
    return bench


def test_without_a_known_error_of_the_model_little_is_decided(planted):
    bench = ForecastBench(planted, planted.workloads[0])
    point = bench.family.apply(bench.family.start, ("compute.harm",))
    assert bench.error is None
    (found,) = ablate_methods(bench, point, ("compute.harm",))
    assert found.low < found.relative < found.high


@pytest.fixture(scope="module")
def recorded():
    family = load_family("tunable")
    return RecordedBench(family, family.workloads[0], read_grid(grid_path("tunable", "h200")))


@pytest.mark.parametrize("name", CASES)
def test_a_planted_method_is_classed_right_by_its_forecast(forecasts, name):
    hold_case(forecasts, CASES[name])


def test_what_spills_says_how_much(forecasts):
    start = forecasts.family.start
    tight = forecasts.family.apply(start, ["latency.tight"])
    assert (forecasts.numbers(tight)["spill_bytes"] or 0) > 0
    assert forecasts.numbers(start)["spill_bytes"] == 0


def test_the_planted_kernel_computes_what_it_should(forecasts):
    family = forecasts.family
    every = family.apply(family.start, [one.id for one in family.methods])
    assert forecasts.check([family.start, every]) == {family.start: None, every: None}


def test_verdicts_that_are_decided_agree_over_five_repeats(planted):
    said: dict[tuple[str, str], set[MethodClass]] = {}
    for seed in range(5):
        bench = NoisyBench(planted, seed)
        for name, case in CASES.items():
            point = planted.apply(planted.start, case.methods)
            for method, found in judge(bench, point, case.methods).classes.items():
                said.setdefault((name, method), set()).add(found)
    undecided = sum("undecided" in found for found in said.values())
    assert undecided <= len(said) / 6
    for (name, method), found in said.items():
        assert found - {"undecided"} == {CASES[name].classes[method]}, (name, method)


def test_the_tests_for_a_gpu_pass_on_noisy_times(planted):
    """Their Python is tried here, so that on a GPU it is the GPU that is tested."""
    bench: Any = NoisyBench(planted, 7)
    for name in CASES:
        live_tests.test_a_planted_method_is_classed_right(bench, name)
    live_tests.test_two_that_only_work_together_are_not_additive(bench)
    live_tests.test_identical_kernels_claim_nothing_and_a_known_slower_one_is_slower(bench)


def test_planted_slowdowns_of_twice_the_least_effect_are_found(planted):
    """The point with the idle method is made slower: then leaving the method out is faster."""
    point = planted.apply(planted.start, ["memory.idle"])
    found = 0
    for seed in range(20):
        size = 2 * threshold_of(NoisyBench(planted, seed).least_effect())
        bench = NoisyBench(planted, seed, slower={point: size})
        (one,) = ablate_methods(bench, point, ["memory.idle"])
        found += one.high < -one.threshold
    assert found >= 19


# ------------------------------------------------------------------------- on the recorded grid

FIRST_POINT = "math=1 load=2 width=16 unroll=1 stages=3 warps=4 split=4"
REAL: Mapping[str, tuple[str, str, MethodClass]] = {
    "no effect": (FIRST_POINT, "memory.l2_prefetch", "ineffective"),
    "harmful": ("rows=8 unroll=1 warps=4", "compute.exponent_base_2", "ineffective"),
    "dropped by the compiler": (
        "gqa=1 math=1 load=2 width=16 unroll=1 stages=3 swizzle=1 warps=8 split=4 merge=2 ilp=1 "
        "tail=1",
        "latency.known_block_size",
        "implementation_failed",
    ),
    "spills": (
        "width=16 rows=8 unroll=1 warps=4 split=4 bounds=2",
        "latency.room_for_32_warps",
        "ineffective",
    ),
}
"""Points of the grid at which a method is what was planted. The grid has none that is faster
without its signature."""


@pytest.mark.parametrize("name", REAL)
def test_the_grid_has_real_cases(recorded, name):
    key, method, expected = REAL[name]
    point = recorded.family.read_key(key)
    found = judge(recorded, point, [method])
    one, sass = found.attribution[method], found.sass[method]
    assert found.classes == {method: expected}
    left = recorded.family.remove(point, method)
    if name in ("no effect", "harmful"):
        assert sass.verdict == "present"
        assert abs(one.relative) < one.threshold or one.high < -one.threshold
        assert (one.high < -one.threshold) == (name == "harmful")
    if name == "dropped by the compiler":
        codes = recorded.grid.at_workload(recorded.problem).code
        numbers = [recorded.grid.number(one) for one in (point, left)]
        assert codes[numbers[0] or 0] == codes[numbers[1] or 0], "one machine code"
    if name == "spills":
        assert (recorded.numbers(point)["spill_bytes"] or 0) > 0
        assert recorded.numbers(left)["spill_bytes"] == 0
        assert one.high < -one.threshold


def test_the_grid_has_two_that_only_work_together(recorded):
    point = recorded.family.read_key("gqa=1 width=16 rows=8 unroll=1 split=16")
    hold_together(recorded, point, ("compute.rows_together", "memory.group_of_heads"))


def test_slowdowns_planted_in_recorded_samples_are_found(recorded):
    """A point's own samples against its second ones, which were made slower."""
    grid, least = recorded.grid, recorded.least_effect().effect
    twice = [one for one in grid.identical(recorded.problem) if one[2]][:200]
    found = claimed = 0
    for first, second, _ in twice:
        plain, again = (recorded_samples(us) for us in (first, second))
        slower = recorded_samples(tuple(us * (1 + 2 * least) for us in second))
        found += ratio_of(slower, plain, recorded.noise).low > 1
        claimed += abs(ratio_of(again, plain, recorded.noise).ratio - 1) > least
    assert found >= 0.95 * len(twice)
    assert claimed <= 0.05 * len(twice)


def test_samples_in_turns_claim_nothing_of_equal_kernels(recorded):
    """Of the points that were timed side by side every second sample against the others."""
    full, at, noise = recorded.grid.full, recorded.grid.at[0], noise_of(recorded.identical_in_turns)
    assert full is not None
    assert all(ratio_of(b, a, noise).low < 1.002 for a, b in recorded.identical_in_turns)
    covered = above = below = 0
    for rows in full.samples.values():
        plain = samples_of([us[::2] for us in rows], at)
        equal, more, less = (
            ratio_of(
                samples_of([tuple(one * by for one in us[1::2]) for us in rows], at), plain, noise
            )
            for by in (1.0, 1 + 1.25 * THRESHOLD, 1 + 0.75 * THRESHOLD)
        )
        covered += equal.low <= 1 <= equal.high
        above += more.low > 1 + THRESHOLD
        below += less.high < 1 + THRESHOLD
    assert min(covered, above, below) >= 0.95 * len(full.samples)


def test_samples_in_turns_and_those_of_batches_agree(recorded):
    """The narrow interval lies within what the wide one says, and no verdict is turned round."""
    full = recorded.grid.full
    assert full is not None
    points = [recorded.family.point(recorded.grid.plan.knobs_of(number)) for number in full.samples]
    held, drawn = 0, random.Random(os.getpid()).sample(list(itertools.combinations(points, 2)), 60)
    for first, second in drawn:
        timed = recorded.time([first, second])
        assert recorded.in_turns(first, second)
        narrow = recorded.ratio(timed, first, second)
        wide = ratio_of(timed.samples[first], timed.samples[second], recorded.noise)
        held += wide.low <= narrow.ratio <= wide.high
        limit = 1 + THRESHOLD
        assert not (narrow.low > limit and wide.high < limit)
        assert not (narrow.high < limit and wide.low > limit)
    assert held >= 0.95 * len(drawn)
    other = RecordedBench(recorded.family, recorded.family.workloads[1], recorded.grid)
    assert not other.in_turns(*drawn[0]), "only the headline was timed in turns"


def test_at_most_one_in_six_is_undecided_at_the_fastest_point(recorded):
    best = recorded.best_leading()
    assert best is not None
    found = ablate_methods(recorded, best[0], recorded.family.methods_on(best[0]))
    assert 6 * sum(one.decided is None for one in found) <= len(found)


def test_one_more_instruction_moves_a_forecast_by_little(planted):
    """Where blocks compete for issue slots; and no forecast is sooner than all can be issued."""
    many = dataclasses.replace(planted.workloads[0], rows=4096)
    bench = ForecastBench(planted, many)
    idle = planted.point({"idle": 1})
    plain_us, idle_us = (bench.forecast_of(one).time_us for one in (planted.start, idle))
    assert idle_us == pytest.approx(plain_us, rel=0.02)
    instructions = bench.numbers(planted.start)["issued_instructions"]
    assert instructions is not None
    sheet = bench.sheet
    cycles = many.rows / sheet.limits.num_sms * instructions / sheet.sub_partitions
    assert plain_us > cycles / (1e3 * machine_of(sheet).clock_ghz)


def recorded_samples(us: tuple[float, ...]) -> Samples:
    """As the grid has them: one process."""
    only = ProcessSamples(process=0, us=us, launches_per_sample=1, rotated_sets=1, rotated_bytes=0)
    return Samples(processes=(only,))
