"""Loops that are odd: a forecast counts their trips as a run on the CPU does, or says why not."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from odd_loops import ODD_LOOPS, SOURCE, THREADS, WORKLOAD, marked_line, odd_rung

from labtools.measure.cpu import CpuRunnerMissing, CpuTripCounts, find_cpu_compiler
from labtools.measure.cpu.build import NATIVE
from labtools.measure.cpu.report import MAX_COUNTED, TRIPS
from labtools.predict import forecast, load_gpu, trace
from labtools.predict.blocks import LaunchBlocks
from labtools.predict.counts import compare_counts, lines_executed
from labtools.predict.memory import CallMemory
from labtools.problem import LabError, Launch, Rung
from labtools.toolchain import CompilerMissing, find_compiler, find_tool
from labtools.toolchain.listings import machine_code

try:
    find_compiler()
    find_cpu_compiler()
    has_compilers = find_tool("nvdisasm") is not None
except (CompilerMissing, CpuRunnerMissing):
    has_compilers = False
pytestmark = pytest.mark.skipif(not has_compilers, reason="no compiler or no nvdisasm here")

H200 = load_gpu("h200")
WHICH = "LABTOOLS_ODD_LOOPS"
"""``all`` takes every one, and any other text those whose names it is a part of."""
DRAWN = 6
NO_BAND = ("spin on a flag", "lock", "ticket")
"""How often these go round depends on which thread is faster."""
LEAST_BANDS = 50
SETTLED = sorted(ODD_LOOPS.keys() - set(NO_BAND))


def _chosen() -> list[str]:
    """Names; an empty one is drawn when its test runs, since all workers must see the same list."""
    wanted = os.environ.get(WHICH)
    if wanted is None:
        return [""] * DRAWN
    return [name for name in SETTLED if wanted == "all" or wanted in name]


def _counts(rung: Rung) -> CpuTripCounts:
    return CpuTripCounts(rung, WORKLOAD, None, H200.limits)


@pytest.mark.parametrize("name", _chosen())
def test_trips_are_those_of_a_run_on_the_cpu(name: str, tmp_path: Path) -> None:
    """The line that is marked is executed as often, thread by thread."""
    name = name or random.Random().choice(SETTLED)
    print(f"{WHICH}='{name}' repeats it")
    rung = odd_rung(tmp_path, name)
    counts = _counts(rung)
    made = forecast(rung, WORKLOAD, H200, counts=lambda: counts)
    assert made.band_us is not None and not made.doubts
    launches = rung.launches(WORKLOAD, H200.limits, None)
    code = machine_code(rung, WORKLOAD, H200.limits, {})
    given = counts.inputs() if made.counted else None
    blocks = LaunchBlocks(
        launches[0], code.entries["odd"], CallMemory(WORKLOAD, launches, launches, given)
    )
    one = blocks.classes[blocks.main_class]
    traced = lines_executed(one.trace)
    ran = counts.count(0, [one.block])[0]
    if made.counted:
        assert "from a run of block" in made.note
    line = marked_line(rung.source_text)
    if not any(times.any() for times in traced[SOURCE, line]):
        # The compiler worked it out, or this block does not come there.
        assert (SOURCE, line) not in ran or not blocks.sass.loops
        return
    # Of a stretch without a jump only the first line is counted.
    line = max(number for _, number in ran if number <= line)
    off = [at - ran[SOURCE, line] for at in traced[SOURCE, line]]
    assert any(bool((by == by[0]).all()) and by[0] in (-1, 0, 1) for by in off)


@pytest.mark.parametrize("name", NO_BAND[:1])
def test_a_race_has_no_band(name: str, tmp_path: Path) -> None:
    rung = odd_rung(tmp_path, name)
    made = forecast(rung, WORKLOAD, H200, counts=lambda: _counts(rung))
    assert made.band_us is None
    assert any("depends on data" in doubt for doubt in made.doubts)


class _Told(CpuTripCounts):
    """A run on the CPU that says what a test wants."""

    said: int | None = None

    @property
    def content(self) -> object:
        return "told", self.said

    def count(self, launch: int, blocks: Sequence[int]) -> list[dict[tuple[str, int], np.ndarray]]:
        if self.said is None:
            raise LabError("It takes too long.")
        line = marked_line(self._rung.source_text)
        return [{(SOURCE, line): np.full(THREADS, self.said)} for _ in blocks]


@pytest.mark.parametrize(
    ("said", "doubt"), [(7, "comes by line"), (None, "It takes too long"), (112, "")]
)
def test_a_run_that_says_otherwise_leaves_no_band(
    said: int | None, doubt: str, tmp_path: Path
) -> None:
    rung = odd_rung(tmp_path, "until data")
    told = _Told(rung, WORKLOAD, None, H200.limits)
    told.said = said
    made = forecast(rung, WORKLOAD, H200, counts=lambda: told)
    assert (made.band_us is None) == bool(doubt)
    assert any(doubt in one for one in made.doubts) == bool(doubt)


def test_inputs_that_are_too_large_are_a_reason(tmp_path: Path) -> None:
    rung = odd_rung(tmp_path, "until data")
    large = WORKLOAD.replace(batch=64, kv_len=65536)
    made = forecast(rung, large, H200, counts=lambda: CpuTripCounts(rung, large, None, H200.limits))
    assert made.band_us is None
    assert any("too large to be drawn" in one for one in made.doubts)


def test_nobody_is_asked_where_the_machine_code_says_it(tmp_path: Path) -> None:
    def never() -> CpuTripCounts:
        raise AssertionError("asked")

    made = forecast(odd_rung(tmp_path, "doubling"), WORKLOAD, H200, counts=never)
    assert made.band_us is not None and not made.counted


def test_a_triangle_that_takes_long_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_WORK", 2000)
    rung = odd_rung(tmp_path, "triangle")
    wide = rung.with_launch(
        lambda workload, limits, knobs: [
            Launch("odd", (1, 1, 1), (32, 1, 1), args=("k", "seq_lens", "out", np.int32(400)))
        ]
    )
    with pytest.raises(LabError, match="too irregular to be followed"):
        forecast(wide, WORKLOAD, H200)


def test_counts_are_compared_line_by_line(tmp_path: Path) -> None:
    rung = odd_rung(tmp_path, "doubling")
    launches = rung.launches(WORKLOAD, H200.limits, None)
    code = machine_code(rung, WORKLOAD, H200.limits, {})
    blocks = LaunchBlocks(
        launches[0], code.entries["odd"], CallMemory(WORKLOAD, launches, launches)
    )
    line = (SOURCE, marked_line(rung.source_text))
    for trips, agrees in ((12, True), (11, True), (10, False), (14, False)):
        counts = {line: np.full(THREADS, trips)}
        notes, doubts = compare_counts(blocks.classes[0].trace, counts, [frozenset({line})], 0)
        assert bool(notes) == agrees and bool(doubts) != agrees
    assert notes == [] and "block 0 on the CPU" in doubts[0]


def test_the_page_of_counts_is_as_large_as_the_child_thinks() -> None:
    text = (NATIVE / "trips.h").read_text()
    found = re.search(r"MAX_PLACES = (\d+), MAX_COUNTED = (\d+)", text)
    assert found is not None
    places, blocks = int(found[1]), int(found[2])
    assert TRIPS["counts"].shape == (blocks, places, 1024) and blocks == MAX_COUNTED
    assert TRIPS.itemsize == 8 + 8 * places + 4 * blocks * places * 1024


def test_all_of_them_are_there() -> None:
    assert len(ODD_LOOPS) == 60
    assert len(SETTLED) >= LEAST_BANDS
