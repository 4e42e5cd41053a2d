"""The checklist is filled from the machine code alone, and says where each answer comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtools.notebook.book.checklist import answers
from labtools.notebook.book.checklist.answers import Checklist, CodeFacts, checklist, code_facts
from labtools.predict import forecast, load_gpu, occupancy
from labtools.problem import HEADLINE, LabError, Workload, load_rung
from labtools.record import RecordStore

SMALL = Workload(2, 8, 2, 256, 64)
WORDS = {"computed", "forecast", "recorded"}


@pytest.fixture(scope="module")
def r03() -> Checklist:
    return checklist(load_rung("r03"), HEADLINE, "h200", {"unroll": 4})


def fact(filled: Checklist, item: str, start: str) -> float:
    (found,) = (one for one in filled.item(item).facts if one.name.startswith(start))
    return float(found.value)


def test_every_question_is_answered_and_labelled(r03: Checklist) -> None:
    assert [item.id for item in r03.items] == [
        *("bytes", "level", "residency", "loop", "widths", "in_flight", "chain", "stack"),
        *("issue", "spills", "bound", "what_if", "neighbours"),
    ]
    for item in r03.items:
        assert item.question.endswith("?") and item.says.endswith(".")
        assert {item.word, *(one.word for one in item.facts)} <= WORDS
        assert all(len(row) == len(item.columns) for row in item.rows)
    assert len({name for name, _ in answers.READER_FIELDS}) == len(answers.READER_FIELDS)


def test_the_numbers_are_the_models_own(r03: Checklist) -> None:
    said = forecast(load_rung("r03"), HEADLINE, "h200", {"unroll": 4})
    gpu = load_gpu("h200")
    assert fact(r03, "bytes", "least bytes") == pytest.approx(HEADLINE.minimal_bytes / 1e6)
    assert fact(r03, "bound", "forecast") == pytest.approx(said.time_us)
    assert said.bound in r03.item("bound").says
    in_flight = fact(r03, "in_flight", "bytes in flight per SM")
    assert in_flight == pytest.approx(said.in_flight_bytes / 1e3)
    used = code_facts(load_rung("r03"), HEADLINE, gpu, {"unroll": 4})
    fits = occupancy(gpu, 32, used.resources.registers, 0)
    assert fact(r03, "residency", "blocks that fit") == fits.blocks_per_sm
    first, last = said.main_launch.main_loop
    assert fact(r03, "loop", "instructions") == last - (first - 1)
    # Each trip of four rows loads k and v of each row, four halves a lane.
    assert r03.item("widths").rows == ((8, 8, 256, 8, 2048),)
    assert fact(r03, "in_flight", "most bytes in flight") == 2048
    whole = sum(link.issue - link.start for link in said.main_launch.chain)
    waits = [row[3] for row in r03.item("chain").rows]
    assert waits == sorted(waits, reverse=True)
    assert sum(waits) <= whole
    assert any("row.cuh" in str(row[0]) for row in r03.item("chain").rows)
    assert "LDG" in str(r03.item("chain").rows[0][2])


def test_littles_law_is_rate_times_latency(r03: Checklist) -> None:
    gpu = load_gpu("h200")
    latency_us = fact(r03, "in_flight", "latency of a load") / (gpu.boost_clock_mhz or 0)
    need = gpu.dram_gb_per_s * latency_us / gpu.sm_count
    assert fact(r03, "in_flight", "needed an SM") == pytest.approx(need, rel=0.05)


def test_experiments_point_where_the_forecast_points(r03: Checklist) -> None:
    said = forecast(load_rung("r03"), HEADLINE, "h200", {"unroll": 8})
    rows = {(row[0], row[1], row[2]): row for row in r03.item("neighbours").rows}
    assert set(rows) == {("unroll", 4, 2), ("unroll", 4, 8), ("launch_bounds", 1, 0)}
    assert rows["unroll", 4, 8][3] == pytest.approx(said.time_us)
    assert rows["unroll", 4, 8][4] == "faster"
    gains = [row[2] for row in r03.item("what_if").rows]
    assert gains and gains == sorted(gains, reverse=True)
    assert min(gains) > 1


def test_the_long_link_is_the_one_to_shorten() -> None:
    """What the page's exercise says of r03 with one row a trip."""
    filled = checklist(load_rung("r03"), HEADLINE, "h200", {"unroll": 1})
    assert filled.item("chain").rows[0][4].startswith("memory")
    assert filled.item("what_if").rows[0][0] == "the latency of memory"


def test_no_time_of_the_kernel_is_read(r03: Checklist, tmp_path: Path) -> None:
    """The list is for before the run: with no records at all, only the read rate is missing."""
    blind = checklist(load_rung("r03"), HEADLINE, "h200", store=RecordStore([tmp_path]))
    (recorded,) = (one.name for item in r03.items for one in item.facts if one.word == "recorded")
    assert recorded.startswith("floor at the best rate of a plain read")
    kept, left = (
        {(item.id, one.name, one.value) for item in filled.items for one in item.facts}
        for filled in (r03, blind)
    )
    assert {name for _, name, _ in kept - left} == {recorded}


def test_the_first_part_comes_without_experiments() -> None:
    filled = checklist(load_rung("r00"), SMALL, "h200", experiments=False)
    assert {"what_if", "neighbours"}.isdisjoint(item.id for item in filled.items)
    with pytest.raises(KeyError):
        filled.item("what_if")


def test_an_uncalibrated_gpu_says_so() -> None:
    filled = checklist(load_rung("r03"), SMALL, "rtx4090", experiments=False)
    notes = [one.note for one in filled.item("bound").facts if one.name.startswith("band")]
    assert notes == ["uncalibrated GPU"]


def facts_of(name: str, **knobs: int) -> CodeFacts:
    return code_facts(load_rung(name), HEADLINE, "h200", knobs)


def test_more_rows_a_trip_are_more_bytes_in_flight() -> None:
    found = [facts_of("r03", unroll=n) for n in (1, 2, 4, 8)]
    sizes = [one.bytes_in_flight for one in found]
    assert sizes[:3] == [512, 1024, 2048]
    assert sizes == sorted(set(sizes))


def test_copies_to_shared_memory_count_until_their_wait() -> None:
    """They fill no register, so a look at registers alone would count them for ever or never."""
    found = facts_of("s03")
    assert any(one.base == "LDGSTS" for one in found.sass.instructions)
    trip = 32 * sum(width * count for width, count in found.widths)
    assert trip <= found.bytes_in_flight <= 6 * trip


def test_an_own_kernel_is_read_by_path(tmp_path: Path) -> None:
    shipped = load_rung("r03").source
    for ending in (".cu", ".py"):
        text = shipped.with_suffix(ending).read_text()
        (tmp_path / f"mine{ending}").write_text(text.replace('"r03_one_warp"', '"mine"'))
    filled = checklist(load_rung(tmp_path / "mine.py"), SMALL, "h200", experiments=False)
    assert filled.rung_id == "mine"
    assert "mine.cu" in filled.item("loop").facts[0].value
    assert filled.key != checklist(load_rung("r03"), SMALL, "h200", experiments=False).key


def test_what_cannot_be_answered_is_refused() -> None:
    other = HEADLINE.replace(head_dim=96)
    for asked in ((HEADLINE, "h200", {"unroll": 3}), (HEADLINE, "no-such-gpu"), (other, "h200")):
        with pytest.raises(LabError):
            checklist(load_rung("r03"), *asked)
