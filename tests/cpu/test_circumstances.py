"""Times stand beside each other only where a table says what besides the candidate differs."""

from __future__ import annotations

import copy
import pickle

import pytest
from devices import LIMITS
from record_samples import make_record

from labtools.notebook.records import GpuRecords, show_tried
from labtools.notebook.tables import make_table, recorded, say_time, show_table
from labtools.problem import HEADLINE, Comparison, LabError, Workload, load_rung
from labtools.record import RecordedError, RecordedTime, RecordStore, distinguish
from labtools.record.circumstances import LAYOUT, ORACLE, TIMED, TOGETHER, say_timed

FIVE = [[100.0, 101.0, 99.0]] * 5
R03 = make_record("r03_one_warp", FIVE)
SDPA = make_record("baseline:sdpa", FIVE)
LATER = make_record("r02_one_barrier", FIVE, campaign="c2")
CALLED = make_record(
    "r04_split_first",
    FIVE,
    protocol="stream-1",
    launches=tuple(load_rung("r04").launches(HEADLINE, LIMITS)),
)
PAGES = make_record("baseline:flashinfer", FIVE)
FP8 = make_record(
    "baseline:flashinfer_fp8", FIVE, comparison=Comparison(True, 0.05, tolerance=0.1)
).model_copy(update={"codec": "fp8-e4m3"})
OTHER = make_record("r03_one_warp", FIVE, Workload(1, 8, 8, 64, 64), campaign="c3")


@pytest.mark.parametrize(
    ("records", "headings"),
    [
        ((R03, SDPA), []),
        ((R03, LATER), [TOGETHER]),
        ((R03, CALLED), [TIMED]),
        ((R03, PAGES), [LAYOUT]),
        ((R03, FP8), [LAYOUT, ORACLE]),
        ((R03, OTHER), []),  # two workloads are two comparisons, and their column says which
        ((LATER, CALLED, PAGES), [TOGETHER, TIMED, LAYOUT]),
    ],
    ids=lambda value: "+".join(getattr(one, "candidate", one) for one in value) or "nothing",
)
def test_a_table_that_mixes_says_so(records, headings) -> None:
    """However a page hands its numbers over: as times, as texts, or by the word of the row."""
    errors = [(one,) for one in records]
    assert list(distinguish([(one,) for one in records], errors)) == headings
    times = [RecordedTime.of(one) for one in records]
    shown = [
        show_table(
            ("what", "us", "error"),
            [
                (one.candidate, time, RecordedError(one))
                for one, time in zip(records, times, strict=True)
            ],
            word="recorded",
        ),
        make_table(
            ("what", "us", "where"),
            [[one.candidate, say_time(time), ""] for one, time in zip(records, times, strict=True)],
        ),
        make_table(("what", "where"), [[one.candidate, recorded(one)] for one in records]),
    ]
    for number, table in enumerate(shown):
        for heading in (TOGETHER, TIMED, LAYOUT, ORACLE):
            wanted = heading in headings and (heading != ORACLE or number == 0)
            assert (f">{heading}<" in table.html) == wanted, (number, heading)
            heads = next(line for line in table.text.splitlines() if line.startswith("what"))
            assert (heading in heads) == wanted
        assert ("share a letter" in table.text) == (TOGETHER in headings)


def test_what_differs_is_said_in_its_row() -> None:
    text = show_table(
        ("what", "us"), [("a", RecordedTime.of(R03)), ("b", RecordedTime.of(CALLED))],
        word="recorded",
    ).text  # fmt: skip
    first, second = text.splitlines()[2:]
    assert "graph replay" in first and "call by call, allocation in the call" in second
    assert "contiguous" in distinguish([(R03,), (PAGES,)])[LAYOUT]
    assert "pages of 16" in distinguish([(R03,), (PAGES,)])[LAYOUT]
    assert distinguish([(R03, LATER), (LATER,)])[TOGETHER] == ["A, B", "B"]


@pytest.mark.parametrize(
    "combine",
    [lambda a, b: a - b, lambda a, b: a / b, lambda a, b: a + b, lambda a, b: (a + 1) - 2 * b],
    ids=("difference", "ratio", "sum", "kept through arithmetic"),
)
def test_times_of_two_campaigns_are_not_computed_with(combine) -> None:
    here, there, same = (RecordedTime.of(one) for one in (R03, LATER, SDPA))
    with pytest.raises(LabError, match="different processes"):
        combine(here, there)
    assert combine(here, same) == combine(float(here), float(same))
    # Of two workloads there is nothing to mix, and a plain number has no record.
    assert combine(here, RecordedTime.of(OTHER)) == combine(float(here), 100.0)
    assert combine(here, 5.0) == combine(100.0, 5.0)


def test_what_was_computed_still_knows_its_records() -> None:
    made = RecordedTime.of(R03) - RecordedTime.of(CALLED)
    assert made.records == (R03, CALLED)
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert (float(other), len(other.records)) == (float(made), 2)


def test_a_row_of_tries_agrees_with_its_ratio(tmp_path) -> None:
    """The newest time of a try may be of processes without what it is compared with."""

    def usual(name: str, us: float, **changes: object):
        return make_record(name, [[us] * 3] * 5, knobs=load_rung(name).resolve_knobs(), **changes)

    old = [usual("r02_one_barrier", 200.0), usual("r03_one_warp", 100.0)]
    newer = usual("r03_one_warp", 150.0, campaign="c2", days=1)
    store = RecordStore([tmp_path])
    store.append("t.jsonl", [*old, newer])
    records = GpuRecords("h200", store)
    assert records.time_us("r03", HEADLINE) == 150.0
    assert records.together("r02", "r03", HEADLINE) == (200.0, 100.0)
    # Several tries come from the processes that timed most of them, though one is newer elsewhere.
    assert records.times_together(["r02", "r03"], HEADLINE) == [200.0, 100.0]
    assert records.times_together(["r03", "r04"], HEADLINE) == [150.0, None]
    text = show_tried(records, ["r02", "r03"], HEADLINE, against="r02").text
    row = next(line for line in text.splitlines() if line.startswith("r03"))
    assert " 100.0 " in row and "2.00x faster" in row and TOGETHER not in text


def test_a_row_of_two_kinds_of_numbers_says_both() -> None:
    rows = [("a", 1.0, RecordedTime.of(R03)), ("b", 2.0, None)]
    first, second = show_table(("what", "f", "us"), rows, word="forecast").text.splitlines()[1:]
    assert first.endswith("forecast, recorded") and second.endswith("  forecast")


def test_what_a_note_says_of_allocating_decides_nothing() -> None:
    """The launches decide."""
    remark = ("every call allocates and frees 8 bytes of device memory",)
    noted = make_record("r03_one_warp", FIVE, protocol="stream-1", notes=remark)
    assert not noted.allocates
    assert say_timed(noted) == "call by call"
    assert say_timed(CALLED) == "call by call, allocation in the call"
