"""compute-sanitizer on a real GPU: a planted race is flagged, the ladder is clean."""

from __future__ import annotations

import pytest

from labtools.measure import sanitize_rung
from labtools.measure.profiler.sanitize import find_sanitizer
from labtools.problem import LabError, Workload, list_rungs, load_rung

SMALL = Workload(2, 8, 2, 65, 128, seq_lens=(65, 31))
RUNGS = tuple(rung.id for rung in list_rungs())
PLANTED = {
    "r02": ("    __syncthreads();\n", ""),
    "r09": ("  __syncthreads();\n  join_and_store", "  join_and_store"),
}


@pytest.fixture(autouse=True)
def _tool() -> None:
    try:
        find_sanitizer()
    except LabError as error:
        pytest.skip(error.what)


@pytest.mark.parametrize("name", RUNGS)
def test_the_ladder_is_clean(name: str) -> None:
    for report in sanitize_rung(
        load_rung(name), SMALL, tools=("memcheck", "racecheck", "synccheck")
    ):
        if report.verdict == "not run" and "not supported" in report.reason:
            pytest.skip(report.reason)
        assert report.verdict == "clean", (report.tool, report.errors, report.reason)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_race_is_flagged_with_its_line(name: str) -> None:
    rung = load_rung(name)
    text = rung.source_text.replace(*PLANTED[name], 1)
    assert text != rung.source_text
    (report,) = sanitize_rung(rung.with_source(text), SMALL, tools=("racecheck",))
    if report.verdict == "not run" and "not supported" in report.reason:
        pytest.skip(report.reason)
    assert report.verdict == "errors", report.reason
    assert any(error.kind == "race" for error in report.errors)
    assert any(place.line for error in report.errors for place in error.places)


def test_a_misaligned_load_is_named_with_its_thread() -> None:
    rung = load_rung("r03")
    text = rung.source_text.replace("kv_len * HEAD_DIM + dim;", "kv_len * HEAD_DIM + dim + 1;")
    (report,) = sanitize_rung(rung.with_source(text), SMALL, tools=("memcheck",))
    if report.verdict == "not run" and "not supported" in report.reason:
        pytest.skip(report.reason)
    assert report.verdict == "errors", report.reason
    first = next(error for error in report.errors if error.kind == "misaligned")
    assert first.thread is not None
    assert first.address is not None
    assert first.address % 8
