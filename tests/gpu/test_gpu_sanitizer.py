"""compute-sanitizer on a real GPU: a planted race is flagged, the ladder is clean."""

from __future__ import annotations

import pytest
from knob_cases import sanitized

from labtools.problem import Workload, list_rungs, load_rung

SMALL = Workload(2, 8, 2, 65, 128, seq_lens=(65, 31))
RUNGS = tuple(rung.id for rung in list_rungs())
PLANTED = {
    "r02": ("    __syncthreads();\n", ""),
    "r09": ("  __syncthreads();\n  join_and_store", "  join_and_store"),
}


@pytest.mark.parametrize("name", RUNGS)
def test_the_ladder_is_clean(name: str) -> None:
    for report in sanitized(load_rung(name), SMALL, None, "memcheck", "racecheck", "synccheck"):
        assert report.verdict == "clean", (report.tool, report.errors, report.reason)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_race_is_flagged_with_its_line(name: str) -> None:
    rung = load_rung(name)
    text = rung.source_text.replace(*PLANTED[name], 1)
    assert text != rung.source_text
    (report,) = sanitized(rung.with_source(text), SMALL, None, "racecheck")
    assert report.verdict == "errors", report.reason
    assert any(error.kind == "race" for error in report.errors)
    assert any(place.line for error in report.errors for place in error.places)
